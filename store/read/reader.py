"""Reading by stream and offset: a call goes through its shortcuts, and then the long way, over parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..device.buffers import BufferPool
from ..errors import OffsetOutOfRange, StoreCorrupt, StoreError
from ..format.blobs import ExtraColumns
from ..format.layout import checksum64
from ..log.streams import Stream
from ..log.write import View
from ..segment.part import Part, end_of, offsets_of, positions_of, within
from .bulk import LEAST_MESSAGES, Bulk
from .details import columns_of, details_of
from .finder import FEW_MESSAGES, STEP_MESSAGES, Finder, open_end
from .frame_times import times_of
from .lane_places import LanePlaces
from .lane_tables import LaneTables
from .log_bytes import LOW_32, Bytes, LogBytes
from .message import Message, MessageBatch, make_message, plain_messages
from .picking import Picks, picks_of
from .read_counters import ReadCounters
from .recent import Recent

SAMPLE = 64  # messages of the newest segment from one to the next that counts for all of them

Found = TypeVar("Found")


class AskedFirst(Protocol):
    """The message cache (`cached.MessagesFirst`): it may have messages without a look at the log, and is told how far
    streams were read."""

    def get_range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes] | None:
        """As `Reader.get_range`; None if only the log can say what there is."""

    def passed(self, stream: Stream, offset: int) -> None:
        """The messages of a stream below an offset were read."""


class Reader:
    """Reads of one store. Has no state but its counters and spare buffers. Any number of threads may use it.

    Each call asks its ways in this order, until one has an answer:
        * `get_range`: the table of the lane's places (`LanePlaces`; the rest of a call goes on as without it), the
          newest segment and the ring (`_newest`), the long way (`_range`);
        * `read`: the table, the long way (`_messages`);
        * `read_batch`: `Recent`, `Bulk`, the table, the long way (`_batch`);
        * `read_at`: `picks_of`.

    *The long way* takes parts from `Finder.parts` and their bytes from `Bytes.fetch`. It has all that can be read, and
    raises the errors. All other ways are shortcuts, with one contract: they give messages that are whole, in their
    places and right by their checksums, up to the limit or the end of the queue. Where that cannot be (damage, a gap
    that a repair left, a removed segment, a ring that has overtaken the reader; for `read` and `read_batch` optional
    columns as well), they answer None. The table of places stops there. A store with caches has `_newest` and the long
    way alone.
    """

    def __init__(self, finder: Finder, counters: ReadCounters, fetch: Bytes, first: AskedFirst | None = None) -> None:
        """`fetch` has the bytes; `first` may have messages without a look at the log."""
        self.finder = finder
        self.counters = counters
        self.buffers = BufferPool()
        self.bytes = fetch
        self._first = first
        self.tables = LaneTables(counters)
        self._recent = Recent(counters, self.buffers)
        self._bulk = Bulk(finder, counters, self.buffers)

    @classmethod
    def of_the_log(cls) -> Reader:
        """Of a store without caches."""
        finder, counters = Finder(), ReadCounters()
        return cls(finder, counters, LogBytes(counters, finder))

    def clear(self) -> None:
        """Let go of the memory that is kept for the next readers."""
        self.buffers.clear()
        self.bytes.clear()

    def bounds(self, stream: Stream) -> tuple[int, int]:
        """(first, next): the offsets that can be read are first .. next - 1. Never raises for damage."""
        return self.finder.bounds(stream)

    def get_range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes]:
        """{index: data}: index 0 is the message at `offset`; a hole that a repair left has no index."""
        lane = stream.lane
        table: LanePlaces | None = lane.index_memory.places.get(lane.index)
        if table is None:
            return self._from_log(stream, offset, limit)
        found: dict[int, bytes] = {}
        return found if table.copied(stream, offset, limit, found) else self.rest_of(stream, offset, limit, found)

    def rest_of(self, stream: Stream, offset: int, limit: int, found: dict[int, bytes]) -> dict[int, bytes]:
        """The answer of `get_range`; `found` has the messages that the table of the lane's places has given."""
        count = len(found)
        if not count:
            return self._from_log(stream, offset, limit)
        try:
            rest = self._from_log(stream, offset + count, limit - count)
        except StoreCorrupt:  # of damage after the first message: the result ends before it
            return found
        except OffsetOutOfRange:  # a trim or retention came in between: the error has the offset that was asked for
            return self._from_log(stream, offset, limit)
        found.update((count + index, data) for index, data in rest.items())
        return found

    def _from_log(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes]:
        """The answer of `get_range` without the table of the lane's places."""
        found = self._newest(stream, offset, limit)
        if found is None:
            try:
                found = self._range(stream, offset, limit)
            except StoreCorrupt:
                found = _up_to_damage(partial(self._range, stream, offset), limit)
        if self._first is not None and found:
            self._first.passed(stream, offset + next(reversed(found)) + 1)
        return found

    def _range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes]:
        if self._first is not None:
            known = self._first.get_range(stream, offset, limit)
            if known is not None:
                return known
        if limit > STEP_MESSAGES:
            return self._long_range(stream, offset, limit)
        parts = self.finder.parts(stream, stream.lane.view, offset, limit)
        if not parts:
            return {}
        found, is_elsewhere = self.bytes.fetch(stream, parts)
        if not is_elsewhere and limit <= FEW_MESSAGES:
            self.tables.missed(stream, offset)
        last = parts[-1]
        if last[4] + len(last[2]) - offset != len(found):  # a repair has left holes
            return dict(zip([at - offset for at in offsets_of(parts, len(found))], found.values(), strict=True))
        return found

    def _long_range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for parts in self.finder.steps(stream, stream.lane.view, offset, limit):
            datas, _ = self.bytes.fetch(stream, parts)
            found.update(zip([at - offset for at in offsets_of(parts, len(datas))], datas.values(), strict=True))
        return found

    def _newest(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes] | None:
        """`get_range` of messages that the newest segment and the ring have, in as few steps as possible; else None."""
        lane, number = stream.lane, stream.number
        opened, ring = lane.view.open, lane.ring
        row = opened[-1].table.row(number) if opened else None
        if row is None or offset < row[0] or offset < stream.low or limit > STEP_MESSAGES:
            return None
        (segment, table), begin = opened[-1], offset - row[0]
        entries = row[1][begin : begin + limit]
        if not entries or segment.base is None:
            return None
        low = ring.low - segment.base
        rows = table.flat  # three numbers an entry; of a dozen entries quicker one by one than as an array
        last, oldest = 3 * entries[-1], rows[3 * entries[0]]
        origin, size, recent = ring.shape
        shift = (segment.base + oldest - origin) % size - oldest
        if oldest < low or rows[last] + rows[last + 1] + shift > size:
            return None
        found: dict[int, bytes] = {}
        index = size = 0
        for entry in entries:
            first = 3 * entry
            at, length = rows[first] + shift, rows[first + 1]
            found[index] = data = recent[at : at + length]
            if checksum64(data) & LOW_32 != rows[first + 2]:
                return None
            index += 1
            size += length
        if oldest < ring.low - segment.base:
            return None  # overtaken while it was copied
        counters = self.counters
        if self.bytes.is_log and counters.recent_messages // SAMPLE != (counters.recent_messages + index) // SAMPLE:
            self.tables.sampled(lane, segment, table.visible, entries[0], SAMPLE)
        counters.messages += index
        counters.recent_messages += index
        counters.bytes += size
        counters.recent_bytes += size
        return found

    def read(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> list[Message]:
        """Messages in offset order; stops before `max_bytes` would be passed, but gives at least one."""
        known = None
        if stream.lane.index_memory.places:
            known = self._of_table(stream, offset, limit, max_bytes)
        if known is not None:
            offsets = range(offset, offset + len(known[0]))
            return plain_messages(stream.topic, stream.queue_id, offsets, known[0].values(), known[1])
        try:
            found = self._messages(stream, offset, limit, max_bytes)
        except StoreCorrupt:
            found = _up_to_damage(partial(self._messages, stream, offset, max_bytes=max_bytes), limit)
        if self._first is not None and found:
            self._first.passed(stream, found[-1].offset + 1)
        return found

    def _of_table(
        self, stream: Stream, offset: int, limit: int, max_bytes: int
    ) -> tuple[dict[int, bytes], list[int]] | None:
        """The bytes and times of messages that the table of the lane's places has, all that there are; else None."""
        lane = stream.lane
        table: LanePlaces | None = lane.index_memory.places.get(lane.index)
        if table is None:
            return None
        view = lane.view
        found: dict[int, bytes] = {}
        if not table.copied(stream, offset, limit, found) or not found:
            return None
        try:
            times = table.times(view, stream.number, offset, len(found))
        except (OSError, StoreCorrupt):
            return None
        return None if times is None or sum(map(len, found.values())) > max_bytes else (found, times)

    def _fetched(
        self, stream: Stream, view: View, offset: int, limit: int, max_bytes: int
    ) -> tuple[list[Part], dict[int, bytes], list[int] | None]:
        """Messages up to the first one that would pass `max_bytes`: where they lie, their bytes, and their times.

        No times: some may have optional columns.
        """
        find = self.finder
        if limit <= FEW_MESSAGES:
            parts = find.parts(stream, view, offset, limit)
        else:
            parts = find.parts_within(stream, view, offset, limit, max_bytes)
        if not parts:
            return parts, {}, []
        if sum([flat[3 * entry + 1] for _, flat, entries, _, _ in parts for entry in entries]) > max_bytes:
            parts = within(parts, max_bytes)
        positions = [(segment, flat[3 * entry]) for segment, flat, entries, _, _ in parts for entry in entries]
        times = times_of(view, positions)
        found, is_elsewhere = self.bytes.fetch(stream, parts)
        is_newest = view.open and parts[0][0] is view.open[-1].segment
        if not is_elsewhere and not is_newest and limit <= FEW_MESSAGES:
            self.tables.missed(stream, offset)
        return parts, found, times

    def _messages(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> list[Message]:
        view = stream.lane.view
        parts, found, times = self._fetched(stream, view, offset, limit, max_bytes)
        if times is not None:
            if not parts:
                return []
            last, end = parts[-1], offset + len(found)
            offsets = range(offset, end) if last[4] + len(last[2]) == end else offsets_of(parts, len(found))
            return plain_messages(stream.topic, stream.queue_id, offsets, found.values(), times)
        messages: list[Message] = []
        datas = iter(found.values())
        for part in parts:
            # Not strict: `datas` goes on with the next part.
            rows = zip(positions_of(part), range(part[4], end_of(part)), datas, *details_of(stream, view, part))  # noqa: B905
            for position, at, data, time_ms, extra in rows:
                try:
                    messages.append(make_message(stream.topic, stream.queue_id, at, data, time_ms, extra))
                except StoreError as error:
                    what = "a message's properties cannot be decoded"
                    raise StoreCorrupt(what, part[0].path, position) from error
        return messages

    def read_batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch:
        """Messages in columns over one buffer."""
        if self.bytes.is_log:
            batch = self._recent.read_batch(stream, offset, limit, max_bytes)
            if batch is None and limit >= LEAST_MESSAGES:
                end = open_end(stream)
                limit = min(limit, (self.bounds(stream)[1] if end is None else end) - offset)
                if limit >= LEAST_MESSAGES:
                    batch = self._bulk.read_batch(stream, offset, limit, max_bytes)
            if batch is not None:
                return batch
        try:
            found = self._batch(stream, offset, limit, max_bytes)
        except StoreCorrupt:
            found = _up_to_damage(partial(self._batch, stream, offset, max_bytes=max_bytes), limit)
        if self._first is not None and len(found):
            self._first.passed(stream, int(found.offsets[-1]) + 1)
        return found

    def read_at(
        self, streams: Sequence[Stream], which: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], max_bytes: int,
        *, is_first: bool,
    ) -> Picks:  # fmt: skip
        """The messages at some places, by index into `streams` and offset. See `picks_of`."""
        return picks_of(self.bytes, streams, which, offsets, max_bytes, is_first=is_first)

    def _batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch:
        known = self._of_table(stream, offset, limit, max_bytes)
        if known is not None:
            return self._batch_of(stream, range(offset, offset + len(known[0])), *known)
        view = stream.lane.view
        parts, found, times = self._fetched(stream, view, offset, limit, max_bytes)
        extras = None
        if times is None:
            details = [columns_of(stream, view, part) for part in parts]
            times = [*chain.from_iterable([some for some, _ in details])]
            if any(some is not None for _, some in details):
                pairs = zip(details, parts, strict=True)
                extras = ExtraColumns.joined([(some, len(part[2])) for (_, some), part in pairs])
        return self._batch_of(stream, offsets_of(parts, len(found)), found, times, extras)

    def _batch_of(
        self, stream: Stream, offsets: Sequence[int], found: dict[int, bytes], times: list[int],
        extras: ExtraColumns | None = None,
    ) -> MessageBatch:  # fmt: skip
        datas = [*found.values()]
        lengths = [*map(len, datas)]
        positions = [*accumulate(lengths, initial=0)]
        count, size = len(datas), positions.pop()
        columns = np.array([*positions, *lengths, *offsets, *times], np.int64).reshape(4, count)
        return MessageBatch(
            self.buffers.joined(datas, size), columns[0], columns[1], columns[2], columns[3],
            np.zeros(count, np.uint32), [(stream.topic, stream.queue_id)], extras,
        )  # fmt: skip


def _up_to_damage(read: Callable[[int], Found], limit: int) -> Found:
    """The messages in front of damage, of up to `limit`. Raises StoreCorrupt if the first one is damaged.

    `read(n)` reads the first n of them. Only what a call asks for can fail it: so the number is doubled while it
    succeeds, and then halved between.
    """
    found, good, bad, step = read(1), 1, limit, 1
    while bad - good > 1:
        tried = min(good + step, (good + bad) // 2)
        try:
            found, good, step = read(tried), tried, 2 * step
        except StoreCorrupt:
            bad = tried
    return found
