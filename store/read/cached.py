"""Reads of a store that has caches: the ring, the message cache, the read cache, the kept edges, and the device.

A cache is asked for bytes alone. Whether a message may be read, the log says; its checksum is the log's as well, or it
is in the message's tag, which was made of the log's table together with the bytes: of the checksum, the stream and the
offset, so that another message's bytes do not match. What a cache has wrong is read from the log. One that fails is
given up, whatever its error: the log has everything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Sequence
from functools import partial
from itertools import accumulate

import numpy as np

from ...cache import NO_HIT, Batch, CachedMessages, MessageCache, ReadCache
from ..errors import OffsetOutOfRange, StoreError
from ..format.layout import checksum64
from ..log.streams import Stream
from ..segment.part import Part, checksums_of, cut_parts, end_of, lengths_of, offsets_of, piece_of, positions_of
from .caches import Caches
from .feed import tag_of_stream
from .finder import Finder, can_be_read
from .log_bytes import LOW_32, Fetched, LogBytes, are_right
from .read_counters import ReadCounters
from .reader import Reader


def cached_reader(caches: Caches) -> Reader:
    """A reader that asks the caches that there are."""
    counters, finder = ReadCounters(), Finder()
    log, messages, reads = LogBytes(counters, finder), caches.messages, caches.reads
    below: list[Source] = []
    if messages is not None and messages.edges is not None:
        below.append(EdgeSource(caches, messages, counters))
    if reads is not None:
        below.insert(0, ReadCacheSource(caches, reads, finder, CachedBytes(below, log, counters)))
    all_below = CachedBytes(below, log, counters)
    if messages is None:
        return Reader(finder, counters, all_below)
    source = MessageCacheSource(caches, messages, counters)
    first = MessagesFirst(caches, messages, source, finder, all_below)
    return Reader(finder, counters, CachedBytes([source, *below], log, counters), first)


class Source(ABC):
    """A cache that may have the bytes of messages that were found in the log. Any number of threads may use it."""

    @abstractmethod
    def payloads(self, stream: Stream, part: Part) -> list[bytes] | dict[int, bytes] | None:
        """The bytes of a part's messages, not checked yet: of all, of some by their index in it, or of none (None).

        It counts what it gives, but not among all messages.
        """


class CachedBytes:
    """`Bytes` of the ring, then of caches, each for the messages that the ones before did not have, then of the log."""

    is_log = False

    def __init__(self, sources: Sequence[Source], log: LogBytes, counters: ReadCounters) -> None:
        self.log = log
        self.counters = counters
        self._sources = tuple(sources)

    def clear(self) -> None:
        """Let go of the memory that is kept for the next readers."""
        self.log.clear()

    def fetch(self, stream: Stream, parts: list[Part]) -> Fetched:
        """See `Bytes`. There are no tables of places beside caches."""
        datas, ring = list[bytes](), stream.lane.ring
        for part in cut_parts(ring, parts):
            is_recent = self.log.is_recent(ring, part)
            datas += self.log.fetch(stream, [part])[0].values() if is_recent else self._of_part(stream, part, 0)
        return dict(enumerate(datas)), True

    def _of_part(self, stream: Stream, part: Part, begin: int) -> list[bytes]:
        """The messages of a part, from the caches from `begin` on, and the log."""
        for nth, source in enumerate(self._sources[begin:], begin):
            found = source.payloads(stream, part)
            if found is None:
                continue
            if not isinstance(found, dict):
                if are_right(found, part):
                    self._count(found)
                    return found
                found = dict(enumerate(found))
            return self._completed(stream, part, found, nth + 1)
        datas = self.log.read(stream, part)
        self._count(datas)
        return datas

    def _count(self, found: Collection[bytes]) -> None:
        self.counters.messages += len(found)
        self.counters.bytes += sum(map(len, found))

    def _completed(self, stream: Stream, part: Part, found: dict[int, bytes], begin: int) -> list[bytes]:
        """A part of which some messages are found, the others from what is asked from `begin` on."""
        missing = []
        for index, checksum in enumerate(checksums_of(part)):
            if index not in found:
                missing.append(index)
            elif checksum64(found[index]) & LOW_32 != checksum:
                missing.append(index)
                self.counters.unsound_messages += 1
                del found[index]
        self._count(found.values())
        for low, high in _stretches(missing):
            found.update(enumerate(self._of_part(stream, piece_of(part, low, high), begin), low))
        return [found[index] for index in range(len(part[2]))]


class MessageCacheSource(Source):
    """The message cache: it may have any of a part's messages."""

    def __init__(self, caches: Caches, messages: MessageCache, counters: ReadCounters) -> None:
        self._caches = caches
        self._messages = messages
        self._counters = counters

    def payloads(self, stream: Stream, part: Part) -> list[bytes] | dict[int, bytes] | None:
        """Those that it has."""
        hit = self._read(self._caches.key(stream.lane, stream.number), part[4], len(part[2]))
        if not hit.offsets:
            return None
        self._count(hit)
        if len(hit.offsets) == len(part[2]):
            return list(hit.payloads)
        return {at - part[4]: data for at, data in zip(hit.offsets, hit.payloads, strict=True)}

    def sound(self, stream: Stream, offset: int, limit: int) -> CachedMessages:
        """What it has of these messages if their tags say that it is right, without a look at the log."""
        key = self._caches.key(stream.lane, stream.number)
        hit = self._read(key, offset, limit)
        name = tag_of_stream(key)
        for at, checksum, tag in zip(hit.offsets, map(checksum64, hit.payloads), hit.tags, strict=True):
            if (checksum ^ at ^ name) & LOW_32 != tag:  # see `tags_of`
                self._counters.unsound_messages += 1
                return NO_HIT
        self._count(hit)
        return hit

    def _read(self, key: int, first: int, limit: int) -> CachedMessages:
        return self._caches.attempt(lambda: self._messages.read(key, first, limit), NO_HIT)

    def _count(self, hit: CachedMessages) -> None:
        self._counters.cached_messages += len(hit.offsets)
        self._counters.cached_bytes += sum(map(len, hit.payloads))


