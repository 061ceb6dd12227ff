"""The public face: open a folder, append, read."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .appender import Appender
from .cached_reader import CachedReader
from .caches import Caches
from .config import StoreConfig
from .disk import Disk, OsDisk, takes_direct
from .errors import (
    InvalidConfig,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreUnusable,
)
from .feeder import Feeder
from .fetcher import Fetcher
from .figures import lane_figures
from .flusher import Flusher
from .folder import QUARANTINE, STORE_FILE, create_store, enter_folder, read_header
from .forks import forget, watch
from .format import (
    BLOCK_BYTES,
    CLOSED,
    MAX_FRAME_MESSAGES,
    SealRecord,
    align_up,
    lane_name,
)
from .lane import Lane
from .offsets import NextOffsets
from .queue import RequestQueue, Sizer
from .recovery import Found, LaneRecovery, Loss
from .request import Barrier, Mark, Ticket, answer_all
from .ring import Ring
from .streams import Stream
from .upkeep import Upkeep
from .waiting import WaitingReaders
from .write import FullSegment, Shown

OVERLAP_BYTES = 1 << 20
RESUME_BELOW_BYTES = 16 << 20
RING_FRAMES = 4
COLUMN_BYTES_A_MESSAGE = 300  # at the most: all columns, and the definition of a new stream


class MessageStore(Appender, Fetcher):
    """An embedded, durable message store in a folder.

    Any number of threads and event loops of one process may use one store object. Every method may raise
    `StoreClosed` after `close`, and the appending ones `StorePoisoned` after a write or force has failed.
    """

    def __init__(
        self, path: Path, config: StoreConfig | None = None, disk: Disk | None = None, *, repair: bool = False
    ) -> None:
        """Use `MessageStore.open`."""
        if config is None or disk is None:
            raise TypeError("a store is opened with MessageStore.open(path, config), not made by MessageStore(..)")
        began = time.perf_counter()
        super().__init__(path, config)
        self._disk = disk
        self._poison: StoreError | None = None
        self._flushers: list[Flusher] = []
        self._ending = threading.RLock()
        self._ended = False
        self._feeder: Feeder | None = None
        self._begun: list[Callable[[], None]] = []  # what ends each thread that was started
        self.losses: list[Loss] = []
        self._scanned_bytes = 0
        self._scan_ms = 0.0
        self._lock = enter_folder(disk, path)
        try:
            with contextlib.ExitStack() as undo:  # of an opening that fails, or is interrupted
                undo.callback(self._lock.release)
                self._caches = Caches(config)
                undo.callback(self._let_go)
                self._open(repair)
                undo.pop_all()
        except OSError as error:
            raise StoreUnusable(f"{path} cannot be used as a store: {error.strerror or error}") from error
        self._open_ms = (time.perf_counter() - began) * 1000
        watch(self)

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
            StoreUnusable: the folder cannot be a store, or a cache cannot have its memory.
            StoreFull: there is no space for the first segment.
            InvalidConfig: the config is no StoreConfig (whose values were checked when it was made).
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
        if config.lanes != header.lanes:  # a copy, not `replace`: a subclass may be made of other arguments
            self.config = config = copy.copy(config)
            object.__setattr__(config, "lanes", header.lanes)
        direct = config.direct_io is not False and config.durability == "force"
        if direct and not takes_direct(disk, self.path / STORE_FILE):
            if config.direct_io:
                raise StoreUnusable(
                    f"the file system of {self.path} takes no O_DIRECT, which direct_io=True insists on; leave that "
                    f"setting out (writes are then forced through the page cache), or choose another folder"
                )
            direct = False
        self._upkeep = Upkeep(
            disk, self.path, config, header.store_id, _now_ms, self._force_lazily, self._mark,
            self._caches.forget_removed, direct=direct,
        )  # fmt: skip
        for index in range(header.lanes):
            folder = self.path / lane_name(index)
            if not folder.is_dir():
                if not repair:
                    raise StoreCorrupt("a lane's folder is missing", folder, 0)
                disk.make_folder(folder)
                self.losses.append(Loss(str(folder), 0, 0, None, None))
            found = LaneRecovery(
                disk, folder, index, header.store_id, self.path / QUARANTINE, repair=repair, direct=direct
            ).run()
            self._add_lane(index, folder, found, header.lanes)
        self._begun.append(self._upkeep.stop)
        self._upkeep.start(self._lanes)
        self._start_caches()
        for flusher in self._flushers:
            flusher.start()

    def _start_caches(self) -> None:
        caches = self._caches
        caches.lanes = len(self._lanes)
        if caches.messages is not None or caches.reads is not None:
            self._reader = CachedReader(caches)
        if caches.messages is not None and (caches.messages.blocks.capacity_bytes or caches.messages.edges):
            # Where a threshold chooses, what is read from the device lies far apart in the log.
            self._upkeep.reads_alone = alone = not caches.messages.config.evicts
            for lane in self._lanes:
                held = [sealed.segment for sealed in lane.view.sealed] + [opened.segment for opened in lane.view.open]
                for segment in held:
                    segment.reads_alone = alone
            self._feeder = Feeder(caches.messages, self._lanes, caches.give_up)
            self._begun.append(self._feeder.close)
            self._feeder.start()

    def _let_go(self) -> None:
        """End what an opening that failed may have begun."""
        for end in reversed(self._begun):
            end()
        for queue in self._queues:
            queue.close(StoreClosed(self._why_closed))  # the flushers end by that
        self._caches.close()
        for lane in self._lanes:
            lane.close()

    def _arrived(self, lane: Lane, shown: Sequence[Shown]) -> None:
        self._waiting.tell(lane, shown)
        if self._feeder is not None:
            self._feeder.look()

    def _add_lane(self, index: int, folder: Path, found: Found, lanes: int) -> None:
        config, upkeep = self.config, self._upkeep
        ring = Ring(self._ring_bytes(lanes))
        lane = Lane(
            index, folder, self._disk, config, _now_ms, ring, upkeep.next_segment, upkeep.look, upkeep.segment_full
        )
        cap = max(self._caches.publish_buffer_bytes // lanes, 4096)
        threads = 2 if config.durability == "force" else 1
        sizer = Sizer(OVERLAP_BYTES)
        queue = RequestQueue(cap, config.max_frame_bytes, config.append_timeout_ms, sizer, threads)
        for number, (topic, queue_id) in enumerate(found.streams):
            stream = Stream(topic, queue_id, lane, queue, number)
            lane.streams.append(stream)
            self._streams.add(stream)
        lane.offsets = NextOffsets(found.next_offsets)
        for sequence, capacity in found.segments:
            upkeep.found_segment(index, sequence, capacity)
        for sequence, size in found.spares:
            upkeep.found_spare(index, sequence, size)
        lane.held = self._caches.held
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
        return align_up(max(self._caches.recent_bytes // lanes, RING_FRAMES * largest))

    def close(self) -> None:
        """Make everything durable, note where the log ends, and let the folder go. Twice is fine.

        If it is interrupted, call it again: it goes on where it was, unless the folder was let go already.
        """
        with self._naming:
            self._closed = True
        with self._ending:
            try:
                if not self._ended:
                    self._end()
            finally:
                if self._ended:
                    self._lock.release()
                    forget(self)

    def _end(self) -> None:
        """Invariant: once `_ended` is set nothing of the folder is touched any more: it may be somebody else's."""
        closed = StoreClosed(self._why_closed)
        for queue in self._queues:
            # When this comes again after an interrupt, some were told already.
            answer_all([one for one in queue.close(closed) if not one.done()], closed)
        for flusher in self._flushers:
            flusher.join()
        self._waiting.wake_all()
        self._upkeep.close()
        try:
            for lane in self._lanes:
                if self._poison is None:
                    # Without its closing note a lane is recovered by a scan: nothing is lost.
                    with contextlib.suppress(OSError, StoreCorrupt):
                        self._finish_lane(lane)
        finally:
            if self._feeder is not None:
                self._feeder.close()
            for lane in self._lanes:
                lane.close()
            self._caches.close()
            self._caches.held.clear()
            self._reader.buffers.clear()
            self._ended = True

    def _after_fork(self) -> None:
        """In a forked child: this copy has no threads, and its files are its parent's. It counts as closed."""
        self._why_closed = f"the store {self.path} was opened before a fork; open it in the process that uses it"
        self._closed = self._ended = True
        self._lock.release()
        # A lost thread may hold these, or a lock of theirs.
        self._naming, self._ending, self._waiting = threading.Lock(), threading.RLock(), WaitingReaders(self._streams)
        error = StoreClosed(self._why_closed)
        for lane, queue in zip(self._lanes, self._queues, strict=True):
            waiting = {id(request): request for request in (*queue.after_fork(error), *lane.under_way.after_fork())}
            # Of the others nobody is here: their threads and loops stayed with the parent.
            answer_all([one for one in waiting.values() if type(one) is Ticket and not one.done()], error)

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
            segment.write_seal(SealRecord(CLOSED, segment.sequence, data_end, lane.chain, opened.table.entries, 0, 0))
        else:
            self._upkeep.seal_now(lane, FullSegment(segment, opened.table, data_end, lane.chain))

    def __repr__(self) -> str:
        state = "closed" if self._closed else "poisoned" if self._poison is not None else "open"
        return f"<MessageStore {str(self.path)!r}, {state}>"

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _poisoned(self, error: StoreError) -> None:
        """One lane failed: none takes anything any more."""
        self._poison = error
        self._waiting.wake_all()  # for what the step that failed has shown before
        sound = [queue for lane, queue in zip(self._lanes, self._queues, strict=True) if lane.poison is None]
        answer_all([request for queue in sound for request in queue.refuse(error)], error)

    def _force_lazily(self) -> None:
        """Ask every lane to force what it has written; used by durability "os"."""
        for queue, lane in zip(self._queues, self._lanes, strict=True):
            if lane.segment is not None:
                with contextlib.suppress(StoreError):
                    queue.put(Barrier(), wait=False)

    def _mark(self, lane: Lane) -> None:
        with contextlib.suppress(StoreError):
            self._queues[lane.index].put(Mark(), wait=False)

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
            "cache": {
                **self._caches.stats(),
                "missed_messages": 0 if self._feeder is None else self._feeder.missed_messages,
            },
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
