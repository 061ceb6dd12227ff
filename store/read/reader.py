"""Reading by stream and offset: a call goes through its shortcuts, and then the long way, over finder and sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..device.buffers import POOLED_BYTES, BufferPool
from ..errors import OffsetOutOfRange, StoreCorrupt, StoreError
from ..format.blobs import ExtraColumns
from ..format.layout import checksum64
from ..log.streams import Stream
from ..segment.run import Run
from .bulk import Bulk
from .details import Times, columns_of, details_of
from .few import Few
from .finder import RUN_MESSAGES
from .lane_places import LanePlaces
from .message import Message, MessageBatch, make_message, plain_messages
from .picking import Picks, picks_of
from .recent import Recent
from .sources import LOW_32, Sources
from .straight import Straight

CHUNK_MESSAGES = 256  # copied, checked and copied to their place while the caches still have them
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
          newest segment and the ring (`_newest`), `Straight`, the long way (`_range`);
        * `read`: `Few`, which asks the table as well, then the long way (`_messages`);
        * `read_batch`: `Recent`, `Bulk` (which has `Few` for few messages), then the long way (`_batch`);
        * `read_at`: `picks_of`.

    *The long way* takes runs from `Finder.runs` and bytes from `Sources.payloads`. It has all that can be read, and
    raises the errors. All other ways are shortcuts, with one contract: they give messages that are whole, in their
    places and right by their checksums, up to the limit or the end of the queue. Where that cannot be (damage, a gap
    that a repair left, a removed segment, a ring that has overtaken the reader; for `read` and `read_batch` optional
    columns as well), they answer None. The table of places stops there. A store with caches has `_newest` and the long
    way alone.
    """

    def __init__(self, sources: Sources | None = None, first: AskedFirst | None = None) -> None:
        """`sources`: None takes those of the log, the ring and the device."""
        self.sources = sources = sources or Sources.of_the_log()
        self.finder = sources.finder
        self.counters = sources.counters
        self.buffers = BufferPool()
        self._first = first
        self._straight = Straight(sources.counters) if sources.are_log else None
        self._recent = Recent(sources.counters, self.buffers) if sources.are_log else None
        self._few: Few | None = None
        self._bulk: Bulk | None = None
        if self._straight is not None:
            self._few = Few(self._straight, self.buffers)
            self._bulk = Bulk(self.finder, sources.counters, self.buffers, self._few)

    def clear(self) -> None:
        """Let go of the memory that is kept for the next readers."""
        self.buffers.clear()
        if self._straight is not None:
            self._straight.clear()

    def bounds(self, stream: Stream) -> tuple[int, int]:
        """(first, next): the offsets that can be read are first .. next - 1. Never raises for damage."""
        return self.finder.bounds(stream)

    def get_range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes]:
        """{index: data}: index 0 is the message at `offset`; a hole that a repair left has no index."""
        lane = stream.lane
        table: LanePlaces | None = lane.held.places.get(lane.index)
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
        if found is None and self._straight is not None:
            found = self._straight.get_range(stream, offset, limit)
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
            found = self._first.get_range(stream, offset, limit)
            if found is not None:
                return found
        found = {}
        payloads, counters = self.sources.payloads, self.counters
        for run in self.finder.runs(stream, offset, limit):
            datas = payloads(stream, run)
            counters.messages += len(datas)
            counters.bytes += sum(run.places[1])
            if len(datas) == 1:  # as in a queue that is spread over the log
                found[run.offsets[0] - offset] = datas[0]
                continue
            first, last = run.offsets[0], run.offsets[-1]
            if last - first < len(datas):  # a repair has left no hole
                found.update(enumerate(datas, first - offset))
                continue
            for at, data in zip(run.offsets, datas, strict=True):
                found[at - offset] = data
        return found

    def _newest(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes] | None:
        """`get_range` of messages that the newest segment and the ring have, in as few steps as possible; else None."""
        lane, number = stream.lane, stream.number
        opened, ring = lane.view.open, lane.ring
        row = opened[-1].table.row(number) if opened else None
        if row is None or offset < row[0] or offset < stream.low or limit > RUN_MESSAGES:
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
        counters, straight = self.counters, self._straight
        if straight is not None and counters.recent_messages // SAMPLE != (counters.recent_messages + index) // SAMPLE:
            straight.tables.sampled(lane, segment, table.visible, entries[0], SAMPLE)
        counters.messages += index
        counters.recent_messages += index
        counters.bytes += size
        counters.recent_bytes += size
        return found

    def read(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> list[Message]:
        """Messages in offset order; stops before `max_bytes` would be passed, but gives at least one."""
        few = None if self._few is None else self._few.read(stream, offset, limit, max_bytes)
        if few is not None:
            return few
        try:
            found = self._messages(stream, offset, limit, max_bytes)
        except StoreCorrupt:
            found = _up_to_damage(lambda most: self._messages(stream, offset, most, max_bytes), limit)
        if self._first is not None and found:
            self._first.passed(stream, found[-1].offset + 1)
        return found

    def _messages(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> list[Message]:
        messages: list[Message] = []
        for run in self._within(stream, offset, limit, max_bytes):
            datas = self._payloads(stream, run)
            times, extras = details_of(stream, run)
            if extras is None:
                plain = times if isinstance(times, list) else list(map(int, times))
                messages += plain_messages(stream.topic, stream.queue_id, run.offsets, datas, plain)
                continue
            try:
                for at, data, time_ms, extra in zip(run.offsets, datas, times, extras, strict=True):
                    messages.append(make_message(stream.topic, stream.queue_id, at, data, int(time_ms), extra))
            except StoreError as error:
                position = run.places[0][run.offsets.index(at)]
                raise StoreCorrupt("a message's properties cannot be decoded", run.segment.path, position) from error
        return messages

    def read_batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch:
        """Messages in columns over one buffer."""
        if self._recent is not None and self._bulk is not None:
            batch = self._recent.read_batch(stream, offset, limit, max_bytes)
            if batch is None:
                batch = self._bulk.read_batch(stream, offset, limit, max_bytes)
            if batch is not None:
                return batch
        try:
            found = self._batch(stream, offset, limit, max_bytes)
        except StoreCorrupt:
            found = _up_to_damage(lambda most: self._batch(stream, offset, most, max_bytes), limit)
        if self._first is not None and len(found):
            self._first.passed(stream, int(found.offsets[-1]) + 1)
        return found

    def read_at(
        self, streams: Sequence[Stream], which: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], max_bytes: int,
        *, is_first: bool,
    ) -> Picks:  # fmt: skip
        """The messages at some places, by index into `streams` and offset. See `picks_of`."""
        return picks_of(self.sources, streams, which, offsets, max_bytes, is_first=is_first)

    def _batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch:
        return self._batch_of(stream, list(self._within(stream, offset, limit, max_bytes)))

    def _batch_of(self, stream: Stream, runs: list[Run]) -> MessageBatch:
        lengths = _joined([run.places[1] for run in runs])
        ends = lengths.cumsum()
        details = [columns_of(stream, run) for run in runs]
        extras = None
        if any(some is not None for _, some in details):
            extras = ExtraColumns.joined([(some, len(run)) for run, (_, some) in zip(runs, details, strict=True)])
        return MessageBatch(
            self._gather(stream, runs, int(ends[-1]) if len(ends) else 0),
            ends - lengths,
            lengths,
            _offsets(runs),
            _joined([times for times, _ in details]),
            np.zeros(len(lengths), np.uint32),
            [(stream.topic, stream.queue_id)],
            extras,
        )

    def _within(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> Iterator[Run]:
        """Runs up to the first message that would pass `max_bytes`; at least one message."""
        left, some = max_bytes, False
        for whole in self.finder.runs(stream, offset, limit):
            run, left = whole.cut(left, has_some=some)
            if run is not whole:
                if run.offsets:
                    yield run
                return
            some = True
            yield whole

    def _gather(self, stream: Stream, runs: list[Run], size: int) -> memoryview:
        """The payloads of all runs back to back."""
        if size < POOLED_BYTES:
            return memoryview(b"".join([data for run in runs for data in self._payloads(stream, run)]))
        buffer = self.buffers.take(size)
        for run in runs:
            for begin in range(0, len(run), CHUNK_MESSAGES):
                buffer.writelines(self._payloads(stream, run.part(begin, begin + CHUNK_MESSAGES)))
        return self.buffers.lend(buffer, size)

    def _payloads(self, stream: Stream, run: Run) -> list[bytes]:
        found, counters = self.sources.payloads(stream, run), self.counters
        counters.messages += len(found)
        counters.bytes += sum(run.places[1])
        return found


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


def _joined(columns: Sequence[Times]) -> npt.NDArray[np.int64]:
    """The columns of several runs as one array. Most are short: one array of a list beats one of arrays."""
    if len(columns) == 1:
        return np.array(columns[0], np.int64)
    items: list[int] = []
    for column in columns:
        items += column.tolist() if isinstance(column, np.ndarray) else column
    return np.array(items, np.int64)


def _offsets(runs: Sequence[Run]) -> npt.NDArray[np.int64]:
    """The offsets of all messages of some runs."""
    if runs and runs[-1].offsets[-1] - runs[0].offsets[0] == sum(map(len, runs)) - 1:  # no holes, as nearly always
        return np.arange(runs[0].offsets[0], runs[-1].offsets[-1] + 1)
    return _joined([run.offsets for run in runs])
