"""Reads of a store that has caches: the ring, the message cache, the read cache, the kept edges, and the device.

A cache is asked for bytes alone. Whether a message may be read, the log says; its checksum is the log's as well, or it
is in the message's tag, which was made of the log's table together with the bytes: of the checksum, the stream and the
offset, so that another message's bytes do not match. What a cache has wrong is read from the log. One that fails is
given up, whatever its error: the log has everything.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...cache import NO_HIT, Batch, CachedMessages, MessageCache, ReadCache
from ..errors import OffsetOutOfRange, StoreError
from ..format.layout import checksum64
from ..log.streams import Stream
from ..segment.run import Run
from .caches import Caches
from .feed import tag_of_stream
from .finder import Finder, can_be_read
from .reader import Reader
from .sources import LOW_32, DeviceSource, ReadCounters, RingSource, Source, Sources


def cached_reader(caches: Caches) -> Reader:
    """A reader that asks the caches that there are."""
    counters, finder = ReadCounters(), Finder()
    ring, device = RingSource(counters), DeviceSource(counters)
    messages, reads = caches.messages, caches.reads
    below: list[Source] = [device]
    if messages is not None and messages.edges is not None:
        below.insert(0, EdgeSource(caches, messages, device))
    if reads is not None:
        fetched = Sources([ring, *below], finder, counters)
        below.insert(0, ReadCacheSource(caches, reads, fetched))
    behind = Sources([ring, *below], finder, counters)
    if messages is None:
        return Reader(behind)
    source = MessageCacheSource(caches, messages, counters)
    return Reader(Sources([ring, source, *below], finder, counters), MessagesFirst(caches, messages, source, behind))


class MessageCacheSource(Source):
    """The message cache: it may have any of a run's messages."""

    def __init__(self, caches: Caches, messages: MessageCache, counters: ReadCounters) -> None:
        self._caches = caches
        self._messages = messages
        self._counters = counters

    def payloads(self, stream: Stream, run: Run) -> list[bytes] | dict[int, bytes] | None:
        """Those that it has."""
        first, limit = run.offsets[0], run.offsets[-1] + 1 - run.offsets[0]
        hit = self._read(self._caches.key(stream.lane, stream.number), first, limit)
        if not hit.offsets:
            return None
        self._count(hit)
        if len(hit.offsets) == len(run) == limit:
            return list(hit.payloads)
        kept = dict(zip(hit.offsets, hit.payloads, strict=True))
        return {index: kept[at] for index, at in enumerate(run.offsets) if at in kept}

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
    """The read cache, which reads ahead: it has a run without gaps, or nothing of it."""

    def __init__(self, caches: Caches, reads: ReadCache, below: Sources) -> None:
        """`below`: where it reads from."""
        self._caches = caches
        self._reads = reads
        self._below = below

    def payloads(self, stream: Stream, run: Run) -> list[bytes] | None:
        """All of the run, or None. What was not read ahead it has read just now."""
        if run.offsets[-1] - run.offsets[0] + 1 != len(run):
            return None
        key, misses = self._caches.key(stream.lane, stream.number), self._reads.misses
        try:
            fetch = partial(self._fetch, stream)
            hit = self._caches.attempt(lambda: self._reads.read(key, run.offsets[0], len(run), fetch), NO_HIT)
        except (OSError, StoreError):
            return None  # perhaps only of later bytes; else the log says so
        if len(hit.offsets) != len(run):
            return None
        fresh = min(self._reads.misses - misses, len(run))  # approximate where threads race
        counters = self._below.counters
        counters.read_ahead_messages += len(run) - fresh
        counters.read_ahead_bytes += sum(map(len, hit.payloads[: len(run) - fresh]))
        return list(hit.payloads)

    def _fetch(self, stream: Stream, offset: int, least: int, most: int, max_bytes: int) -> Batch:
        """`least` messages from `offset` on, and up to `most` within `max_bytes`; no gaps."""
        datas: list[bytes] = []
        checksums: list[int] = []
        at, left = offset, max_bytes
        for whole in self._below.finder.runs(stream, offset, most):
            if whole.offsets[0] != at or whole.offsets[-1] - at + 1 != len(whole):
                break  # a gap that a repair left
            needed = min(max(least - (at - offset), 0), len(whole))
            left -= sum(whole.places[1][:needed])
            more, left = whole.part(needed, len(whole)).cut(left, has_some=True)
            run = whole.part(0, needed + len(more))
            if len(run):
                datas += self._below.payloads(stream, run)
            checksums += run.places[2]
            at += len(run)
            if len(run) < len(whole):
                break
        lengths = np.fromiter(map(len, datas), np.int64, len(datas))
        return Batch.of(np.zeros(len(datas), np.int64), np.arange(offset, at), lengths, b"".join(datas), tags=checksums)