class ReadCacheSource(Source):
    """The read cache, which reads ahead: it has all of a part, or nothing of it."""

    def __init__(self, caches: Caches, reads: ReadCache, finder: Finder, below: CachedBytes) -> None:
        """`below`: where it reads from."""
        self._caches = caches
        self._reads = reads
        self._finder = finder
        self._below = below

    def payloads(self, stream: Stream, part: Part) -> list[bytes] | None:
        """All of the part, or None. What was not read ahead it has read just now."""
        key, misses, count = self._caches.key(stream.lane, stream.number), self._reads.misses, len(part[2])
        try:
            fetch = partial(self._fetch, stream)
            hit = self._caches.attempt(lambda: self._reads.read(key, part[4], count, fetch), NO_HIT)
        except (OSError, StoreError):
            return None  # perhaps only of later bytes; else the log says so
        if len(hit.offsets) != count:
            return None
        fresh = min(self._reads.misses - misses, count)  # approximate where threads race
        counters = self._below.counters
        counters.read_ahead_messages += count - fresh
        counters.read_ahead_bytes += sum(map(len, hit.payloads[: count - fresh]))
        return list(hit.payloads)

    def _fetch(self, stream: Stream, offset: int, least: int, most: int, max_bytes: int) -> Batch:
        """`least` messages from `offset` on, and up to `most` within `max_bytes`; no gaps."""
        found, at = list[Part](), offset
        for part in self._finder.parts(stream, stream.lane.view, offset, most):
            if part[4] != at:
                break  # a gap that a repair left
            found.append(part)
            at = end_of(part)
        sizes = [*accumulate([length for part in found for length in lengths_of(part)])]
        count, parts, checksums = max(least, bisect_right(sizes, max_bytes)), list[Part](), list[int]()
        for part in found:
            if count > 0:
                parts.append(piece_of(part, 0, count))
                checksums += checksums_of(parts[-1])
                count -= len(part[2])
        datas = [*self._below.fetch(stream, parts)[0].values()]
        lengths = np.fromiter(map(len, datas), np.int64, len(datas))
        self._below.counters.messages -= len(datas)  # they count once they are given
        self._below.counters.bytes -= int(lengths.sum())
        offsets = np.arange(offset, offset + len(datas))
        return Batch.of(np.zeros(len(datas), np.int64), offsets, lengths, b"".join(datas), tags=checksums)


