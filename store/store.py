"""The public face: open a folder, append, read."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from .appender import Appender
from .checks import check_counts
from .config import StoreConfig
from .disk import Disk, OsDisk
from .errors import (
    InvalidConfig,
    InvalidMessage,
    OffsetOutOfRange,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreUnusable,
)
from .figures import lane_figures
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
from .lane import Lane
from .message import Message, MessageBatch
from .queue import RequestQueue, Sizer
from .reader import Reader
from .recovery import Found, LaneRecovery, Loss
from .request import Barrier, Mark, answer_all
from .ring import Ring
from .scan import scan_lane
from .streams import Stream, check_name
from .upkeep import Upkeep
from .write import FullSegment

OVERLAP_BYTES = 1 << 20
RESUME_BELOW_BYTES = 16 << 20
RING_FRAMES = 4
COLUMN_BYTES_A_MESSAGE = 300  # at the most: all columns, and the definition of a new stream


class MessageStore(Appender):
    """An embedded, durable message store in a folder.

    Any number of threads and event loops of one process may use one store object. Every method may raise
    `StoreClosed` after `close`, and the appending ones `StorePoisoned` after a write or force has failed.
    """

    def __init__(self, path: Path, config: StoreConfig, disk: Disk, *, repair: bool) -> None:
        """Use `MessageStore.open`."""
        began = time.perf_counter()
        super().__init__(path, config)
        self._disk = disk
        self._arrivals = threading.Condition()
        self._reader = Reader()
        self._poison: StoreError | None = None
        self._waiting_readers = 0
        self._flushers: list[Flusher] = []
        self.losses: list[Loss] = []
        self._scanned_bytes = 0
        self._scan_ms = 0.0
        self._lock = enter_folder(disk, path)
        try:
            self._open(repair)
        except BaseException as error:
            for lane in self._lanes:
                lane.close()
            self._lock.release()
            if isinstance(error, OSError):
                raise StoreUnusable(f"{path} cannot be used as a store: {error.strerror or error}") from error
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
            self._streams.add(stream)
        for sequence, capacity in found.segments:
            upkeep.found_segment(index, sequence, capacity)
        for sequence, size in found.spares:
            upkeep.found_spare(index, sequence, size)
        lane.adopt(found.sealed, found.resumable, found.last_chain)
        self.losses += found.losses
        self._scanned_bytes += found.scanned_bytes
        self._scan_ms += found.scan_ms
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
            self._reader.buffers.clear()
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
            stream = self._streams.get(topic, queue_id)

    def get_range(self, topic: str, queue_id: int, offset: int, fetch_num: int) -> dict[int, bytes]:
        """{0: data, 1: data, ..}: up to `fetch_num` messages from `offset` on (R1, the contest's call).

        Empty behind the queue's end. Raises OffsetOutOfRange before its first offset, StoreCorrupt.
        """
        stream = None
        if type(offset) is type(fetch_num) is type(queue_id) is int and type(topic) is str and not self._closed:
            stream = self._streams.get(topic, queue_id)
        if stream is None or offset < 0 or fetch_num < 0:
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
        stream = self._streams.get(*check_name(topic, queue_id))
        return self._reader.bounds(stream) if stream is not None else (0, 0)

    def _readable(
        self, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int
    ) -> Stream | None:
        self._check_open()
        if not type(offset) is type(max_messages) is type(max_bytes) is int or min(offset, max_messages, max_bytes) < 0:
            check_counts(offset=offset, max_messages=max_messages, max_bytes=max_bytes)
        stream = self._found(topic, queue_id)
        return stream if stream is not None else self._streams.get(*check_name(topic, queue_id))

    def _check_not_past(self, stream: Stream, offset: int) -> None:
        first, next_offset = self._reader.bounds(stream)
        if offset > next_offset:
            raise OffsetOutOfRange(stream.topic, stream.queue_id, offset, first, next_offset)

    def _wait_for_message(self, topic: str, queue_id: int, offset: int, deadline: float) -> bool:
        """Sleep until the queue has a message at `offset`; False when the time is up."""
        with self._arrivals:
            while not self._closed:
                stream = self._streams.get(topic, queue_id)
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

    def stats(self) -> dict[str, Any]:
        """What the store has and did since it was opened, as a plain nested dict (bytes, counts, ms)."""
        return {
            "path": str(self.path),
            "durability": self.config.durability,
            "alignment": self.config.alignment,
            "poisoned": str(self._poison) if self._poison is not None else None,
            "streams": len(self._streams),
            **lane_figures(self._lanes, self._upkeep),
            "reads": dict(vars(self._reader.counters)),
            "publish_buffer": {
                "used_bytes": sum(queue.used_bytes for queue in self._queues),
                "cap_bytes": sum(queue.cap_bytes for queue in self._queues),
            },
            "recovery": {
                "open_ms": round(self._open_ms, 3),
                "scan_ms": round(self._scan_ms, 3),
                "scanned_bytes": self._scanned_bytes,
                "losses": [loss._asdict() for loss in self.losses],
            },
        }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _empty_batch(topic: str, queue_id: int) -> MessageBatch:
    nothing = np.empty(0, np.int64)
    return MessageBatch(
        memoryview(b""), nothing, nothing, nothing, nothing, np.empty(0, np.uint32), [(topic, queue_id)]
    )

