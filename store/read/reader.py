"""Reading by stream and offset: what `finder` found is fetched, every checksum verified, and given as it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ..device.buffers import BufferPool
from ..errors import OffsetOutOfRange, StoreCorrupt, StoreError
from ..format.extras import Extras
from ..format.frame import OptionalColumns, optional_at
from ..format.layout import HAS_EXTRAS, checksum64
from ..log.streams import Stream
from ..segment.held import Item
from ..segment.open_table import OpenTable
from ..segment.run import Run
from ..segment.segment import Segment
from .finder import RUN_MESSAGES, Finder
from .message import Message, MessageBatch, make_message

LOW_32 = 0xFFFFFFFF  # of a checksum: what a message keeps
POOLED_BYTES = 128 << 10  # smaller buffers are reused by malloc as well
CHUNK_MESSAGES = 256  # copied, checked and copied to their place while the caches still have them
NO_EXTRAS = Extras(None, None, None)

Times = Sequence[int] | npt.NDArray[np.int64]
Found = TypeVar("Found")


class ReadCounters:
    """The counts of reads; plain numbers, approximate when threads race."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.recent_messages = 0  # of the ring
        self.recent_bytes = 0
        self.cached_messages = 0  # of the message cache
        self.cached_bytes = 0
        self.read_ahead_messages = 0  # of the read cache
        self.read_ahead_bytes = 0
        self.unsound_messages = 0  # of a cache, and not what the log has: read from the log then
        self.device_messages = 0
        self.device_payload_bytes = 0
        self.device_least_bytes: int | None = None  # the shortest of these messages
        self.device_bytes = 0  # with the gaps between those that were read together
        self.device_reads = 0


