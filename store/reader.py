"""Reading by stream and offset, over open tables and footers alike, every checksum verified."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .buffers import BufferPool
from .errors import OffsetOutOfRange, StoreCorrupt
from .format import HAS_EXTRAS, checksum64
from .frame import decode_at
from .message import Message, MessageBatch, make_message
from .request import Extras
from .run import Run
from .sealed import SealedSegment
from .segment import Segment
from .streams import Stream
from .table import OpenTable
from .write import OpenSegment, View

LOW_32 = 0xFFFFFFFF  # of a checksum: what a message keeps
RUN_MESSAGES = 16384  # a longer run is cut: its places are lists
POOLED_BYTES = 128 << 10  # smaller buffers are reused by malloc as well
CHUNK_MESSAGES = 256  # copied, checked and copied to their place while the caches still have them
NO_EXTRAS = Extras(None, None, None)

Times = Sequence[int] | npt.NDArray[np.int64]


class ReadCounters:
    """What reads cost; plain numbers, approximate when threads race."""

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


class Reader:
    """Reads of one store. Has no state but its counters and spare buffers; any number of threads may use it."""

    def __init__(self) -> None:
        self.counters = ReadCounters()
        self.buffers = BufferPool()

    # -- bounds ---------------------------------------------------------------------------------------

    def bounds(self, stream: Stream) -> tuple[int, int]:
        """(first, next): the offsets that can be read are first .. next - 1."""
        view, number = stream.lane.view, stream.number
        if number < 0:
            return 0, 0
        first = next_offset = None
        for sealed in view.sealed[:1]:
            first = sealed.first_of(number)[0]
        if view.sealed:
            begin, count = view.sealed[-1].first_of(number)
            next_offset = begin + count
        for opened in view.open:
            row = opened.table.rows.get(number)
            if row is not None:
                first = row[0] if first is None else first
                next_offset = opened.table.next_offset(number)
        return first or 0, next_offset or 0

    # -- finding --------------------------------------------------------------------------------------

    def runs(self, stream: Stream, offset: int, limit: int) -> Iterator[Run]:
        """Up to `limit` messages from `offset` on, as of now. Raises OffsetOutOfRange below the first."""
        view, number = stream.lane.view, stream.number
        if number < 0 or limit <= 0:
            return
        at = len(view.open)
        while at:  # the newest first: most reads are of what was just written
            at -= 1
            row = view.open[at].table.rows.get(number)
            if row is not None and row[0] <= offset:
                break
        else:
            if offset < first_offset(view, number):
                raise OffsetOutOfRange(stream.topic, stream.queue_id, offset, *self.bounds(stream))
            for run, reached in _sealed_runs(stream, view.sealed, offset, limit):
                yield run
                offset, limit = reached, limit - len(run)
            # A repair may have left a gap behind the sealed ones. Between open ones there is none: what looks
            # like one is not durable yet.
            offset = max(offset, _first_open(view, number))
        for opened in view.open[at:]:
            for run in _open_runs(opened, number, offset, limit):
                yield run
                offset, limit = run.offsets[-1] + 1, limit - len(run)

    # -- fetching -------------------------------------------------------------------------------------

    def payloads(self, stream: Stream, run: Run) -> list[bytes]:
        """The messages' bytes, checked. Raises StoreCorrupt."""
        found = self._recent(stream, run)
        if found is None:
            found = self._stored(stream, run)
        else:
            self._check(stream, run, found)
        self.counters.messages += len(found)
        self.counters.bytes += sum(run.places[1])
        return found

    def _check(self, stream: Stream, run: Run, datas: list[bytes]) -> None:
        """Raises StoreCorrupt if the bytes are not those that were written."""
        for data, checksum in zip(datas, run.places[2], strict=True):
            if checksum64(data) & LOW_32 != checksum:
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
        known = counters.device_least_bytes
        counters.device_least_bytes = least if known is None else min(known, least)
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
        return found if found is not None else self._range(stream, offset, limit)

    def _range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for run in self.runs(stream, offset, limit):
            datas = self.payloads(stream, run)
            for at, data in zip(run.offsets, datas, strict=True):
                found[at - offset] = data
        return found

    def _newest(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes] | None:
        """`get_range` of what the newest segment and the ring have, in as few steps as it can be done.

        None wherever anything is not as usual: the long way then does it, or says what is wrong.
        """
        lane, number = stream.lane, stream.number
        opened, ring = lane.view.open, lane.ring
        row = opened[-1].table.rows.get(number) if opened else None
        if row is None or offset < row[0] or limit > RUN_MESSAGES:
            return None
        (segment, table), begin = opened[-1], offset - row[0]
        entries = row[1][begin : begin + limit]
        if not entries or entries[-1] >= table.visible or segment.base is None:
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
        messages: list[Message] = []
        for run in self._within(stream, offset, limit, max_bytes):
            datas = self.payloads(stream, run)
            times, extras = self._details(stream, run)
            for at, data, time_ms, extra in zip(
                run.offsets, datas, times, extras or [None] * len(run), strict=True
            ):
                messages.append(make_message(stream.topic, stream.queue_id, at, data, int(time_ms), extra))
        return messages

    def read_batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch:
        """The same in columns over one buffer."""
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
            some = True
            if len(run):
                yield run
            if len(run) < len(whole):
                return

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
        if not any([head.flags & HAS_EXTRAS for head in heads]):
            return times, None
        return times, [
            run.source.frame(stream.lane.ring, head.index).extras()[entry - head.first_entry]
            if head.flags & HAS_EXTRAS
            else None
            for head, entry in zip(heads, run.entries, strict=True)
        ]

    def _open_details(
        self, stream: Stream, run: Run, table: OpenTable
    ) -> tuple[Times, list[Extras | None] | None]:
        frames, times, flags = table.frames_of(np.asarray(run.entries, np.uint32))
        with_extras = np.flatnonzero(flags & HAS_EXTRAS).tolist()
        if not with_extras:
            return times, None
        extras: list[Extras | None] = [None] * len(run)
        decoded: dict[int, list[Extras]] = {}
        for index in with_extras:
            frame = int(frames[index])
            if frame not in decoded:
                decoded[frame] = self._frame_extras(stream, run.segment, table, frame)
            extras[index] = decoded[frame][int(run.entries[index]) - table.frame_entry[frame]]
        return times, extras

    def _frame_extras(self, stream: Stream, segment: Segment, table: OpenTable, frame: int) -> list[Extras]:
        position = table.frame_position[frame]
        payload = table.places(np.array([table.frame_entry[frame]], np.uint32))[0][0]
        raw, _ = segment.fetch(stream.lane.ring, position, payload - position)
        decoded = decode_at(raw, 0)
        if decoded is None:
            raise StoreCorrupt("a frame's header is damaged", segment.path, position)
        return decoded.extras()


