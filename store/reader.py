"""Reading by stream and offset, over open tables and footers alike, every checksum verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .errors import OffsetOutOfRange, StoreCorrupt
from .format import HAS_EXTRAS, LOST_ENTRY, checksum64
from .frame import decode_at
from .message import Message, MessageBatch, make_message
from .request import Extras
from .run import SHORT_RUN, Place, Run
from .sealed import SealedSegment
from .segment import Segment
from .streams import Stream
from .table import OpenTable
from .write import OpenSegment, View

NEAR_BYTES = 16 << 10  # a gap that is cheaper to read than to skip

class ReadCounters:
    """What reads cost; plain numbers, approximate when threads race."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.recent_messages = 0
        self.device_bytes = 0


class Reader:
    """Reads of one store. Has no state but its counters; any number of threads may use it."""

    def __init__(self) -> None:
        self.counters = ReadCounters()

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
        """Up to `limit` messages from `offset` on, a run a segment. Raises OffsetOutOfRange below the first."""
        while limit > 0:
            view = stream.lane.view
            run, reached = self._run_at(view, stream, offset, limit)
            if reached == offset:
                self._check_first(stream, offset)
                return
            if run is not None and run.offsets:
                yield run
                limit -= len(run.offsets)
            offset = reached

    def _check_first(self, stream: Stream, offset: int) -> None:
        first, next_offset = self.bounds(stream)
        if offset < first:
            raise OffsetOutOfRange(stream.topic, stream.queue_id, offset, first, next_offset)

    def _run_at(self, view: View, stream: Stream, offset: int, limit: int) -> tuple[Run | None, int]:
        """The run that holds `offset` and the offset behind it; (None, offset) if there is nothing."""
        number = stream.number
        for opened in reversed(view.open):
            row = opened.table.rows.get(number)
            if row is not None and offset >= row[0]:
                return self._open_run(opened, number, offset, limit)
        if not view.sealed or number < 0:
            return None, offset
        sealed = view.sealed[_last_from(view.sealed, number, offset)]
        first, count = sealed.first_of(number)
        if offset < first:
            return None, offset
        if offset < first + count:
            return self._sealed_run(stream, sealed, offset, limit)
        if offset >= self.bounds(stream)[1]:
            return None, offset
        return None, self._after_gap(view, number, offset)

    def _after_gap(self, view: View, number: int, offset: int) -> int:
        """The next offset that some later segment holds: a repair may have left a gap between segments."""
        firsts = [sealed.first_of(number) for sealed in view.sealed]
        later = [first for first, count in firsts if count and first > offset]
        rows = [row for opened in view.open if (row := opened.table.rows.get(number)) is not None]
        later += [first for first, _ in rows if first > offset]
        return min(later, default=offset)

    def _open_run(self, opened: OpenSegment, number: int, offset: int, limit: int) -> tuple[Run | None, int]:
        segment, table = opened
        entries = table.find(number, offset, limit)
        reached = offset + len(entries)
        return Run(segment, table, range(offset, reached), entries, None), reached

    def _sealed_run(
        self, stream: Stream, sealed: SealedSegment, offset: int, limit: int
    ) -> tuple[Run | None, int]:
        entries = sealed.find(stream.number, offset, limit)
        reached = offset + len(entries)
        offsets: Sequence[int] = range(offset, reached)
        if LOST_ENTRY in entries:
            kept = entries != LOST_ENTRY
            offsets = np.array(offsets)[kept].tolist()
            entries = entries[kept]
        places = _places(stream, sealed, offsets, entries)
        return Run(sealed.segment, sealed, offsets, entries, places), reached

    # -- fetching -------------------------------------------------------------------------------------

    def payloads(self, stream: Stream, run: Run) -> list[bytes]:
        """The messages' bytes, checked. Raises StoreCorrupt."""
        ring, segment = stream.lane.ring, run.segment
        counters = self.counters
        found: list[bytes] | None = None
        if segment.base is not None and run.places and segment.base + run.places[0][0] >= ring.low:
            base, copy = segment.base, ring.copy
            found = [copy(base + position, length) for position, length, _ in run.places]
            if base + run.places[0][0] >= ring.low:
                counters.recent_messages += len(found)
            else:
                found = None
        if found is None:
            found = self._from_file(segment, run.places)
        for data, (position, _, checksum) in zip(found, run.places, strict=True):
            if checksum64(data) & 0xFFFFFFFF != checksum:
                raise self._damage(stream, segment, position)
        counters.messages += len(found)
        counters.bytes += sum(map(len, found))
        return found

    def gather(self, stream: Stream, run: Run) -> bytes:
        """The messages' bytes back to back, checked; neighbours in the log are copied at once."""
        segment, columns = run.segment, run.columns
        if not len(columns):
            return b""
        starts, lengths = columns["position"].astype(np.int64), columns["length"].astype(np.int64)
        ends = starts + lengths
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        firsts, lasts = [0, *breaks.tolist()], [*breaks.tolist(), len(columns)]
        parts = []
        for first, last in zip(firsts, lasts, strict=True):
            begin, end = int(starts[first]), int(ends[last - 1])
            data, recent = segment.fetch(stream.lane.ring, begin, end - begin)
            parts.append(data)
            if recent:
                self.counters.recent_messages += last - first
            else:
                self.counters.device_bytes += end - begin
        found = parts[0] if len(parts) == 1 else b"".join(parts)
        self._check(stream, segment, memoryview(found), lengths, columns)
        return found

    def _check(
        self,
        stream: Stream,
        segment: Segment,
        found: memoryview,
        lengths: npt.NDArray[np.int64],
        columns: npt.NDArray[np.void],
    ) -> None:
        """Verify every message's checksum."""
        edges = [0, *lengths.cumsum().tolist()]
        sums = [checksum64(found[begin:end]) & 0xFFFFFFFF for begin, end in pairwise(edges)]
        if sums != columns["checksum"].tolist():
            wrong = next(i for i, sum_ in enumerate(sums) if sum_ != columns["checksum"][i])
            raise self._damage(stream, segment, int(columns["position"][wrong]))
        self.counters.messages += len(sums)
        self.counters.bytes += len(found)

    def _damage(self, stream: Stream, segment: Segment, position: int) -> Exception:
        segment.check_open()
        if segment.removed:  # retention took the segment while it was read
            first, next_offset = self.bounds(stream)
            return OffsetOutOfRange(stream.topic, stream.queue_id, -1, first, next_offset)
        return StoreCorrupt("a message's bytes do not match their checksum", segment.path, position)

    def _from_file(self, segment: Segment, places: list[Place]) -> list[bytes]:
        """Read from the file; messages near each other with one call."""
        found: list[bytes] = []
        index = 0
        while index < len(places):
            begin, length, _ = places[index]
            end, last = begin + length, index + 1
            while last < len(places) and 0 <= places[last][0] - end <= NEAR_BYTES:
                end = places[last][0] + places[last][1]
                last += 1
            data = segment.read(begin, end - begin)
            self.counters.device_bytes += end - begin
            if last == index + 1:
                found.append(data)
            else:
                found.extend([data[at - begin : at - begin + size] for at, size, _ in places[index:last]])
            index = last
        return found

    # -- the shapes that callers want -----------------------------------------------------------------

    def get_range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes]:
        """{index: data}: index 0 is the message at `offset`."""
        found: dict[int, bytes] = {}
        for run in self.runs(stream, offset, limit):
            datas = self.payloads(stream, run)
            found.update(zip([at - offset for at in run.offsets], datas, strict=True))
        return found

    def read(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> list[Message]:
        """Messages in offset order; stops before `max_bytes` would be passed, but gives at least one."""
        messages: list[Message] = []
        left = max_bytes
        for whole in self.runs(stream, offset, limit):
            run, left = whole.cut(left, has_some=bool(messages))
            datas = self.payloads(stream, run)
            times, extras = self._details(stream, run)
            for at, data, time_ms, extra in zip(run.offsets, datas, times, extras, strict=True):
                messages.append(make_message(stream.topic, stream.queue_id, at, data, time_ms, extra))
            if len(run.offsets) < len(whole.offsets):
                break
        return messages

    def read_batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch:
        """The same in columns over one buffer."""
        parts: list[bytes] = []
        lengths: list[int] = []
        offsets: list[int] = []
        times: list[int] = []
        extras: list[Extras | None] = []
        left = max_bytes
        for whole in self.runs(stream, offset, limit):
            run, left = whole.cut(left, has_some=bool(parts))
            if len(run.offsets) <= SHORT_RUN:
                parts.append(b"".join(self.payloads(stream, run)))
                lengths += [length for _, length, _ in run.places]
            else:
                parts.append(self.gather(stream, run))
                lengths += run.columns["length"].tolist()
            offsets += run.offsets
            run_times, run_extras = self._details(stream, run)
            times += run_times
            extras += run_extras
            if len(run.offsets) < len(whole.offsets):
                break
        sizes = np.array(lengths, np.int64)
        return MessageBatch(
            memoryview(parts[0] if len(parts) == 1 else b"".join(parts)),
            sizes.cumsum() - sizes,
            sizes,
            np.array(offsets, np.int64),
            np.array(times, np.int64),
            np.zeros(len(sizes), np.uint32),
            [(stream.topic, stream.queue_id)],
            [extra or Extras(None, None, None) for extra in extras] if any(extras) else None,
        )

    def _details(self, stream: Stream, run: Run) -> tuple[list[int], list[Extras | None]]:
        """Times and optional columns of a run's messages, from their frames."""
        if not len(run.entries):
            return [], []
        if isinstance(run.source, OpenTable):
            return self._open_details(stream, run, run.source)
        sealed = run.source
        times: list[int] = []
        extras: list[Extras | None] = []
        for entry in run.entries.tolist():
            index = sealed.frame_of(entry)
            head = sealed.head(stream.lane.ring, index)
            times.append(head.time_ms)
            if head.flags & HAS_EXTRAS:
                extras.append(sealed.frame(stream.lane.ring, index).extras()[entry - head.first_entry])
            else:
                extras.append(None)
        return times, extras

    def _open_details(
        self, stream: Stream, run: Run, table: OpenTable
    ) -> tuple[list[int], list[Extras | None]]:
        if run.entries[0] >= table.frame_entry[-1]:
            frames = [len(table.frame_entry) - 1] * len(run.entries)
        else:
            frames = table.frames_of(run.entries).tolist()
        times = [table.frame_time[frame] for frame in frames]
        extras: list[Extras | None] = [None] * len(frames)
        for index, frame in enumerate(frames):
            if table.frame_flags[frame] & HAS_EXTRAS:
                extras[index] = self._frame_extras(stream, run.segment, table, frame)[
                    int(run.entries[index]) - table.frame_entry[frame]
                ]
        return times, extras

    def _frame_extras(self, stream: Stream, segment: Segment, table: OpenTable, frame: int) -> list[Extras]:
        position = table.frame_position[frame]
        payload = table.look_up(np.array([table.frame_entry[frame]], np.uint32))[0][0]
        raw, _ = segment.fetch(stream.lane.ring, position, payload - position)
        decoded = decode_at(raw, 0)
        if decoded is None:
            raise StoreCorrupt("a frame's header is damaged", segment.path, position)
        return decoded.extras()


def _last_from(sealed: tuple[SealedSegment, ...], number: int, offset: int) -> int:
    """Index of the last segment whose first offset of the stream is at most `offset`, or 0."""
    low, high = 0, len(sealed)
    while high - low > 1:
        middle = (low + high) // 2
        # A segment that does not know the stream yet answers 0: look further to the right, too.
        if sealed[middle].first_of(number)[0] <= offset:
            low = middle
        else:
            high = middle
    # A segment without messages of the stream has the first offset of the one that follows it.
    while low > 0 and sealed[low].first_of(number) == (offset, 0):
        low -= 1
    return low


def _places(
    stream: Stream, sealed: SealedSegment, offsets: Sequence[int], entries: npt.NDArray[np.uint32]
) -> list[Place]:
    """Where messages lie, from their frames' heads; each must name this stream and offset."""
    places: list[Place] = []
    ring, number = stream.lane.ring, stream.number
    frames = (sealed.footer.frame_entry.searchsorted(entries, side="right") - 1).tolist()
    for offset, entry, index in zip(offsets, entries.tolist(), frames, strict=True):
        head = sealed.head(ring, index)
        at = entry - head.first_entry
        right = 0 <= at < len(head.starts) and head.numbers[at] == number
        if not right or head.lows[at] != offset & 0xFFFF:
            raise StoreCorrupt("the footer points to a wrong message", sealed.segment.path, sealed.footer.position)
        places.append((head.starts[at], head.lengths[at], head.checksums[at]))
    return places