class Reader(Finder):
    """Reads of one store. Has no state but its counters and spare buffers; any number of threads may use it."""

    def __init__(self) -> None:
        self.counters = ReadCounters()
        self.buffers = BufferPool()

    # -- fetching -------------------------------------------------------------------------------------

    def payloads(self, stream: Stream, run: Run) -> list[bytes]:
        """The messages' bytes, checked. Raises StoreCorrupt."""
        base, found = run.segment.base, None
        if base is not None and base + run.places[0][0] >= stream.lane.ring.low:
            found = self._recent(stream, run)
        if found is None:
            found = self._stored(stream, run)
        else:
            self._check(stream, run, found)
        counters = self.counters
        counters.messages += len(found)
        counters.bytes += sum(run.places[1])
        return found

    def _count(self, run: Run) -> None:
        self.counters.messages += len(run)
        self.counters.bytes += sum(run.places[1])

    def _check(self, stream: Stream, run: Run, datas: list[bytes]) -> None:
        """Raises StoreCorrupt if the bytes are not those that were written."""
        if [whole & LOW_32 for whole in map(checksum64, datas)] != run.places[2]:
            raise self._damage(stream, run, datas)

    def _recent(self, stream: Stream, run: Run) -> list[bytes] | None:
        """The messages from the ring of recent frames; None if it does not have all of them any more."""
        starts, lengths, _ = run.places
        ring, base = stream.lane.ring, run.segment.base
        if base is None or base + starts[0] < ring.low:
            return None
        found = ring.copies(base, starts, lengths)
        if base + starts[0] < ring.low:
            return None  # overtaken while it was copied
        self.counters.recent_messages += len(found)
        self.counters.recent_bytes += sum(lengths)
        return found

    def _stored(self, stream: Stream, run: Run) -> list[bytes]:
        """The messages from below the ring, checked."""
        found = self._device(run.segment, run.places[0], run.places[1])
        self._check(stream, run, found)
        return found

    def _device(
        self, segment: Segment, starts: Sequence[int], lengths: Sequence[int], sizes: Sequence[int] | None = None
    ) -> list[bytes]:
        """Ranges of a segment from its file; `sizes` are the messages' where a range is only a part of one."""
        found, size, calls = segment.read_places(starts, lengths)
        counters, least = self.counters, min(sizes or lengths)
        counters.device_messages += len(found)
        counters.device_payload_bytes += sum(lengths)
        if counters.device_least_bytes is None or least < counters.device_least_bytes:
            counters.device_least_bytes = least
        counters.device_bytes += size
        counters.device_reads += calls
        return found

    def _damage(self, stream: Stream, run: Run, datas: list[bytes]) -> Exception:
        """What to raise when the bytes are not those that were written."""
        segment = run.segment
        segment.check_open()
        if segment.removed:  # retention took the segment while it was read
            return OffsetOutOfRange(stream.topic, stream.queue_id, run.offsets[0], *self.bounds(stream))
        places = zip(run.places[0], run.places[2], datas, strict=True)
        wrong = [start for start, checksum, data in places if checksum64(data) & LOW_32 != checksum]
        position = min(wrong, default=run.places[0][0])
        return StoreCorrupt("a message's bytes do not match their checksum", segment.path, position)

    # -- the shapes that callers want -----------------------------------------------------------------

    def get_range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes]:
        """{index: data}: index 0 is the message at `offset`."""
        found = self._newest(stream, offset, limit)
        if found is not None:
            return found
        try:
            return self._range(stream, offset, limit)
        except StoreCorrupt:
            return _up_to_damage(lambda most: self._range(stream, offset, most), limit)

    def _range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for run in self.runs(stream, offset, limit):
            datas = self.payloads(stream, run)
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
        """`get_range` of what the newest segment and the ring have, in as few steps as it can be done.

        None wherever anything is not as usual: the long way then does it, or says what is wrong.
        """
        lane, number = stream.lane, stream.number
        opened, ring = lane.view.open, lane.ring
        row = opened[-1].table.row(number) if opened else None
        if row is None or offset < row[0] or offset < stream.low or limit > RUN_MESSAGES:
            return None
        (segment, table), begin = opened[-1], offset - row[0]
        entries = row[1][begin : begin + limit]
        if not entries or segment.base is None:
            return None
        recent, low = ring.recent, ring.low - segment.base
        rows = table.flat  # three numbers an entry; of a dozen entries quicker one by one than as an array
        last, oldest = 3 * entries[-1], rows[3 * entries[0]]
        shift = (segment.base + oldest) % ring.size_bytes - oldest
        if oldest < low or rows[last] + rows[last + 1] + shift > ring.size_bytes:
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
        counters.messages += index
        counters.recent_messages += index
        counters.bytes += size
        counters.recent_bytes += size
        return found

    def read(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> list[Message]:
        """Messages in offset order; stops before `max_bytes` would be passed, but gives at least one."""
        try:
            return self._messages(stream, offset, limit, max_bytes)
        except StoreCorrupt:
            return _up_to_damage(lambda most: self._messages(stream, offset, most, max_bytes), limit)

    def _messages(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> list[Message]:
        messages: list[Message] = []
        for run in self._within(stream, offset, limit, max_bytes):
            datas = self.payloads(stream, run)
            times, extras = self._details(stream, run)
            try:
                for at, data, time_ms, extra in zip(
                    run.offsets, datas, times, extras or [None] * len(datas), strict=True
                ):
                    messages.append(make_message(stream.topic, stream.queue_id, at, data, int(time_ms), extra))
            except StoreError as error:
                position = run.places[0][run.offsets.index(at)]
                raise StoreCorrupt("a message's properties cannot be decoded", run.segment.path, position) from error
        return messages

    def read_batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch:
        """The same in columns over one buffer."""
        try:
            return self._batch(stream, offset, limit, max_bytes)
        except StoreCorrupt:
            return _up_to_damage(lambda most: self._batch(stream, offset, most, max_bytes), limit)

    def _batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch:
        runs = list(self._within(stream, offset, limit, max_bytes))
        lengths = _joined([run.places[1] for run in runs])
        ends = lengths.cumsum()
        details = [self._details(stream, run) for run in runs]
        extras: list[Extras] | None = None
        if any(some is not None for _, some in details):
            extras = []
            for run, (_, some) in zip(runs, details, strict=True):
                extras += [extra or NO_EXTRAS for extra in some or [None] * len(run)]
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
        for whole in self.runs(stream, offset, limit):
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
            return memoryview(b"".join([data for run in runs for data in self.payloads(stream, run)]))
        buffer = self.buffers.take(size)
        for run in runs:
            for begin in range(0, len(run), CHUNK_MESSAGES):
                buffer.writelines(self.payloads(stream, run.part(begin, begin + CHUNK_MESSAGES)))
        return self.buffers.lend(buffer, size)

    # -- times and optional columns -------------------------------------------------------------------

    def _details(self, stream: Stream, run: Run) -> tuple[Times, list[Extras | None] | None]:
        """Times and optional columns of a run's messages, from their frames; None if no message has any."""
        if isinstance(run.source, OpenTable):
            return self._open_details(stream, run, run.source)
        heads = run.heads or []
        times = [head.time_ms for head in heads]
        if not [head for head in heads if head.extras is not None]:
            return times, None
        return times, [
            None if head.extras is None else head.extras.row(entry - head.first_entry)
            for head, entry in zip(heads, run.entries, strict=True)
        ]

    def _open_details(self, stream: Stream, run: Run, table: OpenTable) -> tuple[Times, list[Extras | None] | None]:
        frames, times, flags = table.frames_of(np.asarray(run.entries, np.uint32))
        with_extras = np.flatnonzero(flags & HAS_EXTRAS).tolist()
        if not with_extras:
            return times, None
        extras: list[Extras | None] = [None] * len(run)
        at_hand, columns = -1, None
        for index in with_extras:
            frame = int(frames[index])
            if columns is None or frame != at_hand:
                at_hand, columns = frame, self._frame_extras(stream, run.segment, table, frame)
            extras[index] = columns.row(int(run.entries[index]) - table.frame_entry[frame])
        return times, extras

    def _frame_extras(self, stream: Stream, segment: Segment, table: OpenTable, frame: int) -> OptionalColumns:
        """The optional columns of a frame of an open segment, held for the readers to come."""
        found: HeldColumns | None = table.held.get(frame)
        if found is not None:
            found.used = True
            return found.columns
        position = table.frame_position[frame]
        payload = table.flat[3 * table.frame_entry[frame]]
        raw, _ = segment.fetch(stream.lane.ring, position, payload - position)
        columns = optional_at(raw)
        if columns is None:
            segment.check_open()
            raise StoreCorrupt("a frame's header is damaged", segment.path, position)
        stream.lane.held.frames.keep(table.held, frame, HeldColumns(columns))
        return columns


class HeldColumns(Item):
    """The optional columns of a frame of an open segment."""

    __slots__ = ("columns",)

    def __init__(self, columns: OptionalColumns) -> None:
        self.columns = columns
        super().__init__(columns.size_bytes)


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
