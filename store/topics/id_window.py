"""The message ids that one topic has seen within its window, in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat, takewhile
from typing import NamedTuple

from ..device.steps import for_each
from ..errors import PublishBufferFull, StoreError
from ..format.arrays import Int64s
from ..format.message_ids import STAMP_BITS
from ..log.frame_ids import FrameIds
from ..log.lane import Lane
from ..log.message_ids import IdPromise, IdRequest, IdTarget, OnTheWay, PendingIds
from ..log.streams import Stream
from .durable_ids import DurableIds

NEVER_MS = 1 << 62
MARK_IDS = 4096  # records are trimmed in steps of about so many ids


class _Mark(NamedTuple):
    """When the first `ids` ids of the window have left it, nothing of a stream below `offset` counts any more."""

    ids: int
    stream: Stream
    offset: int


class _Frame(NamedTuple):
    """Durable ids of one frame: `end` ids were durable with the last of them."""

    end: int
    time_ms: int


class IdWindow:
    """A table of ids, by their digests. Any number of threads may use it.

    An id is here from the moment at which an append is the first with it. Until the message is durable, it leads to
    the `PendingIds` or the `IdRequest` of that append; from then on `DurableIds` has it.

    Invariants:
        * an id is not in `_on_way` and durable at once. The exception is that of an `IdRequest`: it is in `_on_way`
          before anyone asks whether it is durable. The flusher asks (`find_durable`); then the message is stored, or
          takes its id out again;
        * `_frames` has the durable ids, by age, a frame at a time; of the first one some may have gone;
        * at most `most` durable ids are left.

    Attributes:
        targets: where the ids of a lane's messages go.
        note: `note(digest, request)` notes that an id is on its way with an `IdRequest`, which it gives back; or it
            gives the append which has it on its way already, and nothing is noted.
        has_old_records: `old_records` has something.

    This relies on the interpreter lock: `setdefault` of a dict whose keys are bytes is one step for other threads.
    """

    def __init__(self, window_ms: int, most: int) -> None:
        self.targets: dict[Lane, IdTarget] = {}
        self._window_ms = window_ms
        self._most = most
        self._oldest_ms = NEVER_MS  # of the first of `_frames`
        self._on_way: dict[bytes, OnTheWay] = {}
        self.note: Callable[[bytes, OnTheWay], OnTheWay] = self._on_way.setdefault
        self._durable = DurableIds()
        self._frames: deque[_Frame] = deque()
        self._stamp = 0  # the newest one of a record
        self._marks: deque[_Mark] = deque()
        self._marked = 0
        self.has_old_records = False
        self._lock = threading.RLock()  # a finalizer may append while its thread is in here

    def __bool__(self) -> bool:
        return True  # also an empty one

    def __len__(self) -> int:
        """How many ids are known whose messages are durable."""
        return len(self._durable)

    def find(self, digest: bytes) -> OnTheWay | int | None:
        """What is known of an id: its offset, or the append that has it on its way, or None.

        The caller has called `expire` before.
        """
        with self._lock:
            known = self._durable.find(digest)
            return self._on_way.get(digest) if known is None else known[1]

    def find_durable(self, digests: Sequence[bytes], now_ms: int) -> Sequence[int] | None:
        """The offset of each id, -1 where it is not durable: see `IdTable`."""
        self.expire(now_ms)
        with self._lock:
            return self._durable.offsets_of(digests)

    def admit(self, digest: bytes, ids: OnTheWay) -> OnTheWay | int | None:
        """Note that an id is on its way with `ids`: None. Or what is known of it already, and nothing is noted.

        The caller has called `expire` before.
        """
        with self._lock:
            known = self._durable.find(digest)
            if known is not None:
                return known[1]
            found = self._on_way.setdefault(digest, ids)
        if found is ids:
            return None
        offset = found.offset_of(digest)  # an interrupt may have left it here
        return found if offset is None else offset

    def admit_all(self, ids: PendingIds) -> bool:
        """`admit` all of them, which are all different; if one is known, none is noted: False."""
        mine: dict[bytes, OnTheWay] = dict.fromkeys(ids.digests, ids)
        with self._lock:
            if self._durable.offsets_of(ids.digests) is not None:
                return False
            on_way, there, asked = self._on_way, self._on_way.keys(), mine.keys()
            # No call from here on, so no other thread comes in between: `note` takes no lock.
            if there & asked:
                return False
            on_way |= mine
        return True

    def promise_of(self, ids: OnTheWay) -> IdPromise | IdRequest | None:
        """A request that is answered when ids have their outcome; None if they have it."""
        if isinstance(ids, IdRequest):
            return None if ids.done() else ids
        with self._lock:
            if ids.is_over:
                return None
            if ids.promise is None:
                ids.promise = IdPromise()
            return ids.promise

    def stamp(self, now_ms: int) -> int:
        """The stamp of a frame's record: see `IdTable`."""
        with self._lock:
            self._stamp = max(now_ms << STAMP_BITS, self._stamp + 1)
            return self._stamp

    def settle(self, ids: FrameIds) -> None:
        """A frame with ids is durable: see `IdTable`."""
        promises = []
        with self._lock:
            if self.settled - self._marked >= MARK_IDS:
                self._marks.append(_Mark(self.settled, ids.target.stream, ids.record_offset))
                self._marked = self.settled
            time_ms = max(ids.time_ms, self._frames[-1].time_ms) if self._frames else ids.time_ms
            self._durable.add(ids.packed, ids.queue_ids, ids.offsets)
            self._frames.append(_Frame(self.settled, time_ms))
            deque(map(self._on_way.pop, ids.digests, repeat(None)), maxlen=0)
            ids.is_durable = True
            for part in ids.parts:
                part.is_over = True
                if part.promise is not None:
                    promises.append(part.promise)
            ids.parts, ids.record = (), bytearray()  # they have the frame
            self._drop(max(len(self) - self._most, self._older(ids.time_ms - self._window_ms)))
        for_each(promises, IdPromise.answer)

    def fail(self, ids: PendingIds, error: StoreError | None) -> None:
        """Ids did not get to the log: see `IdTable`. Of several calls the first one has the outcome."""
        with self._lock:
            if not ids.is_over:
                self.free(ids)
                if not isinstance(error, PublishBufferFull):  # else it has left the line: nothing was queued
                    ids.error = error
                ids.is_over = True
            promise = ids.promise
        if promise is not None and not promise.done():  # also where an interrupt came between the two before
            promise.answer(ids.error)

    def free(self, ids: OnTheWay) -> None:
        """Forget those of ids that are on their way with these: see `IdTable`."""
        with self._lock:
            for digest in ids.digests:
                if self._on_way.get(digest) is ids:
                    del self._on_way[digest]

    def load(
        self, packed: bytes, queue_ids: Int64s, offsets: Int64s, times_ms: Sequence[int], stamp: int
    ) -> None:  # fmt: skip
        """Take in what the log says, the oldest first and each id once; the newest has this stamp. Before all else."""
        self._durable.add(packed, queue_ids, offsets)
        ends = {time_ms: end for end, time_ms in enumerate(times_ms, 1)}
        self._frames.extend([_Frame(end, time_ms) for time_ms, end in ends.items()])
        self._stamp = stamp
        self._drop(len(self) - self._most)

    def mark(self, stream: Stream, offset: int) -> None:
        """When all that is known now has left, records of a stream below an offset are not needed."""
        with self._lock:
            self._marks.append(_Mark(self.settled, stream, offset))
            self.has_old_records = self.has_old_records or not len(self)

    def has_each(self, digests: Sequence[bytes], queue_ids: Int64s, offsets: Int64s) -> list[bool]:
        """Whether each of some ids is durable with just this queue and offset."""
        with self._lock:
            found = self._durable.find_all(b"".join(digests))
        if found is None:
            return [False] * len(digests)
        is_it: list[bool] = ((found[0] == queue_ids) & (found[1] == offsets)).tolist()
        return is_it

    def resize(self, window_ms: int, most: int) -> None:
        """Have another window from now on. What has left the one before stays forgotten."""
        with self._lock:
            self._window_ms, self._most = window_ms, most
            self._drop(len(self) - most)

    @property
    def is_empty(self) -> bool:
        """Whether no id is known, and none is on its way."""
        return not self._on_way and not len(self)

    @property
    def settled(self) -> int:
        """How many ids were durable so far, also those that have left."""
        return self._durable.end

    def forget(self, settled: int) -> None:
        """Forget those that were durable when `settled` was this."""
        with self._lock:
            self._drop(settled - self._durable.begin)

    def expire(self, now_ms: int) -> None:
        """Forget what is too old."""
        limit = now_ms - self._window_ms
        if self._oldest_ms <= limit:
            with self._lock:
                self._drop(self._older(limit))

    def _older(self, limit_ms: int) -> int:
        """How many ids are so old. The lock is held."""
        if not self._frames or self._frames[0].time_ms > limit_ms:
            return 0  # as with most frames
        older = list(takewhile(lambda frame: frame.time_ms <= limit_ms, self._frames))
        return older[-1].end - self._durable.begin

    def _drop(self, count: int) -> None:
        """Forget the `count` oldest ids. The lock is held. It raises nothing.

        `_oldest_ms` may be too small after an interrupt: then the next `expire` comes here once for nothing.
        """
        if count > 0:
            self._durable.begin += count
        gone = self._durable.begin
        while self._frames and self._frames[0].end <= gone:
            self._frames.popleft()
        self._oldest_ms = self._frames[0].time_ms if self._frames else NEVER_MS
        if self._marks and gone >= self._marks[0].ids:
            self.has_old_records = True

    def old_records(self) -> list[tuple[Stream, int]]:
        """Streams whose records below an offset are not needed any more; each is told once."""
        with self._lock:
            found = dict[Stream, int]()
            while self._marks and self._marks[0].ids <= self._durable.begin:
                mark = self._marks.popleft()
                found[mark.stream] = max(mark.offset, found.get(mark.stream, 0))
            self.has_old_records = False
        return [(stream, offset) for stream, offset in found.items() if offset > stream.low]

    def after_fork(self, error: StoreError) -> None:
        """In a forked child: a lost thread may hold the lock, and tickets that wait get the error."""
        self._lock = threading.RLock()
        for ids in dict.fromkeys(list(self._on_way.values())):
            if isinstance(ids, PendingIds):
                self.fail(ids, error)
            elif not ids.done():
                self.free(ids)
                ids.forget_waiters()
                ids.answer(error)
