"""The public face: open a folder, append, read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from .config import StoreConfig
from .disk import Disk, OsDisk
from .errors import (
    InvalidConfig,
    InvalidMessage,
    MessageTooLarge,
    OffsetOutOfRange,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreUnusable,
)
from .flusher import Flusher
from .folder import QUARANTINE, create_store, enter_folder, read_header
from .format import (
    BLOCK_BYTES,
    CLOSED,
    MAX_FRAME_MESSAGES,
    SealRecord,
    align_up,
    lane_name,
)
from .lane import FullSegment, Lane
from .message import Message, MessageBatch
from .queue import RequestQueue, Sizer
from .reader import Reader
from .recovery import Found, LaneRecovery, Loss
from .request import AsyncRequest, Barrier, BlockingRequest, Extras, Group, Mark, Ticket, answer_all
from .ring import Ring
from .scan import scan_lane
from .streams import Stream, check_name, lane_of
from .upkeep import Upkeep

OVERLAP_BYTES = 256 << 10
RESUME_BELOW_BYTES = 16 << 20
RING_FRAMES = 4
COLUMN_BYTES_A_MESSAGE = 300  # at the most: all columns, and the definition of a new stream


class MessageStore:
    """An embedded, durable message store in a folder.

    Any number of threads and event loops of one process may use one store object. Every method may raise
    `StoreClosed` after `close`, and the appending ones `StorePoisoned` after a write or force has failed.
    """

    def __init__(self, path: Path, config: StoreConfig, disk: Disk, *, repair: bool) -> None:
        """Use `MessageStore.open`."""
        began = time.perf_counter()
        self.path = path
        self.config = config
        self._disk = disk
        self._streams: dict[tuple[str, int], Stream] = {}
        self._naming = threading.Lock()
        self._local = threading.local()
        self._arrivals = threading.Condition()
        self._reader = Reader()
        self._poison: StoreError | None = None
        self._closed = False
        self._max_message_bytes = config.max_message_bytes
        self._waiting_readers = 0
        self._lanes: list[Lane] = []
        self._queues: list[RequestQueue] = []
        self._flushers: list[Flusher] = []
        self.losses: list[Loss] = []
        self._scanned_bytes = 0
        self._lock = enter_folder(disk, path)
        try:
            self._open(repair)
        except OSError as error:
            self._lock.release()
            raise StoreUnusable(f"{path} cannot be used as a store: {error.strerror or error}") from error
        except BaseException:
            self._lock.release()
            raise
        self._open_ms = (time.perf_counter() - began) * 1000

    @classmethod
    def open(
        cls,
        path: str | Path,
        config: StoreConfig | None = None,
        *,
        repair: bool = False,
        disk: Disk | None = None,
    ) -> MessageStore:
        """Open the store in a folder; create it if the folder is new or empty; recover it if need be.

        Args:
            path: the folder.
            config: settings; see `StoreConfig`.
            repair: set damaged ranges aside (into the folder `quarantine`) and go on without them, in place
                of raising `StoreCorrupt`. What was lost is in `losses` and in `stats()["recovery"]`.
            disk: the file system to use; for tests.

        Raises:
            StoreLocked: another process, or another object of this one, has it open.
            StoreCorrupt: durable bytes are damaged or missing; the error names file and position.
            StoreUnusable: the folder cannot be a store.
            StoreFull: there is no space for the first segment.
        """
        if not isinstance(path, str | Path):
            raise StoreUnusable(f"the path of a store is a str or a Path, not {type(path).__name__}")
        if config is not None and not isinstance(config, StoreConfig):
            raise InvalidConfig(f"config is a StoreConfig, not {type(config).__name__}")
        return cls(Path(path), config or StoreConfig(), disk or OsDisk(), repair=repair)

    # -- opening and closing --------------------------------------------------------------------------

    def _open(self, repair: bool) -> None:
        disk, config = self._disk, self.config
        header = read_header(disk, self.path) or create_store(disk, self.path, config.lanes)
        direct = config.direct_io is not False and config.durability == "force"
        self._upkeep = Upkeep(
            disk, self.path, config, header.store_id, _now_ms, self._force_lazily, self._mark, direct=direct
        )
        for index in range(header.lanes):
            folder = self.path / lane_name(index)
            if not folder.is_dir():
                if not repair:
                    raise StoreCorrupt("a lane's folder is missing", folder, 0)
                disk.make_folder(folder)
            found = LaneRecovery(
                disk, folder, index, header.store_id, self.path / QUARANTINE, repair=repair, direct=direct
            ).run()
            self._add_lane(index, folder, found, header.lanes)
        self._upkeep.start(self._lanes)
        for flusher in self._flushers:
            flusher.start()

    def _add_lane(self, index: int, folder: Path, found: Found, lanes: int) -> None:
        config, upkeep = self.config, self._upkeep
        ring = Ring(self._ring_bytes(lanes))
        lane = Lane(
            index, folder, self._disk, config, _now_ms, ring, upkeep.next_segment, upkeep.look, upkeep.segment_full
        )
        cap = max(config.publish_buffer_bytes // lanes, 4096)
        threads = 2 if config.durability == "force" else 1
        sizer = Sizer(OVERLAP_BYTES)
        queue = RequestQueue(cap, config.max_frame_bytes, config.append_timeout_ms, sizer, threads)
        for number, ((topic, queue_id), next_offset) in enumerate(
            zip(found.streams, found.next_offsets, strict=True)
        ):
            stream = Stream(topic, queue_id, lane, queue, number)
            stream.next_offset = next_offset
            lane.streams.append(stream)
            self._streams[topic, queue_id] = stream
        for sequence, capacity in found.segments:
            upkeep.found_segment(index, sequence, capacity)
        for sequence, size in found.spares:
            upkeep.found_spare(index, sequence, size)
        lane.adopt(found.sealed, found.resumable, found.last_chain)
        self.losses += found.losses
        self._scanned_bytes += found.scanned_bytes
        self._lanes.append(lane)
        self._queues.append(queue)
        self._flushers.append(Flusher(lane, queue, threads, self._poisoned, self._arrived))

    def _ring_bytes(self, lanes: int) -> int:
        config = self.config
        overhead = COLUMN_BYTES_A_MESSAGE * MAX_FRAME_MESSAGES + 64 * BLOCK_BYTES
        largest = config.max_frame_bytes + config.max_message_bytes + overhead
        return align_up(max(config.recent_bytes // lanes, RING_FRAMES * largest))

    def close(self) -> None:
        """Make everything durable, note where the log ends, and let the folder go. Twice is fine."""
        with self._naming:
            if self._closed:
                return
            self._closed = True
        closed = StoreClosed(f"the store {self.path} was closed; open it again")
        for queue in self._queues:
            answer_all(queue.close(closed), closed)
        for flusher in self._flushers:
            flusher.join()
        with self._arrivals:
            self._arrivals.notify_all()
        self._upkeep.close()
        try:
            for lane in self._lanes:
                if self._poison is None:
                    # Without its closing note a lane is recovered by a scan: nothing is lost.
                    with contextlib.suppress(OSError):
                        self._finish_lane(lane)
        finally:
            for lane in self._lanes:
                lane.close()
            self._lock.release()

    def _finish_lane(self, lane: Lane) -> None:
        """A small open segment gets a note of where it ends; a large one is sealed."""
        segment = lane.segment
        if segment is None or segment.base is None or lane.view.open == ():
            return
        opened = lane.view.open[-1]
        data_end = lane.tail - segment.base
        if len(lane.view.open) > 1 or not opened.table.entries:
            return  # earlier ones could not be sealed: recovery scans them, and this one with them
        if data_end < RESUME_BELOW_BYTES:
            segment.write_seal(
                SealRecord(CLOSED, segment.sequence, data_end, lane.chain, opened.table.entries, 0, 0)
            )
        else:
            self._upkeep.seal_now(lane, FullSegment(segment, opened.table, data_end, lane.chain))

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _poisoned(self, error: StoreError) -> None:
        """One lane failed: none takes anything any more."""
        self._poison = error
        for lane, queue in zip(self._lanes, self._queues, strict=True):
            if lane.poison is None:
                answer_all(queue.refuse(error), error)

    def _force_lazily(self) -> None:
        """Ask every lane to force what it has written; used by durability "os"."""
        for queue, lane in zip(self._queues, self._lanes, strict=True):
            if lane.segment is not None:
                with contextlib.suppress(StoreError):
                    queue.put(Barrier(), wait=False)

    def _mark(self, lane: Lane) -> None:
        with contextlib.suppress(StoreError):
            self._queues[lane.index].put(Mark(), wait=False)

    # -- appending ------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        queue_id: int,
        data: bytes,
        *,
        deliver_at_ms: int | None = None,
        key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Append one message; its offset, once it is durable. Offsets of a queue are 0, 1, 2 ..

        Args:
            topic: 1 to 255 bytes of UTF-8 without control characters.
            queue_id: 0 to 2**31 - 1.
            data: bytes, bytearray or memoryview.
            deliver_at_ms: when the message should be delivered, ms since the epoch.
            key: bytes to find or replace the message by.
            properties: str to str.

        Raises:
            PublishBufferFull, MessageTooLarge, InvalidTopic, InvalidMessage: not accepted.
            StoreFull: no space for it; not stored.
            StorePoisoned: it may or may not be durable.
        """
        if type(queue_id) is not int:
            check_name(topic, queue_id)  # True and 1.0 would be found as 1
        try:
            stream = self._streams[topic, queue_id]
        except (KeyError, TypeError):
            stream = self._stream(topic, queue_id)
        if type(data) is not bytes:
            data = _as_bytes(data, self._max_message_bytes)
        size_bytes = len(data)
        extras = None
        if deliver_at_ms is not None or key is not None or properties is not None:
            extras = _check_extras(deliver_at_ms, key, properties)
        if size_bytes > self._max_message_bytes or extras is not None:
            self._check_size(size_bytes, extras)
        try:
            lock = self._local.lock
        except AttributeError:
            lock = self._local.lock = threading.Lock()
            lock.acquire()
        request = BlockingRequest(stream, data, size_bytes, extras, lock)
        stream.queue.put(request)
        try:
            return request.wait()
        except BaseException:
            if request.abandoned:
                del self._local.lock  # a wake-up may still come: the next append must not hear it
            raise

    def submit(
        self,
        topic: str,
        queue_id: int,
        data: bytes,
        *,
        deliver_at_ms: int | None = None,
        key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Ticket:
        """Hand one message over and return at once; `ticket.result()` waits for its offset.

        Arguments and errors as for `append`; it waits only while the publish buffer is full.
        """
        stream, data, extras = self._accept(topic, queue_id, data, deliver_at_ms, key, properties)
        ticket = Ticket(stream, data, len(data), extras)
        stream.queue.put(ticket)
        return ticket

    def append_async(
        self,
        topic: str,
        queue_id: int,
        data: bytes,
        *,
        deliver_at_ms: int | None = None,
        key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> asyncio.Future[int]:
        """`append` for coroutines: await the result for the offset. Must be called in a running loop.

        Arguments and errors as for `append`. While the publish buffer is full, messages wait in the order of
        the calls.
        """
        stream, data, extras = self._accept(topic, queue_id, data, deliver_at_ms, key, properties)
        loop = asyncio.get_running_loop()
        request = AsyncRequest(stream, data, len(data), extras, loop)
        if not stream.queue.put(request, wait=False):
            timeout_s = self.config.append_timeout_ms / 1000
            loop.call_later(timeout_s, _give_up, stream.queue, request)
        return request.future

    def append_batch(self, messages: Iterable[tuple[str, int, bytes]]) -> npt.NDArray[np.int64]:
        """Append many messages; their offsets (int64, one each, in order) once all are durable.

        Messages of one queue keep their order. A batch is no transaction: if it fails, some of its messages
        may be stored. Errors as for `append`; nothing is stored if a message is refused.
        """
        try:
            rows = messages if isinstance(messages, list) else list(messages)
        except TypeError:
            raise InvalidMessage("append_batch takes (topic, queue id, data) tuples") from None
        if not rows:
            return np.empty(0, np.int64)
        streams, datas, sizes = self._accept_batch(rows)
        if len(self._lanes) == 1:
            return self._append_rows(streams, datas, sizes)
        offsets = np.empty(len(rows), np.int64)
        groups: list[tuple[list[int], list[Group]]] = []
        for lane in self._lanes:
            picked = [index for index, stream in enumerate(streams) if stream.lane is lane]
            if picked:
                part = [streams[i] for i in picked], [datas[i] for i in picked], [sizes[i] for i in picked]
                groups.append((picked, self._put_groups(*part)))
        for picked, parts in groups:
            offsets[picked] = _collect(parts)
        return offsets

    def _append_rows(self, streams: list[Stream], datas: list[bytes], sizes: list[int]) -> npt.NDArray[np.int64]:
        return _collect(self._put_groups(streams, datas, sizes))

    def _put_groups(self, streams: list[Stream], datas: list[bytes], sizes: list[int]) -> list[Group]:
        """Hand messages of one lane over in groups that fit into a frame."""
        queue = streams[0].queue
        limit = self.config.max_frame_bytes
        groups: list[Group] = []
        total = sum(sizes)
        if total <= limit and len(streams) <= MAX_FRAME_MESSAGES:
            group = Group(streams, datas, total)
            queue.put(group)
            return [group]
        begin = size = 0
        for index, length in enumerate([*sizes, limit + 1]):
            if index > begin and (size + length > limit or index - begin >= MAX_FRAME_MESSAGES):
                group = Group(streams[begin:index], datas[begin:index], size)
                queue.put(group)
                groups.append(group)
                begin, size = index, 0
            size += length
        return groups

    def _accept(
        self,
        topic: str,
        queue_id: int,
        data: bytes,
        deliver_at_ms: int | None,
        key: bytes | None,
        properties: Mapping[str, str] | None,
    ) -> tuple[Stream, bytes, Extras | None]:
        """Check one message: (stream, data, extras)."""
        if type(queue_id) is not int:
            check_name(topic, queue_id)  # True and 1.0 would be found as 1
        try:
            stream = self._streams[topic, queue_id]
        except (KeyError, TypeError):
            stream = self._stream(topic, queue_id)
        if type(data) is not bytes:
            data = _as_bytes(data, self._max_message_bytes)
        extras = None
        if deliver_at_ms is not None or key is not None or properties is not None:
            extras = _check_extras(deliver_at_ms, key, properties)
        self._check_size(len(data), extras)
        return stream, data, extras

    def _check_size(self, size_bytes: int, extras: Extras | None) -> None:
        total = size_bytes + (extras.size_bytes if extras is not None else 0)
        if total > self._max_message_bytes:
            raise _too_large(total, self._max_message_bytes)

    def _accept_batch(
        self, rows: list[tuple[str, int, bytes]]
    ) -> tuple[list[Stream], list[bytes], list[int]]:
        """Check a batch, a column at a time: (streams, datas, sizes)."""
        try:
            datas = [data for _, _, data in rows]
        except (TypeError, ValueError):
            raise InvalidMessage("append_batch takes (topic, queue id, data) tuples") from None
        known = self._streams
        for queue_id in {queue_id for _, queue_id, _ in rows if type(queue_id) is not int}:
            check_name("any", queue_id)  # True and 1.0 would be found as 1
        try:
            streams = [known[topic, queue_id] for topic, queue_id, _ in rows]
        except (KeyError, TypeError):
            streams = [self._known_or_new((topic, queue_id)) for topic, queue_id, _ in rows]
        if set(map(type, datas)) != {bytes}:
            limit = self._max_message_bytes
            datas = [data if type(data) is bytes else _as_bytes(data, limit) for data in datas]
        sizes = list(map(len, datas))
        if max(sizes) > self._max_message_bytes:
            raise _too_large(max(sizes), self._max_message_bytes)
        return streams, datas, sizes

    def _known_or_new(self, name: tuple[str, int]) -> Stream:
        try:
            return self._streams[name]
        except (KeyError, TypeError):
            return self._stream(*name)

    def _stream(self, topic: object, queue_id: object) -> Stream:
        """The stream of a name, made at first use."""
        name = check_name(topic, queue_id)
        with self._naming:
            if self._closed:
                raise StoreClosed(f"the store {self.path} was closed; open it again")
            stream = self._streams.get(name)
            if stream is None:
                index = lane_of(*name, len(self._lanes))
                stream = Stream(*name, self._lanes[index], self._queues[index])
                self._streams[name] = stream
        return stream

    def flush(self) -> None:
        """Return when everything handed over before the call is durable and forced (also with "os")."""
        self._check_open()
        barriers = []
        for queue in self._queues:
            barrier = Barrier()
            queue.put(barrier)
            barriers.append(barrier)
        for barrier in barriers:
            barrier.result()

    # -- reading --------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        max_messages: int = 32,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> list[Message]:
        """Durable messages from `offset` on, in offset order; each checksum is verified.

        Args:
            offset: of the first message wanted; the queue's next offset gives an empty list.
            max_messages: at most so many.
            max_bytes: stops before this many bytes of data, but gives at least one message.
            wait_ms: how long to wait for a message if there is none.

        Raises:
            OffsetOutOfRange: the offset is before the queue's first or after its next one.
            StoreCorrupt: a message's bytes are damaged on the device.
        """
        stream = self._readable(topic, queue_id, offset, max_messages, max_bytes)
        if type(wait_ms) is not int:
            raise InvalidMessage(f"wait_ms is an int, not {type(wait_ms).__name__}")
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            if stream is not None:
                found = self._reader.read(stream, offset, max_messages, max_bytes)
                if found:
                    return found
                self._check_not_past(stream, offset)
            elif offset > 0:
                raise OffsetOutOfRange(topic, queue_id, offset, 0, 0)
            if wait_ms <= 0 or not self._wait_for_message(topic, queue_id, offset, deadline):
                return []
            stream = self._streams.get((topic, queue_id))

    def get_range(self, topic: str, queue_id: int, offset: int, fetch_num: int) -> dict[int, bytes]:
        """{0: data, 1: data, ..}: up to `fetch_num` messages from `offset` on (R1, the contest's call).

        Empty behind the queue's end. Raises OffsetOutOfRange before its first offset, StoreCorrupt.
        """
        stream = self._readable(topic, queue_id, offset, fetch_num, 1)
        return self._reader.get_range(stream, offset, fetch_num) if stream is not None else {}

    def read_batch(
        self, topic: str, queue_id: int, offset: int = 0, max_messages: int = 4096, max_bytes: int = 64 << 20
    ) -> MessageBatch:
        """The same messages as `read` gives, as columns over one buffer: for who reads in bulk."""
        stream = self._readable(topic, queue_id, offset, max_messages, max_bytes)
        if stream is None:
            if offset > 0:
                raise OffsetOutOfRange(topic, queue_id, offset, 0, 0)
            return _empty_batch(topic, queue_id)
        batch = self._reader.read_batch(stream, offset, max_messages, max_bytes)
        if not len(batch):
            self._check_not_past(stream, offset)
        return batch

    def scan(self) -> Iterator[MessageBatch]:
        """Everything that is durable, in log order (lane by lane), a batch a frame.

        Raises StoreCorrupt at a damaged frame or message.
        """
        self._check_open()
        for lane in self._lanes:
            for batch in scan_lane(lane):
                yield batch
                self._check_open()

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(first, next): the queue holds the offsets first .. next - 1; (0, 0) if it was never used."""
        self._check_open()
        stream = self._streams.get(check_name(topic, queue_id))
        return self._reader.bounds(stream) if stream is not None else (0, 0)

    def _readable(
        self, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int
    ) -> Stream | None:
        self._check_open()
        for name, value in (("offset", offset), ("max_messages", max_messages), ("max_bytes", max_bytes)):
            if type(value) is not int and not isinstance(value, np.integer):
                raise InvalidMessage(f"{name} is an int, not {type(value).__name__}")
            if value < 0:
                raise InvalidMessage(f"{name} is not negative, but {value} is")
        try:
            stream = self._streams.get((topic, queue_id)) if type(queue_id) is int else None
        except TypeError:
            stream = None
        return stream if stream is not None else self._streams.get(check_name(topic, queue_id))

    def _check_not_past(self, stream: Stream, offset: int) -> None:
        first, next_offset = self._reader.bounds(stream)
        if offset > next_offset:
            raise OffsetOutOfRange(stream.topic, stream.queue_id, offset, first, next_offset)

    def _wait_for_message(self, topic: str, queue_id: int, offset: int, deadline: float) -> bool:
        """Sleep until the queue has a message at `offset`; False when the time is up."""
        with self._arrivals:
            while not self._closed:
                stream = self._streams.get((topic, queue_id))
                if stream is not None and self._reader.bounds(stream)[1] > offset:
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._waiting_readers += 1
                try:
                    self._arrivals.wait(left)
                finally:
                    self._waiting_readers -= 1
        raise StoreClosed(f"the store {self.path} was closed while waiting for a message")

    def _arrived(self) -> None:
        """Something became durable: wake the readers that wait, if there are any."""
        if self._waiting_readers:
            with self._arrivals:
                self._arrivals.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store {self.path} was closed; open it again")

    # -- figures --------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """What the store has and did since it was opened, as a plain nested dict (bytes, counts, ms)."""
        log: dict[str, Any] = dict.fromkeys(vars(self._lanes[0].counters), 0)
        for lane in self._lanes:
            for name, value in vars(lane.counters).items():
                log[name] += value
        segments = [lane.segment for lane in self._lanes if lane.segment is not None]
        log["direct_io"] = bool(segments) and all(segment.direct for segment in segments)
        log["prewritten_bytes"] = self._upkeep.prewritten_bytes
        log["recycled_segments"] = self._upkeep.recycled_segments
        log["removed_segments"] = self._upkeep.removed_segments
        views = [lane.view for lane in self._lanes]
        tables = [opened.table for view in views for opened in view.open]
        sealed = [segment for view in views for segment in view.sealed]
        return {
            "path": str(self.path),
            "lanes": len(self._lanes),
            "durability": self.config.durability,
            "alignment": self.config.alignment,
            "poisoned": str(self._poison) if self._poison is not None else None,
            "last_background_error": self._upkeep.last_error,
            "streams": len(self._streams),
            "log": log,
            "reads": dict(vars(self._reader.counters)),
            "publish_buffer": {
                "used_bytes": sum(queue.used_bytes for queue in self._queues),
                "cap_bytes": sum(queue.cap_bytes for queue in self._queues),
            },
            "segments": {"open": len(tables), "sealed": len(sealed), "spare": self._upkeep.spare_count()},
            "queue_tables": {
                "open_bytes": sum(table.nbytes() for table in tables),
                "open_messages": sum(table.visible for table in tables),
                "sealed_bytes": sum(segment.memory_bytes() for segment in sealed),
                "sealed_messages": sum(segment.record.entries for segment in sealed),
            },
            "recent_bytes": sum(lane.ring.size_bytes for lane in self._lanes),
            "recovery": {
                "open_ms": round(self._open_ms, 3),
                "scanned_bytes": self._scanned_bytes,
                "losses": [loss._asdict() for loss in self.losses],
            },
        }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _too_large(size_bytes: int, limit_bytes: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"the message has {size_bytes} bytes, with key and properties, and max_message_bytes is {limit_bytes}; "
        f"cut it, or raise that setting"
    )


def _as_bytes(data: object, limit_bytes: int) -> bytes:
    """A copy of what may change in the caller's hands, unless it is too large anyway."""
    if isinstance(data, bytes | bytearray | memoryview):
        size_bytes = data.nbytes if isinstance(data, memoryview) else len(data)
        if size_bytes > limit_bytes:
            raise _too_large(size_bytes, limit_bytes)
        return bytes(data)
    raise InvalidMessage(f"data is bytes, a bytearray or a memoryview, not {type(data).__name__}")


def _check_extras(
    deliver_at_ms: int | None, key: bytes | None, properties: Mapping[str, str] | None
) -> Extras:
    if deliver_at_ms is not None and (type(deliver_at_ms) is not int or not 0 <= deliver_at_ms < 1 << 62):
        raise InvalidMessage(f"deliver_at_ms is ms since the epoch, an int of at least 0, not {deliver_at_ms!r}")
    if key is not None and not isinstance(key, bytes):
        raise InvalidMessage(f"key is bytes, not {type(key).__name__}")
    packed = None
    if properties is not None:
        if not isinstance(properties, Mapping) or not all(
            isinstance(name, str) and isinstance(value, str) for name, value in properties.items()
        ):
            raise InvalidMessage("properties is a mapping of str to str")
        packed = json.dumps(dict(properties), separators=(",", ":")).encode()
    return Extras(deliver_at_ms, key, packed)


def _give_up(queue: RequestQueue, request: AsyncRequest) -> None:
    """The time to wait for space in the publish buffer is over."""
    error = queue.withdraw(request)
    if error is not None and not request.future.done():
        request.future.set_exception(error)


def _collect(groups: list[Group]) -> npt.NDArray[np.int64]:
    """The offsets of groups, once all are answered; raises the first error."""
    for group in groups:
        group.result()
    return groups[0].offsets if len(groups) == 1 else np.concatenate([group.offsets for group in groups])


def _empty_batch(topic: str, queue_id: int) -> MessageBatch:
    nothing = np.empty(0, np.int64)
    return MessageBatch(
        memoryview(b""), nothing, nothing, nothing, nothing, np.empty(0, np.uint32), [(topic, queue_id)]
    )