class EdgeSource(Source):
    """The fragments that are kept of messages, and the device for only what lies between them (R12)."""

    def __init__(self, caches: Caches, messages: MessageCache, device: DeviceSource) -> None:
        self._caches = caches
        self._messages = messages
        self._device = device

    def payloads(self, stream: Stream, run: Run) -> list[bytes] | None:
        """All of the run, or None if no fragment is kept of any message. Raises OSError."""
        first, limit = run.offsets[0], run.offsets[-1] + 1 - run.offsets[0]
        key = self._caches.key(stream.lane, stream.number)
        edges = self._caches.attempt(lambda: self._messages.read_edges(key, first, limit), None)
        if edges is None or not edges.offsets:
            return None
        kept = {at: pair for at, *pair in zip(edges.offsets, edges.heads, edges.tails, strict=True)}
        starts, lengths, ends = [], [], []
        for at, start, length in zip(run.offsets, run.places[0], run.places[1], strict=True):
            head, tail = kept.get(at, (b"", b""))
            if len(head) + len(tail) > length:
                head = tail = b""  # of another life: the checksum would say so
            starts.append(start + len(head))
            lengths.append(length - len(head) - len(tail))
            ends.append((head, tail))
        between = Run(run.segment, run.source, run.offsets, run.entries, (starts, lengths, run.places[2]), run.heads)
        datas = self._device.payloads(stream, between, run.places[1])
        return [b"".join((head, data, tail)) for (head, tail), data in zip(ends, datas, strict=True)]


class MessagesFirst:
    """The short way of `get_range`: the message cache is asked first, and its messages are not looked up in the log.

    It also tells the cache how far a stream was read.
    """

    def __init__(self, caches: Caches, messages: MessageCache, source: MessageCacheSource, behind: Sources) -> None:
        """`behind`: the sources of what the message cache does not have."""
        self._caches = caches
        self._messages = messages
        self._source = source
        self._behind = behind
        self._releases = messages.config.readers == "once"

    def get_range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes] | None:
        """{index: data}; None where only the log can say what there is: nothing, or an error."""
        view, number = stream.lane.view, stream.number
        if number < 0 or limit <= 0 or not can_be_read(stream.lane, view, number, offset):
            return None
        hit, counters = self._source.sound(stream, offset, limit), self._behind.counters
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
        counters = self._behind.counters
        for run in self._behind.finder.runs(stream, begin, end - begin):
            datas = self._behind.payloads(stream, run)
            counters.messages += len(datas)
            counters.bytes += sum(run.places[1])
            found.update(zip([at - offset for at in run.offsets], datas, strict=True))
        return found

    def passed(self, stream: Stream, offset: int) -> None:
        """Somebody has read a stream up to an offset."""
        cursors = self._messages.cursors
        if cursors is None and not self._releases:
            return
        key = self._caches.key(stream.lane, stream.number)
        passed = self._messages.release if cursors is None else cursors.move
        self._caches.attempt(lambda: passed(key, offset), None)
