"""The read cache: what was read from the device, and read ahead of its reader.

Messages come in *runs*: neighbours of one stream that one read brought in. A run lives in a block chain of its own,
so that runs of one stream can come and go in any order.

What a scan reads is read once; so a run is *protected* only when some message of it is read again. A scan of
everything then passes through what is not protected, and leaves the hot set alone. A run that was thrown away a short
while ago and is read once more has been read again as well: without that a new hot set, larger than what is not
protected, would never take over from an old one. As many of these are remembered as there are runs, so that a second
scan does not count as that.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count, takewhile

from .batch import Batch
from .block_cache import BLOCK_BYTES, NO_HIT, BlockCache, Hit
from .read_ahead import ReadAhead
from .tier import Tier

Fetch = Callable[[int, int, int, int], Batch]
PROTECTED_PART = 0.8  # of the blocks, at most
RUN_PART = 16  # one run takes at most this part of the cache


@dataclass(slots=True)
class Run:
    """Messages `first` .. `end` - 1 of a stream, all of them, in chain `number`; those below `read` were read."""

    number: int
    stream: int
    first: int
    end: int
    read: int
    blocks: int


class ReadCache:
    """Runs under a policy of two lists: protected ones, and the rest. Any number of threads.

    Invariants:
        * runs of a stream do not overlap; `_firsts[stream]` is sorted;
        * a run is in exactly one of the lists, least recently used first;
        * a number is a run's, or in `_numbers`: so there are never more of them than there were runs at once.
    """

    def __init__(
        self, tiers: Iterable[Tier], block_bytes: int = BLOCK_BYTES, read_ahead: ReadAhead | None = None
    ) -> None:
        self.cache = BlockCache(tiers, block_bytes, evict=False, remainders=False)
        self.read_ahead = read_ahead or ReadAhead()
        self.hits = self.misses = self.read_ahead_messages = self.wasted_messages = 0
        self._firsts: dict[int, list[int]] = {}
        self._runs: dict[tuple[int, int], Run] = {}
        self._rest: OrderedDict[int, Run] = OrderedDict()
        self._protected: OrderedDict[int, Run] = OrderedDict()
        self._protected_blocks = 0
        self._gone: OrderedDict[tuple[int, int], None] = OrderedDict()  # runs that were read and thrown away
        self._numbers: list[int] = []  # of chains, to be used again
        self._fresh_numbers = count()
        self._lock = threading.Lock()

    def read(self, stream: int, offset: int, limit: int, fetch: Fetch) -> Hit:
        """Up to `limit` messages from `offset` on, fewer only where `fetch` gives fewer.

        `fetch(offset, least, most, max_bytes)` reads from the device, and is called without a lock. It gives the
        stream's messages from just `offset` on, without gaps: `least` of them if there are so many, and further ones
        up to `most` as long as all are within `max_bytes`.
        """
        found = self._lookup(stream, offset, limit)
        have = len(found.offsets)
        self.hits += have
        if have == limit:
            return found
        at, missing = offset + have, limit - have
        depth = self.read_ahead.depth(stream, at, missing)
        batch = fetch(at, missing, depth, self.cache.capacity_bytes // RUN_PART)
        assert not len(batch) or (int(batch.offsets[0]), int(batch.offsets[-1])) == (at, at + len(batch) - 1)
        fresh = min(len(batch), missing)
        self.misses += fresh
        self.read_ahead_messages += len(batch) - fresh
        if len(batch):
            self.put(stream, batch, read=at + fresh)
            self.read_ahead.reached(stream, at + len(batch), depth)
        return _joined(found, batch, fresh)

    def put(self, stream: int, batch: Batch, read: int) -> None:
        """A run of consecutive messages; those below `read` are being read now. What is cached already is cut off."""
        with self._lock:
            if self.cache.closed:
                return
            first, end = int(batch.offsets[0]), int(batch.offsets[-1]) + 1
            firsts = self._firsts.setdefault(stream, [])
            index = bisect_right(firsts, first)
            low = self._runs[stream, firsts[index - 1]].end if index else first
            low, high = max(low, first), min(end, firsts[index] if index < len(firsts) else end)
            if low < high:
                self._add(stream, batch.part(slice(low - first, high - first)), low, high, read)
            if not self._firsts.get(stream, True):
                del self._firsts[stream]

    def _add(self, stream: int, batch: Batch, first: int, end: int, read: int) -> None:
        blocks = self.cache.blocks_of(batch.lengths)
        if blocks > self.cache.space.blocks:
            return
        while self.cache.space.free < blocks:
            self._evict(self._rest or self._protected)
        number = self._numbers.pop() if self._numbers else next(self._fresh_numbers)
        chain = Batch(batch.streams * 0 + number, batch.offsets, batch.lengths, batch.starts, batch.tags, batch.payload)
        is_filled = False
        try:
            is_filled = bool(self.cache.fill(chain).all())
        finally:
            if not is_filled:  # refused, or without memory: the number is as free as before
                self.cache.drop(number)
                self._numbers.append(number)
        if not is_filled:
            return
        run = Run(number, stream, first, end, min(max(read, first), end), blocks)
        insort(self._firsts.setdefault(stream, []), first)
        self._runs[stream, first] = self._rest[number] = run
        if (stream, first) in self._gone:
            del self._gone[stream, first]
            self._protect(run)

    def _lookup(self, stream: int, offset: int, limit: int) -> Hit:
        """The messages from `offset` on that are there, up to the first gap."""
        found = Hit([], [], [])
        with self._lock:
            firsts = self._firsts.get(stream, [])
            index, at, end = bisect_right(firsts, offset) - 1, offset, offset + limit
            while 0 <= index < len(firsts) and at < end:
                run = self._runs[stream, firsts[index]]
                if not run.first <= at < run.end:
                    break
                until = min(end, run.end)
                hit = self.cache.read(run.number, at, until - at)
                found = Hit([*found.offsets, *hit.offsets], [*found.payloads, *hit.payloads], [*found.tags, *hit.tags])
                self._touch(run, at, until)
                at, index = until, index + 1
        return found if found.offsets else NO_HIT

    def _touch(self, run: Run, low: int, high: int) -> None:
        """[low, high) of a run were read: for the first time, or again, which protects it."""
        again, fresh = low < run.read, max(high - max(run.read, low), 0)
        run.read = max(run.read, high)
        if fresh:
            self.read_ahead.judge(fresh, 0)
        if run.number in self._protected:
            self._protected.move_to_end(run.number)
        elif again:
            self._protect(run)
        else:
            self._rest.move_to_end(run.number)

    def _protect(self, run: Run) -> None:
        """Protect a run; the least recently used ones that are too many then are no longer."""
        self._protected[run.number] = self._rest.pop(run.number)
        self._protected_blocks += run.blocks
        while self._protected_blocks > PROTECTED_PART * self.cache.space.blocks and len(self._protected) > 1:
            number, other = self._protected.popitem(last=False)
            self._protected_blocks -= other.blocks
            self._rest[number] = other

    def _evict(self, runs: OrderedDict[int, Run]) -> None:
        """The least recently used run of a list goes."""
        number, run = runs.popitem(last=False)
        if run.read > run.first:
            self._gone[run.stream, run.first] = None
            while len(self._gone) > len(self._runs):
                self._gone.popitem(last=False)
        if runs is self._protected:
            self._protected_blocks -= run.blocks
        self.cache.drop(number)
        self._numbers.append(number)
        firsts = self._firsts[run.stream]
        del firsts[bisect_right(firsts, run.first) - 1], self._runs[run.stream, run.first]
        if not firsts:
            del self._firsts[run.stream]
        if run.read < run.end:
            self.wasted_messages += run.end - run.read
            self.read_ahead.judge(0, run.end - run.read)

    def drop(self, stream: int, below: int) -> None:
        """Forget a stream's runs that end at or below an offset, such as one that retention moved to."""
        with self._lock:
            firsts = self._firsts.get(stream, [])
            gone = list(takewhile(lambda run: run.end <= below, [self._runs[stream, first] for first in firsts]))
            for run in gone:
                runs = self._protected if run.number in self._protected else self._rest
                runs.move_to_end(run.number, last=False)
                self._evict(runs)

    def stats(self) -> dict[str, object]:
        """Plain and nested."""
        return {
            "hits": self.hits,
            "misses": self.misses,
            "read_ahead_messages": self.read_ahead_messages,
            "wasted_messages": self.wasted_messages,
            "limit_messages": self.read_ahead.limit_messages,
            "runs": len(self._rest) + len(self._protected),
            "protected_runs": len(self._protected),
            **self.cache.stats(),
        }

    def close(self) -> None:
        """Let go of everything. Reads go to the device from now on."""
        with self._lock:
            self._firsts, self._runs = {}, {}
            self._gone.clear()
            self._rest.clear()
            self._protected.clear()
            self.cache.close()


def _joined(found: Hit, batch: Batch, count: int) -> Hit:
    """What was cached and the first messages of what was fetched."""
    starts = batch.starts[:count].tolist()
    lengths = batch.lengths[:count].tolist()
    payload = batch.payload
    return Hit(
        [*found.offsets, *batch.offsets[:count].tolist()],
        [*found.payloads, *(bytes(payload[at : at + size]) for at, size in zip(starts, lengths, strict=True))],
        [*found.tags, *batch.tags[:count].tolist()],
    )
