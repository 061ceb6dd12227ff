"""The read cache: messages that were read from the device, or read ahead of their reader.

Messages come in *runs*: neighbours of one stream that one read brought in. A run is kept as it came, as columns over
one buffer, so nothing is copied; the runs that were not read for the longest time go first.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .batch import Batch
from .block_cache import CachedMessages
from .read_ahead import ReadAhead

Fetch = Callable[[int, int, int, int], Batch]
RUN_PART = 16  # one read-ahead takes at most this part of the cache
RUN_BYTES = 1 << 10  # of a run, beside its messages
ROW_BYTES = 40  # of a message, beside its payload


@dataclass(slots=True)
class ReadRun:
    """Messages `first` .. `end` - 1 of a stream, all of them; those below `read` were given to a reader."""

    stream: int
    first: int
    end: int
    read: int
    batch: Batch

    @property
    def bytes(self) -> int:
        """The bytes that it takes. Its payload may have messages that were cut off."""
        return RUN_BYTES + ROW_BYTES * len(self.batch) + len(self.batch.payload)


class ReadCache:
    """Runs of at most `size_bytes` together. Any number of threads.

    Invariants:
        * runs of a stream do not overlap; `_firsts[stream]` is sorted;
        * `_runs` has the least recently used one first; `used_bytes` is the sum of their bytes.
    """

    def __init__(self, size_bytes: int, read_ahead: ReadAhead | None = None) -> None:
        self.size_bytes = size_bytes
        self.used_bytes = 0
        self.read_ahead = read_ahead or ReadAhead()
        self.hits = self.misses = self.read_ahead_messages = self.wasted_messages = 0
        self._firsts: dict[int, list[int]] = {}
        self._runs: OrderedDict[tuple[int, int], ReadRun] = OrderedDict()  # by stream and first offset
        self._lock = threading.Lock()

    def read(self, stream: int, offset: int, limit: int, fetch: Fetch) -> CachedMessages:
        """Up to `limit` messages from `offset` on, fewer only if `fetch` gives fewer.

        `fetch(offset, least, most, max_bytes)` reads from the device, and is called without a lock. It returns the
        stream's messages from `offset` on, without gaps: `least` of them if there are so many, and more up to `most` as
        long as all are within `max_bytes`.
        """
        found = self._lookup(stream, offset, limit)
        have = sum(map(len, found))
        self.hits += have
        if have < limit:
            at, missing = offset + have, limit - have
            depth = self.read_ahead.depth(stream, at, missing)
            batch = fetch(at, missing, depth, self.size_bytes // RUN_PART)
            assert not len(batch) or (int(batch.offsets[0]), int(batch.offsets[-1])) == (at, at + len(batch) - 1)
            fresh = min(len(batch), missing)
            self.misses += fresh
            self.read_ahead_messages += len(batch) - fresh
            if len(batch):
                self.put(stream, batch, read=at + fresh)
                self.read_ahead.reached(stream, at + len(batch), depth)
            found.append(batch.part(slice(fresh)))
        return _hit_of(found)

    def put(self, stream: int, batch: Batch, read: int) -> None:
        """Add a run of consecutive messages; those below `read` are being read now. Cached messages are cut off."""
        with self._lock:
            first, end = int(batch.offsets[0]), int(batch.offsets[-1]) + 1
            firsts = self._firsts.get(stream, [])
            index = bisect_right(firsts, first)
            low = self._runs[stream, firsts[index - 1]].end if index else first
            low, high = max(low, first), min(end, firsts[index] if index < len(firsts) else end)
            if low >= high:
                return
            part = batch.part(slice(low - first, high - first))
            run = ReadRun(stream, low, high, min(max(read, low), high), part)
            if run.bytes > self.size_bytes:
                return
            while self.used_bytes + run.bytes > self.size_bytes:
                self._remove(next(iter(self._runs.values())))
            insort(self._firsts.setdefault(stream, []), low)
            self._runs[stream, low] = run
            self.used_bytes += run.bytes

    def _lookup(self, stream: int, offset: int, limit: int) -> list[Batch]:
        """The cached messages from `offset` on, up to the first gap."""
        found: list[Batch] = []
        with self._lock:
            firsts = self._firsts.get(stream, [])
            index, at, end = bisect_right(firsts, offset) - 1, offset, offset + limit
            while 0 <= index < len(firsts) and at < end:
                run = self._runs[stream, firsts[index]]
                if not run.first <= at < run.end:
                    break
                until = min(end, run.end)
                found.append(run.batch.part(slice(at - run.first, until - run.first)))
                if fresh := max(until - max(run.read, at), 0):
                    self.read_ahead.judge(fresh, 0)
                run.read = max(run.read, until)
                self._runs.move_to_end((stream, run.first))
                at, index = until, index + 1
        return found

    def _remove(self, run: ReadRun) -> None:
        del self._runs[run.stream, run.first]
        self.used_bytes -= run.bytes
        firsts = self._firsts[run.stream]
        firsts.remove(run.first)
        if not firsts:
            del self._firsts[run.stream]
        if run.read < run.end:
            self.wasted_messages += run.end - run.read
            self.read_ahead.judge(0, run.end - run.read)

    def drop(self, stream: int, below: int) -> None:
        """Forget a stream's runs that end at or below an offset, for example after retention."""
        with self._lock:
            for run in [self._runs[stream, first] for first in self._firsts.get(stream, [])]:
                if run.end <= below:
                    self._remove(run)

    def stats(self) -> dict[str, object]:
        """Plain and nested figures."""
        return {
            "hits": self.hits,
            "misses": self.misses,
            "read_ahead_messages": self.read_ahead_messages,
            "wasted_messages": self.wasted_messages,
            "limit_messages": self.read_ahead.limit_messages,
            "runs": len(self._runs),
            "capacity_bytes": self.size_bytes,
            "used_bytes": self.used_bytes,
        }

    def close(self) -> None:
        """Free all memory. Reads go to the device from now on."""
        with self._lock:
            self.size_bytes = self.used_bytes = 0
            self._firsts.clear()
            self._runs.clear()


def _hit_of(found: Sequence[Batch]) -> CachedMessages:
    """Copies of the messages of all parts."""
    offsets: list[int] = []
    payloads: list[bytes] = []
    tags: list[int] = []
    for part in found:
        payload, starts = part.payload, part.starts
        places = zip(starts.tolist(), (starts + part.lengths).tolist(), strict=True)
        offsets += part.offsets.tolist()
        payloads += [bytes(payload[low:high]) for low, high in places]
        tags += part.tags.tolist()
    return CachedMessages(offsets, payloads, tags)
