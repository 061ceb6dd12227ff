"""The message ids that one topic has seen within its window, in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby, repeat, takewhile
from operator import itemgetter
from typing import NamedTuple

from ..device.steps import for_each
from ..errors import PublishBufferFull, StoreError
from ..format.message_ids import STAMP_BITS
from ..log.lane import Lane
from ..log.message_ids import FrameIds, IdPromise, IdRequest, IdTarget, OnTheWay, PendingIds
from ..log.streams import Stream

NEVER_MS = 1 << 62
MANY_IDS = 64  # of one batch in a frame: from so many on they lead to the batch
MARK_IDS = 4096  # records are trimmed in steps of about so many ids


class _Mark(NamedTuple):
    """When the first `ids` ids of the window have left it, nothing of a stream below `offset` counts any more."""

    ids: int
    stream: Stream
    offset: int


class _Frame(NamedTuple):
    """Durable ids of one frame: `end` ids were durable with the last of them."""

    digests: Sequence[bytes]
    end: int
    time_ms: int


class IdWindow:
    """A table of ids, by their digests. Any number of threads may use it.

    An id is there from the moment at which an append is the first with it. Until the message is durable, it leads to
    the `PendingIds` or the `IdRequest` of that append, and then to the message's place (`log.message_ids.place_of`).

    Invariants:
        * `_known` leads to a place for exactly the durable ids but the first `_gone` of them: at most `most` are left;
        * `_frames` has these, by age, a frame at a time; of the first one some may have gone;
        * an id is there as long as its message is on its way: whatever leaves by age or number was durable.

    Attributes:
        targets: where the ids of a lane's messages go.
        note: `note(digest, request)` notes that an id is on its way with an `IdRequest`, which it gives back; or it
            gives what is known of the id already, and nothing is noted. What is too old is known still: it is for
            `expire` and `admit`, as most ids are new.
        has_old_records: `old_records` has something.

    This relies on the interpreter lock: `setdefault` of a dict whose keys are bytes is one step for other threads.
    """

    def __init__(self, window_ms: int, most: int) -> None:
        self.targets: dict[Lane, IdTarget] = {}
        self._window_ms = window_ms
        self._most = most
        self._oldest_ms = NEVER_MS  # of the first of `_frames`
        self._known: dict[bytes, OnTheWay | int] = {}
        self.note: Callable[[bytes, OnTheWay], OnTheWay | int] = self._known.setdefault
        self._frames: deque[_Frame] = deque()
        self._settled = 0  # how many ids were ever durable
        self._gone = 0  # how many of these have left
        self._stamp = 0  # the newest one of a record
        self._marks: deque[_Mark] = deque()
        self._marked = 0
        self.has_old_records = False
        self._lock = threading.RLock()  # a finalizer may append while its thread is in here

    def __bool__(self) -> bool:
        return True  # also an empty one

    def __len__(self) -> int:
        """How many ids are known whose messages are durable."""
        return self._settled - self._gone

    def find(self, digest: bytes) -> OnTheWay | int | None:
        """What is known of an id: None if nothing is. The caller has called `expire` before."""
        return _place_or_way(self._known.get(digest), digest)

    def admit(self, digest: bytes, ids: OnTheWay) -> OnTheWay | int | None:
        """Note that an id is on its way with `ids`: None. Or what is known of it already, and nothing is noted.

        The caller has called `expire` before.
        """
        found = self._known.setdefault(digest, ids)
        return None if found is ids else _place_or_way(found, digest)

    def admit_all(self, ids: PendingIds) -> bool:
        """`admit` all of them, which are all different; if one is known, none is noted: False."""
        found = list(map(self._known.setdefault, ids.digests, repeat(ids)))
        if found.count(ids) == len(found):
            return True
        self.fail(ids, None)
        return False

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
            if self._settled - self._marked >= MARK_IDS:
                self._marks.append(_Mark(self._settled, ids.target.stream, ids.record_offset))
                self._marked = self._settled
            is_one_batch = bool(ids.parts) and ids.digests is ids.parts[0].digests
            if not is_one_batch or len(ids.digests) < MANY_IDS:
                self._known.update(zip(ids.digests, ids.all_places(), strict=True))
            time_ms = max(ids.time_ms, self._frames[-1].time_ms) if self._frames else ids.time_ms
            self._frames.append(_Frame(ids.digests, self._settled + len(ids.digests), time_ms))
            self._settled += len(ids.digests)
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
                if self._known.get(digest) is ids:
                    del self._known[digest]

    def load(self, digests: Sequence[bytes], places: Sequence[int], times_ms: Sequence[int], stamp: int) -> None:
        """Take in what the log says, the oldest first and each id once; the newest has this stamp. Before all else."""
        self._known.update(zip(digests, places, strict=True))
        for time_ms, group in groupby(zip(times_ms, digests, strict=True), itemgetter(0)):
            part = [digest for _, digest in group]
            self._settled += len(part)
            self._frames.append(_Frame(part, self._settled, time_ms))
        self._stamp = stamp
        self._drop(len(self) - self._most)

    def mark(self, stream: Stream, offset: int) -> None:
        """When all that is known now has left, records of a stream below an offset are not needed."""
        with self._lock:
            self._marks.append(_Mark(self._settled, stream, offset))
            self.has_old_records = self.has_old_records or not len(self)

    def has_each(self, digests: Sequence[bytes], places: Sequence[int]) -> list[bool]:
        """Whether each of some ids is known with just this place. Nothing that makes the next look faster is kept."""
        found = list(map(self._known.get, digests))
        known = [_place_or_way(one, digest) for one, digest in zip(found, digests, strict=True)]
        for one in {one for one in found if isinstance(one, PendingIds)}:
            if one.frame is not None:
                one.frame.forget_places()
        return [one == place for one, place in zip(known, places, strict=True)]

    def resize(self, window_ms: int, most: int) -> None:
        """Have another window from now on. What has left the one before stays forgotten."""
        with self._lock:
            self._window_ms, self._most = window_ms, most
            self._drop(len(self) - most)

    @property
    def is_empty(self) -> bool:
        """Whether no id is known, and none is on its way."""
        return not self._known

    @property
    def settled(self) -> int:
        """How many ids were durable so far, also those that have left."""
        return self._settled

    def forget(self, settled: int) -> None:
        """Forget those that were durable when `settled` was this."""
        with self._lock:
            self._drop(settled - self._gone)

    def expire(self, now_ms: int) -> None:
        """Forget what is too old."""
        limit = now_ms - self._window_ms
        if self._oldest_ms <= limit:
            with self._lock:
                self._drop(self._older(limit))

    def _older(self, limit_ms: int) -> int:
        """How many ids are so old. The lock is held."""
        older = list(takewhile(lambda frame: frame.time_ms <= limit_ms, self._frames))
        return older[-1].end - self._gone if older else 0

    def _drop(self, count: int) -> None:
        """Forget the `count` oldest ids. The lock is held. It raises nothing.

        Those of a frame leave in one step in C, before which no interrupt comes once they are counted. `_oldest_ms` may
        be too small after one: then the next `expire` comes here once for nothing.
        """
        limit = self._gone + count
        while self._frames and (self._gone < limit or self._frames[0].end == self._gone):
            digests, end, _ = self._frames[0]
            stop = min(limit, end)
            if stop > self._gone:
                begin = self._gone - end  # from the end of the list, as slices count
                part = digests[begin : stop - end or None] if stop - self._gone < len(digests) else digests
                leave = map(self._known.pop, part, repeat(None))
                self._gone = stop
                deque(leave, maxlen=0)
            if self._gone == end:
                self._frames.popleft()
        self._oldest_ms = self._frames[0].time_ms if self._frames else NEVER_MS
        if self._marks and self._gone >= self._marks[0].ids:
            self.has_old_records = True

    def old_records(self) -> list[tuple[Stream, int]]:
        """Streams whose records below an offset are not needed any more; each is told once."""
        with self._lock:
            found = dict[Stream, int]()
            while self._marks and self._marks[0].ids <= self._gone:
                mark = self._marks.popleft()
                found[mark.stream] = max(mark.offset, found.get(mark.stream, 0))
            self.has_old_records = False
        return [(stream, offset) for stream, offset in found.items() if offset > stream.low]

    def after_fork(self, error: StoreError) -> None:
        """In a forked child: a lost thread may hold the lock, and tickets that wait get the error."""
        self._lock = threading.RLock()
        for ids in {one for one in list(self._known.values()) if not isinstance(one, int)}:
            if isinstance(ids, PendingIds):
                if not ids.is_over:  # else each of many ids that are durable leads to it
                    self.fail(ids, error)
            elif not ids.done():
                self.free(ids)
                ids.forget_waiters()
                ids.answer(error)


def _place_or_way(found: OnTheWay | int | None, digest: bytes) -> OnTheWay | int | None:
    """The place of an id, if what was found of it knows one."""
    if found is None or isinstance(found, int):
        return found
    place = found.place_of(digest)
    return found if place is None else place
