"""The places of a lane's messages in one table, by stream: a read of a few messages is one look-up and one loop."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from struct import Struct
from time import monotonic
from typing import NamedTuple

from ..device.leased import MAPS, TRUST_S, WINDOW_SHIFT
from ..device.ring import NOWHERE, Ring
from ..errors import StoreError
from ..format.arrays import Int64s
from ..format.layout import checksum64
from ..log.lane import Lane
from ..log.streams import Stream
from ..log.write import OpenSegment, View
from ..segment.copies import KEPT_BYTES
from ..segment.copies import WINDOW_BYTES as COPY_BYTES
from ..segment.copies import WINDOW_SHIFT as COPY_SHIFT
from ..segment.held import HeldItem, HeldMemory
from ..segment.open_table import Uint32s
from ..segment.segment import Segment
from .frame_times import common_time, times_of
from .log_bytes import LOW_32
from .long_messages import LongMessages
from .named_rows import QUEUE, QUEUE_BYTES, Layout, NamedRows
from .read_counters import ReadCounters

# Index of the segment among the table's (plus their number for a message that is longer than a window of a mapping: see
# `LongMessages`), position in the segment, length, checksum.
ROW = Struct("=4I")
ROW_BYTES = ROW.size
STREAM_BYTES = 16
MOST_MESSAGES = 1024  # of a call; the lock is not held for longer ones
NEVER = -(1 << 33)  # the base of a segment outside the ring: plus any position, it is below all lane positions
COPY_MASK = COPY_BYTES - 1
RENAME_CALLS = 1024  # after a trim: to make the names of 20,000 queues again costs as much as a few hundred calls
PLACES_A_CALL = 8  # of more queues: a call for each so many places of the layout

_ROW, _ROWS, _STREAM, _QUEUE = ROW.unpack_from, ROW.iter_unpack, Struct("=3q").unpack_from, QUEUE.unpack_from
_NO_PLACES = (0, 0)


class _Fit(NamedTuple):
    """A view of the lane that has the segments of a table as neighbours.

    Attributes:
        is_known: all segments that may have newer messages are open.
        newer: these segments.
    """

    view: View
    is_known: bool
    newer: tuple[OpenSegment, ...]


class LanePlaces(HeldItem):
    """Where the messages of a lane's newest segments lie: 16 bytes a message and 16 a stream.

    It is made of tables that were compared with the log or made with it (`KeptPlaces`, `OpenTable`), and no message
    moves. A segment that is taken away makes the table useless, since its messages are not to be read any more.

    Invariants:
        * the segments are neighbours in the lane's log, and all of their messages up to the making are here. Those
          that were open then may have got more since;
        * the messages of a stream follow each other without a gap in the offsets; a stream of which that is not so has
          none here.
    """

    __slots__ = (
        "_after", "_bases", "_count", "_counters", "_first", "_fit", "_growing", "_held", "_index", "_is_split",
        "_names", "_oldest", "_renames", "_rows", "_segments", "_streams", "_whole", "entries",
    )  # fmt: skip

    def __init__(
        self,
        segments: Sequence[Segment],
        held: HeldMemory,
        counters: ReadCounters,
        *,
        growing: int,
        index: Int64s,
        rows: Uint32s,
        names: NamedRows | None = None,
    ) -> None:
        """`growing`: so many of the last segments may get more messages. `index`: as `_index_of` makes it.

        `rows` (n, 4). `names`: None in a store of more lanes than this one. The arrays are for this object alone.
        """
        self._held = held
        self._counters = counters
        self._count, self._oldest = len(segments), segments[0].sequence
        self._segments: list[Segment | LongMessages] = [*segments, *map(LongMessages, segments)]
        self._whole = [*segments, *segments]  # as many: the segment of each index
        self._bases = 2 * [NEVER if segment.base is None else segment.base for segment in segments]
        # No message lies before this lane position. Segments that a bulk commit attached are in no ring, and may lie
        # between two that are: then each place is looked at.
        self._first = self._bases[0]
        known = [at for at, base in enumerate(self._bases[: self._count]) if base != NEVER]
        self._is_split = bool(known) and len(known) < self._count - known[0]
        if self._is_split:
            self._first = NEVER
        self._after = max(self._bases) + segments[-1].header.capacity_bytes  # the ring has none from here on
        self._growing = growing
        self._streams = len(index) // 2 - 1
        self._index = memoryview(index.data)
        self._rows = memoryview(rows.reshape(-1).data).cast("B")
        self.entries = len(rows)
        self._fit: _Fit | None = None
        self._names = names
        self._renames = 0
        super().__init__(rows.nbytes + index.nbytes + (0 if names is None else names.size_bytes))

    def copied(self, stream: Stream, offset: int, limit: int, found: dict[int, bytes]) -> bool:
        """Add copies of a stream's messages with right checksums to `found`, which is empty, from `offset` on.

        It stops at the first message that is not in this table, or not in memory as far as this process knows.
        True if `found` has all messages that there are, up to `limit`.
        """
        lane, number = stream.lane, stream.number
        if not 0 <= number < self._streams or offset < stream.low or not 0 < limit <= MOST_MESSAGES:
            return False
        view, fit = lane.view, self._fit
        if fit is None or fit[0] is not view:  # by number: thrice as quick as by name
            fit = self._fitted(view)
            if fit is None:
                return False
        begin, shift, end = _STREAM(self._index, STREAM_BYTES * number)
        row = shift + offset
        if not begin <= row < end:
            return False
        if row + limit < end:  # noqa: PLR1730  # the call of `min` costs three times as much
            end = row + limit
        self.used = True
        row = self._copied(lane.ring, row, end, found)
        return row == end and (len(found) == limit or self._ends_at(fit, number, offset + len(found)))

    def times(self, view: View, number: int, offset: int, count: int) -> list[int] | None:
        """When some messages that `copied` has given were put into the log, as `times_of`."""
        row = self._index[2 * number + 1] + offset
        which, first, _, _ = _ROW(self._rows, ROW_BYTES * row)
        of_last, last, _, _ = _ROW(self._rows, ROW_BYTES * (row + count - 1))
        segment = self._whole[which]
        if self._whole[of_last] is segment:  # mostly one frame has all of them
            time_ms = common_time(view, segment, first, last)
            if time_ms is not None:
                return [time_ms] * count
        return times_of(view, self._places(row, count))

    def _places(self, row: int, count: int) -> Iterator[tuple[Segment, int]]:
        """The segment and the position of each of some rows."""
        segments = self._whole
        for which, at, _, _ in _ROWS(self._rows[ROW_BYTES * row : ROW_BYTES * (row + count)]):
            yield segments[which], at

    def copied_by_name(
        self, lane: Lane, topic: str, queue_id: int, offset: int, limit: int, found: dict[int, bytes]
    ) -> bool | None:
        """As `copied`, by topic and queue id, without a look at the stream: None if only the stream says what there is.

        Of many queues none is in the processor's caches: to find a stream and to ask it costs as much as two messages.
        `lane` is this table's, the only one of its store.
        """
        names, view, fit = self._names, lane.view, self._fit
        if fit is None or fit[0] is not view:
            fit = self._fitted(view)
        if fit is None or names is None or queue_id < 0 or not 0 < limit <= MOST_MESSAGES:
            return None
        if names.shown != lane.lows.shown:  # a stream was trimmed since
            self._rename(lane, names)
            return None
        place, end_place = names.topics.get(topic, _NO_PLACES)
        place += queue_id
        if place >= end_place:
            return None
        first, row, count = _QUEUE(names.queues, QUEUE_BYTES * place)
        index = offset - first
        if not 0 <= index < count:
            return None
        count -= index
        row += index
        end = row + limit if limit < count else row + count
        self.used = True
        if self._copied(lane.ring, row, end, found) != end:
            return False
        return limit <= count or self._ends_at(fit, names.number(place), offset + count)

    @property
    def layout(self) -> Layout | None:
        """The places of the queues that are found by name."""
        return None if self._names is None else self._names.layout

    def _rename(self, lane: Lane, names: NamedRows) -> None:
        """After a trim: calls go by their streams, until they are worth other names."""
        self._renames += 1
        if self._renames >= max(RENAME_CALLS, names.layout.size // PLACES_A_CALL):
            self._renames = 0
            self._names = names.renewed(lane)

    def _copied(self, ring: Ring, row: int, end: int, found: dict[int, bytes]) -> int:
        """Add copies of messages with right checksums, from `row` on; return the row after the last one."""
        low = ring.low
        if low <= self._first:
            return self._recent(ring, low, row, end, found)
        if low < self._after and not self._is_split:
            which, at, _, _ = _ROW(self._rows, ROW_BYTES * row)
            if self._bases[which] + at >= low:  # the ring has all later ones as well
                return self._recent(ring, low, row, end, found)
        row = self._mixed(ring, low, row, end, found)
        while row < end and self._asked(row, low, found):
            row = self._mixed(ring, low, row + 1, end, found)
        return row

    def _mixed(  # noqa: PLR0912, PLR0915  # in one loop: most calls of many queues have messages of each kind
        self, ring: Ring, low: int, row: int, end: int, found: dict[int, bytes]
    ) -> int:
        """As `_copied`, of the ring (from `low` on), mappings and kept windows; without system calls."""
        bases, segments = self._bases, self._segments
        origin, size, memory = ring.shape
        # Where the ring's memory begins, and again a size after it. Not asked for where the ring has none of the rows.
        lap = low - (low - origin) % size if low < self._after else low
        begun = index = len(found)
        recent = mapped_bytes = recent_bytes = 0
        least = NOWHERE
        with MAPS.lock:
            now = monotonic()
            old = now - TRUST_S
            try:
                for which, at, length, checksum in _ROWS(self._rows[ROW_BYTES * row : ROW_BYTES * end]):
                    segment = segments[which]
                    leased, window = segment.leased, at >> WINDOW_SHIFT
                    if leased is not None and (leased.near[window] >= old or leased.trust(window, now)):
                        found[index] = data = leased.memory[at : at + length]
                    elif (begin := bases[which] + at) >= low:
                        begin -= lap
                        if begin >= size:
                            begin -= size
                        if begin + length > size:  # the end of the ring lies in it
                            break
                        found[index] = data = memory[begin : begin + length]
                        if checksum64(data) & LOW_32 != checksum:
                            del found[index]
                            break
                        index += 1
                        recent += 1
                        recent_bytes += length
                        continue
                    else:
                        copy = None if leased is not None else segment.copies.windows.get(at >> COPY_SHIFT)
                        if copy is None:
                            break
                        copy.used = True
                        begin = at & COPY_MASK
                        found[index] = data = copy.data[begin : begin + length]
                    if checksum64(data) & LOW_32 != checksum:
                        del found[index]
                        break
                    index += 1
                    mapped_bytes += length
                    if length < least:  # noqa: PLR1730  # as above
                        least = length
            except IndexError:  # past the end of a file
                pass
        mapped = index - begun - recent
        if recent and ring.low > low and self._lose_overtaken(ring.low, low, row, begun, found):
            sizes = [len(found[one]) for one in range(begun, len(found))]
            mapped, mapped_bytes, least = len(sizes), sum(sizes), min(sizes, default=NOWHERE)
            recent = recent_bytes = 0
        if mapped:
            self._counters.count_mapped(mapped, mapped_bytes, least)
        if recent:
            self._counters.count_recent(recent, recent_bytes)
        return row + mapped + recent

    def _lose_overtaken(self, now: int, low: int, row: int, begun: int, found: dict[int, bytes]) -> bool:
        """Whether the ring had messages from `low` on, and lost some while they were copied: `row` is number `begun`.

        They and all later ones are then taken out.
        """
        first = row
        while self._position(first) < low:  # lane positions only rise
            first += 1
        if self._position(first) >= now:
            return False
        for lost in range(begun + first - row, len(found)):
            del found[lost]
        return True

    def _recent(self, ring: Ring, low: int, row: int, end: int, found: dict[int, bytes]) -> int:
        """As `_mixed`, of messages that are all in the ring: it needs no lock and no clock."""
        bases = self._bases
        origin, size, memory = ring.shape
        lap = low - (low - origin) % size
        index = total = 0
        for which, at, length, checksum in _ROWS(self._rows[ROW_BYTES * row : ROW_BYTES * end]):
            begin = bases[which] + at - lap
            if begin >= size:
                begin -= size
            if begin + length > size:
                break
            found[index] = data = memory[begin : begin + length]
            if checksum64(data) & LOW_32 != checksum:
                del found[index]
                break
            index += 1
            total += length
        if ring.low > low and self._position(row) < ring.low:  # overtaken while it was copied
            found.clear()
            return row
        self._counters.count_recent(index, total)
        return row + index

    def _position(self, row: int) -> int:
        """The lane position of a message."""
        which, at, _, _ = _ROW(self._rows, ROW_BYTES * row)
        position: int = self._bases[which] + at
        return position

    def _asked(self, row: int, low: int, found: dict[int, bytes]) -> bool:
        """Add a message older than the ring by a system call, if the page cache should have it: see `were_asked`."""
        which, at, length, checksum = _ROW(self._rows, ROW_BYTES * row)
        segment = self._segments[which]
        try:
            if self._bases[which] + at >= low or not segment.windows.were_asked(at, length):
                return False
            data = segment.read_one(at, length)
            if checksum64(data) & LOW_32 != checksum:
                return False
            if segment.leased is None and segment.copies.is_worth_it(self._held, at, length):
                begin = at & -COPY_BYTES
                segment.copies.keep(self._held, at, segment.read_one(begin, KEPT_BYTES))
        except (OSError, StoreError):  # the long way says what is wrong
            return False
        self._counters.device_reads += 1
        found[len(found)] = data
        self._counters.count_mapped(1, length, length)
        return True

    def has(self, number: int, offset: int) -> bool:
        """Whether a message is here."""
        if not 0 <= number < self._streams:
            return False
        index, at = self._index, 2 * number
        return index[at] <= index[at + 1] + offset < index[at + 2]

    def _ends_at(self, fit: _Fit, number: int, offset: int) -> bool:
        """Whether a stream has no messages from `offset` on, which is after its messages here; False: not known."""
        for opened in fit.newer:
            row = opened.table.row(number)
            if row is not None and row[0] + len(row[1]) > offset:
                return False
        return fit.is_known

    def _fitted(self, view: View) -> _Fit | None:
        """Compare the segments with a view. None if they are no neighbours in it: the table is asked no more then."""
        # A slower thread may put an older view back. That is no harm: each call goes by the view that it began with.
        mine, sealed = self._segments[: self._count], view.sealed
        # Only the view's segments from the first of these on are looked at, and as many as these are.
        begin = bisect_left(sealed, self._oldest, key=lambda one: one.segment.sequence)
        opened = [one.segment for one in view.open if one.segment.sequence >= self._oldest]
        there = [*[one.segment for one in sealed[begin : begin + self._count]], *opened][: self._count]
        if begin == len(sealed):
            begin += len(view.open) - len(opened)
        after = begin + self._count
        if there != mine:
            self._streams, self._fit, self._names = 0, None, None
            return None
        newer = after - self._growing - len(view.sealed)
        fit = self._fit = _Fit(view, newer >= 0, view.open[newer:] if newer >= 0 else ())
        return fit