class EdgeSource(Source):
    """The fragments that are kept of messages, and the device for only what lies between them (R12)."""

    def __init__(self, caches: Caches, messages: MessageCache, counters: ReadCounters) -> None:
        self._caches = caches
        self._messages = messages
        self._counters = counters

    def payloads(self, stream: Stream, part: Part) -> list[bytes] | None:
        """All of the part, or None if no fragment is kept of any message. Raises OSError."""
        key, first, lengths = self._caches.key(stream.lane, stream.number), part[4], lengths_of(part)
        edges = self._caches.attempt(lambda: self._messages.read_edges(key, first, len(lengths)), None)
        if edges is None or not edges.offsets:
            return None
        kept = {at: pair for at, *pair in zip(edges.offsets, edges.heads, edges.tails, strict=True)}
        starts, between, ends = [], [], []
        for at, (start, length) in enumerate(zip(positions_of(part), lengths, strict=True), first):
            head, tail = kept.get(at, (b"", b""))
            if len(head) + len(tail) > length:
                head = tail = b""  # of another life: the checksum would say so
            starts.append(start + len(head))
            between.append(length - len(head) - len(tail))
            ends.append((head, tail))
        datas, size, calls = part[0].read_places(starts, between)
        self._counters.count_device(between, min(lengths), size, calls)
        return [b"".join((head, data, tail)) for (head, tail), data in zip(ends, datas, strict=True)]


class MessagesFirst:
    """The short way of `get_range`: the message cache is asked first, and its messages are not looked up in the log.

    It also tells the cache how far a stream was read.
    """

    def __init__(
        self, caches: Caches, messages: MessageCache, source: MessageCacheSource, finder: Finder, below: CachedBytes
    ) -> None:
        """`below` has what the message cache does not have."""
        self._caches = caches
        self._messages = messages
        self._source = source
        self._finder = finder
        self._below = below
        self._releases = messages.config.readers == "once"

    def get_range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes] | None:
        """{index: data}; None where only the log can say what there is: nothing, or an error."""
        view, number = stream.lane.view, stream.number
        if number < 0 or limit <= 0 or not can_be_read(stream.lane, view, number, offset):
            return None
        hit, counters = self._source.sound(stream, offset, limit), self._below.counters
        counters.messages += len(hit.offsets)
        counters.bytes += sum(map(len, hit.payloads))
        if len(hit.offsets) == limit:
            return dict(enumerate(hit.payloads))
        found = {at - offset: data for at, data in zip(hit.offsets, hit.payloads, strict=True)}
        begin = offset
        for end in [*hit.offsets, offset + limit]:
            if end > begin:
                try:
                    found |= self._hole(stream, begin, end, offset)
                except OffsetOutOfRange:  # retention came in between: one view of all, or the error for the caller
                    return None
            begin = end + 1
        return dict(sorted(found.items())) if hit.offsets else found

    def _hole(self, stream: Stream, begin: int, end: int, offset: int) -> dict[int, bytes]:
        """Messages that the message cache does not have."""
        found: dict[int, bytes] = {}
        for parts in self._finder.steps(stream, stream.lane.view, begin, end - begin):
            datas, _ = self._below.fetch(stream, parts)
            found.update(zip([at - offset for at in offsets_of(parts, len(datas))], datas.values(), strict=True))
        return found

    def passed(self, stream: Stream, offset: int) -> None:
        """Somebody has read a stream up to an offset."""
        cursors = self._messages.cursors
        if cursors is None and not self._releases:
            return
        key = self._caches.key(stream.lane, stream.number)
        passed = self._messages.release if cursors is None else cursors.move
        self._caches.attempt(lambda: passed(key, offset), None)


def _stretches(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """[low, high) of each stretch of neighbours; the indexes ascend."""
    found: list[tuple[int, int]] = []
    for index in indexes:
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found
