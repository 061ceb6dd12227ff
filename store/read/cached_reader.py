"""Reads of a store that has caches: the ring first, then the message cache, the read cache, and the device.

A cache is asked for bytes alone. Whether a message may be read, the log says; its checksum is the log's as well, or it
is in the message's tag, which was made of the log's table together with the bytes: of the checksum, the stream and the
offset, so that another message's bytes do not match. What a cache has wrong is read from the log. One that fails is
given up, whatever its error: the log has everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ...cache import NO_HIT, Batch, Edges, Hit
from ..errors import OffsetOutOfRange, StoreError
from ..format.layout import checksum64
from ..log.streams import Stream
from ..segment.run import Run
from .caches import Caches
from .feed import tag_of_stream
from .finder import can_be_read
from .message import Message, MessageBatch
from .reader import LOW_32, Reader

READ_THROUGH = "read"  # the cursor that plain reads move (R20)


class CachedReader(Reader):
    """A reader with caches. Any number of threads may use it."""

    def __init__(self, caches: Caches) -> None:
        super().__init__()
        self._caches = caches
        config = caches.messages.config if caches.messages is not None else None
        self._releases = config is not None and config.release_on_read
        self._follows = config is not None and config.active_backlog_messages > 0

    def get_range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes]:
        """{index: data}: index 0 is the message at `offset`."""
        found = super().get_range(stream, offset, limit)
        if found and (self._releases or self._follows):
            self._passed(stream, offset + next(reversed(found)) + 1)
        return found

    def read(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> list[Message]:
        """Messages in offset order."""
        found = super().read(stream, offset, limit, max_bytes)
        if found and (self._releases or self._follows):
            self._passed(stream, found[-1].offset + 1)
        return found

    def read_batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch:
        """The same in columns over one buffer."""
        found = super().read_batch(stream, offset, limit, max_bytes)
        if len(found) and (self._releases or self._follows):
            self._passed(stream, int(found.offsets[-1]) + 1)
        return found

    def _passed(self, stream: Stream, offset: int) -> None:
        """Somebody has read a stream up to an offset."""
        messages, key = self._caches.messages, self._caches.key(stream.lane, stream.number)
        if messages is None:
            return
        try:
            if self._follows and messages.cursors is not None:
                messages.cursors.move(key, READ_THROUGH, offset)
            if self._releases:
                messages.release(key, offset)
        except Exception as error:
            self._caches.give_up(error)

    # -- the short way: no place in the log is looked up for what is cached ---------------------------

    def _range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes]:
        view, number = stream.lane.view, stream.number
        if number < 0 or limit <= 0 or not can_be_read(stream.lane, view, number, offset):
            return super()._range(stream, offset, limit)  # empty, or an error
        hit = self._hit(stream, offset, limit)
        if len(hit.offsets) == limit:
            return dict(enumerate(hit.payloads))
        found = {at - offset: data for at, data in zip(hit.offsets, hit.payloads, strict=True)}
        begin = offset
        for end in [*hit.offsets, offset + limit]:
            if end > begin:
                try:
                    found |= self._hole(stream, begin, end, offset)
                except OffsetOutOfRange:  # retention came in between: one view of all, or the error for the caller
                    return super()._range(stream, offset, limit)
            begin = end + 1
        return dict(sorted(found.items())) if hit.offsets else found

    def _hit(self, stream: Stream, offset: int, limit: int) -> Hit:
        """What the message cache has, checked and counted."""
        caches = self._caches
        if caches.messages is None:
            return NO_HIT
        key = caches.key(stream.lane, stream.number)
        try:
            hit = caches.messages.read(key, offset, limit)
        except Exception as error:
            caches.give_up(error)
            return NO_HIT
        name = tag_of_stream(key)
        for at, checksum, tag in zip(hit.offsets, map(checksum64, hit.payloads), hit.tags, strict=True):
            if (checksum ^ at ^ name) & LOW_32 != tag:  # see `tags_of`
                self.counters.unsound_messages += 1
                return NO_HIT
        size = sum(map(len, hit.payloads))
        self.counters.messages += len(hit.offsets)
        self.counters.bytes += size
        self._count_cached(len(hit.offsets), size)
        return hit

    def _hole(self, stream: Stream, begin: int, end: int, offset: int) -> dict[int, bytes]:
        """Messages that the message cache does not have."""
        found: dict[int, bytes] = {}
        for run in self.runs(stream, begin, end - begin):
            datas = self._recent(stream, run)
            if datas is None:
                datas = self._below(stream, run)
            else:
                self._check(stream, run, datas)
            self._count(run)
            found.update(zip([at - offset for at in run.offsets], datas, strict=True))
        return found

    # -- the long way: a run is known, and wanted whole -----------------------------------------------

    def _stored(self, stream: Stream, run: Run) -> list[bytes]:
        messages = self._caches.messages
        if messages is None:
            return self._below(stream, run)
        first, limit = run.offsets[0], run.offsets[-1] + 1 - run.offsets[0]
        try:
            hit = messages.read(self._caches.key(stream.lane, stream.number), first, limit)
        except Exception as error:
            self._caches.give_up(error)
            hit = NO_HIT
        if not hit.offsets:
            return self._below(stream, run)
        if len(hit.offsets) == len(run) and self._are_sound(run, hit.payloads):
            self._count_cached(len(run), sum(run.places[1]))
            return list(hit.payloads)
        return self._completed(stream, run, hit)

    def _completed(self, stream: Stream, run: Run, hit: Hit) -> list[bytes]:
        """A run of which the message cache has some."""
        found = dict(zip(hit.offsets, hit.payloads, strict=True))
        missing = []
        for index, (at, checksum) in enumerate(zip(run.offsets, run.places[2], strict=True)):
            if at not in found or checksum64(found[at]) & LOW_32 != checksum:
                missing.append(index)
        lengths = run.places[1]
        self._count_cached(len(run) - len(missing), sum(lengths) - sum([lengths[index] for index in missing]))
        for low, high in _stretches(missing):
            part = run.part(low, high)
            found.update(zip(part.offsets, self._below(stream, part), strict=True))
        return [found[at] for at in run.offsets]

    def _count_cached(self, messages: int, size: int) -> None:
        self.counters.cached_messages += messages
        self.counters.cached_bytes += size

    # -- below the message cache ----------------------------------------------------------------------

    def _below(self, stream: Stream, run: Run) -> list[bytes]:
        """A run's messages from the read cache, or from the device and what is kept of their edges; checked."""
        reads = self._caches.reads
        if reads is not None and run.offsets[-1] - run.offsets[0] + 1 == len(run):
            key, misses = self._caches.key(stream.lane, stream.number), reads.misses
            try:
                hit = reads.read(key, run.offsets[0], len(run), partial(self.fetch, stream))
            except (OSError, StoreError):
                hit = NO_HIT  # perhaps only of what lies behind; else the log says so
            except Exception as error:  # such as what an interrupt left half done
                self._caches.give_up(error)
                hit = NO_HIT
            if len(hit.offsets) == len(run) and self._are_sound(run, hit.payloads):
                fresh = min(reads.misses - misses, len(run))  # approximate where threads race
                self.counters.read_ahead_messages += len(run) - fresh
                self.counters.read_ahead_bytes += sum(map(len, hit.payloads[: len(run) - fresh]))
                return list(hit.payloads)
        return self._from_device(stream, run)

    def _are_sound(self, run: Run, datas: Sequence[bytes]) -> bool:
        """Whether a cache gave what the log has."""
        for data, checksum in zip(datas, run.places[2], strict=True):
            if checksum64(data) & LOW_32 != checksum:
                self.counters.unsound_messages += 1
                return False
        return True

    def _from_device(self, stream: Stream, run: Run) -> list[bytes]:
        messages = self._caches.messages
        if messages is not None and messages.edges is not None:
            first, limit = run.offsets[0], run.offsets[-1] + 1 - run.offsets[0]
            edges = None
            try:
                edges = messages.read_edges(self._caches.key(stream.lane, stream.number), first, limit)
            except Exception as error:
                self._caches.give_up(error)
            found = self._between_edges(run, edges) if edges is not None and edges.offsets else None
            if found is not None:
                return found
        return super()._stored(stream, run)

    def _between_edges(self, run: Run, edges: Edges) -> list[bytes] | None:
        """Read only what lies between the fragments that are kept (R12); None if that makes no sound messages."""
        kept = {at: pair for at, *pair in zip(edges.offsets, edges.heads, edges.tails, strict=True)}
        starts, lengths, ends = [], [], []
        for at, start, length in zip(run.offsets, run.places[0], run.places[1], strict=True):
            head, tail = kept.get(at, (b"", b""))
            if len(head) + len(tail) > length:
                head = tail = b""  # of another life: the checksum would say so
            starts.append(start + len(head))
            lengths.append(length - len(head) - len(tail))
            ends.append((head, tail))
        datas = self._device(run.segment, starts, lengths, run.places[1])
        found = [b"".join((head, data, tail)) for (head, tail), data in zip(ends, datas, strict=True)]
        return found if self._are_sound(run, found) else None

    def fetch(self, stream: Stream, offset: int, least: int, most: int, max_bytes: int) -> Batch:
        """For the read cache: `least` messages from `offset` on, and up to `most` within `max_bytes`; no gaps."""
        datas: list[bytes] = []
        checksums: list[int] = []
        at, left = offset, max_bytes
        for whole in self.runs(stream, offset, most):
            if whole.offsets[0] != at or whole.offsets[-1] - at + 1 != len(whole):
                break  # a gap that a repair left
            needed = min(max(least - (at - offset), 0), len(whole))
            left -= sum(whole.places[1][:needed])
            more, left = whole.part(needed, len(whole)).cut(left, has_some=True)
            run = whole.part(0, needed + len(more))
            found = self._recent(stream, run) if len(run) else []
            if found is None:
                found = self._from_device(stream, run)
            else:
                self._check(stream, run, found)
            datas += found
            checksums += run.places[2]
            at += len(run)
            if len(run) < len(whole):
                break
        lengths = np.fromiter(map(len, datas), np.int64, len(datas))
        return Batch.of(np.zeros(len(datas), np.int64), np.arange(offset, at), lengths, b"".join(datas), tags=checksums)


def _stretches(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """[low, high) of each stretch of neighbours; the indexes ascend."""
    found: list[tuple[int, int]] = []
    for index in indexes:
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found