def first_offset(view: View, number: int) -> int:
    """The first offset of a stream that a view knows, 0 if none."""
    if view.sealed:
        return view.sealed[0].first_offset(number)
    return _first_open(view, number)


def _first_open(view: View, number: int) -> int:
    """The stream's first offset in the open segments, 0 if none has messages of it."""
    rows = (opened.table.rows.get(number) for opened in view.open)
    return next((row[0] for row in rows if row is not None), 0)


def _open_runs(opened: OpenSegment, number: int, offset: int, limit: int) -> Iterator[Run]:
    segment, table = opened
    while limit > 0:
        asked = min(limit, RUN_MESSAGES)
        entries = table.find(number, offset, asked)
        count = len(entries)
        if count:
            yield Run(segment, table, range(offset, offset + count), entries, table.places(entries))
        if count < asked:
            return
        offset, limit = offset + count, limit - count


def _sealed_runs(
    stream: Stream, sealed: tuple[SealedSegment, ...], offset: int, limit: int
) -> Iterator[tuple[Run, int]]:
    """Runs with some message, and the offset behind each."""
    number, ring = stream.number, stream.lane.ring
    index = _last_from(sealed, number, offset)
    while 0 <= index < len(sealed) and limit > 0:
        first, count = sealed[index].first_of(number)
        if count and offset < first + count:
            offset = max(offset, first)  # a repair may have left a gap before this segment
            asked = min(limit, RUN_MESSAGES, first + count - offset)
            run = sealed[index].run(ring, number, offset, asked)
            offset += asked
            if len(run):
                yield run, offset
                limit -= len(run)
        elif count or index + 1 == len(sealed):
            index += 1
        else:  # of many segments that have nothing of this stream
            index = max(index + 1, _last_from(sealed, number, offset))


def _last_from(sealed: tuple[SealedSegment, ...], number: int, offset: int) -> int:
    """Index of the last segment whose first offset of the stream is at most `offset`; -1 if there is none.

    A segment without messages of the stream has the first offset of the one that follows it, and one that does
    not know the stream yet says 0: so this is the one that holds the offset, if any does.
    """
    return bisect_right(sealed, offset, key=lambda segment: segment.first_offset(number)) - 1


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
