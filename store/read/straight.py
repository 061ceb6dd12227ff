"""The straight way of `get_range` through the log: one loop over the segments, without an object a run.

A queue that is spread over the log has one or two messages in each segment. There a run, with its lists of offsets and
heads, costs more than its messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from ..device.log_file import LogFile, Range, RangeReads
from ..device.ring import Ring
from ..errors import StoreCorrupt
from ..format.layout import checksum64
from ..log.streams import Stream
from ..segment.open_table import CHECKSUM, LENGTH, POSITION
from ..segment.segment import Segment
from .lane_tables import LaneTables
from .parts import Part, column, cut_parts, find_parts
from .sources import LOW_32, ReadCounters

MOST_MESSAGES = 1024  # of a call; a longer one wants its bytes in chunks

Direct = dict[int, list[bytes]]  # messages that were read past the page cache, by the number of their part
Spans = list[tuple[int, int]]  # begin and end of messages that were copied from a mapping, among those found


class Straight:
    """Reads from the ring, mappings and the device, one part after the other. Any number of threads may use it.

    It is a shortcut: `Reader` has the contract.
    """

    def __init__(self, counters: ReadCounters) -> None:
        self._counters = counters
        self._direct: RangeReads | None = None  # of the disk, once a segment has told which that is
        self.tables = LaneTables(counters)

    def clear(self) -> None:
        """Let go of the memory that is kept for the next readers."""
        if self._direct is not None:
            self._direct.clear()

    def get_range(self, stream: Stream, offset: int, limit: int) -> dict[int, bytes] | None:
        """{index: data} of all messages that there are, up to `limit`. Raises no error for what the log has wrong."""
        if stream.number < 0 or not 0 < limit <= MOST_MESSAGES or offset < stream.low:
            return None
        lane = stream.lane
        try:
            parts = find_parts(lane, lane.view, stream.number, offset, limit)
            fetched = None if parts is None else self.fetched(lane.ring, parts)
        except (OSError, StoreCorrupt):
            fetched = None
        if fetched is None:
            return None
        found, is_past_cache = fetched
        if not is_past_cache:  # else the table of the lane's places would not have answered it either
            self.tables.missed(stream, offset)
        return found

    def fetched(self, ring: Ring, parts: list[Part]) -> tuple[dict[int, bytes], bool] | None:
        """{index: data} of all messages of some parts, and whether some of them were read past the page cache.

        None if one is not what it was. Raises OSError.
        """
        found: dict[int, bytes] = {}
        if self._in_memory(ring, parts, found):
            return found, False
        found.clear()
        spans: Spans = []
        direct: Direct = {}
        if not self._fetch(ring, cut_parts(ring, parts), found, spans, direct):
            return None
        self._count(found, spans)
        return found, bool(direct)

    def _in_memory(self, ring: Ring, parts: list[Part], found: dict[int, bytes]) -> bool:
        """Add the messages, if all of them are in the ring or in mapped pages, as most of what is read twice is."""
        mapped, is_recent = 0, False  # those of the mapping come first
        for segment, flat, entries, _ in parts:
            base = segment.base
            if base is not None and base + flat[3 * entries[0]] >= ring.low:
                if not _copied(ring, base, flat, entries, found) or base + flat[3 * entries[0]] < ring.low:
                    return False
                is_recent = True
            elif not is_recent and segment.copied(flat, entries, found) == len(entries):
                mapped += len(entries)
            else:
                return False
        self._counters.count_memory(list(map(len, found.values())), mapped)
        return True

    def _count(self, found: dict[int, bytes], spans: Spans) -> None:
        counters, lengths = self._counters, list(map(len, found.values()))
        counters.messages += len(found)
        counters.bytes += sum(lengths)
        for begin, end in spans:
            copied = lengths[begin:end]
            counters.count_device(copied, min(copied), sum(copied), 0)

    def _read_directly(self, ring: Ring, parts: list[Part], first: int) -> Direct:
        """Of the parts from `first` on, those that lie far apart and not in memory: read past the page cache, all at
        once. The kernel is asked for all others that it has to read.
        """
        alone: list[tuple[int, LogFile]] = []
        reads = self._direct
        if reads is None:
            reads = self._direct = parts[first][0].range_reads()
        for number, (segment, flat, entries, is_sparse) in enumerate(islice(parts, first, None), first):
            base = segment.base
            if base is not None and base + flat[3 * entries[0]] >= ring.low:
                break  # and so are all later ones
            file = _file_past_cache(segment, flat, entries) if is_sparse and not reads.is_refused else None
            if file is not None:
                alone.append((number, file))
            elif segment.wants_asking:
                segment.ask(column(flat, entries, POSITION), column(flat, entries, LENGTH))
        if not alone:
            return {}
        ranges: list[Range] = []
        for number, file in alone:
            _, flat, entries, _ = parts[number]
            ranges += [(file, flat[3 * entry], flat[3 * entry + 1]) for entry in entries]
        read = reads.read(ranges)
        if read is None:
            return {}
        datas, size, calls = read
        lengths = list(map(len, datas))
        self._counters.count_device(lengths, min(lengths), size, calls)
        begin, found = 0, {}
        for number, _ in alone:
            end = begin + len(parts[number][2])
            found[number] = datas[begin:end]
            begin = end
        return found

    def _fetch(self, ring: Ring, parts: list[Part], found: dict[int, bytes], spans: Spans, direct: Direct) -> bool:
        """Add the messages; False if one is not what it was, or cannot be told. `spans` gets what is not counted yet.

        `direct` gets what was read past the page cache. Raises OSError.
        """
        is_asked = False  # the device, for what comes from it
        for number, (segment, flat, entries, is_sparse) in enumerate(parts):
            base = segment.base
            if base is not None and base + flat[3 * entries[0]] >= ring.low:
                is_there = self._is_recent(ring, base, flat, entries, found)
                if is_there:
                    continue
                if is_there is None:
                    return False
            if not is_asked and not is_sparse and segment.wants_asking:
                is_asked = True
                direct.update(self._read_directly(ring, parts, number))
            datas, copied = direct.get(number), 0
            if datas is None:
                copied = self._copied_mapped(segment, flat, entries, found, spans)
                if copied == len(entries):
                    continue
                if not is_asked:
                    is_asked = True
                    parts[number] = segment, flat, entries[copied:], is_sparse
                    direct.update(self._read_directly(ring, parts, number))
                    datas = direct.get(number)
            if datas is None:
                if not self._fetch_device(segment, flat, entries[copied:], found):
                    return False
            elif not _taken(datas, flat, entries[copied:], found):
                return False
        return True

    def _is_recent(
        self, ring: Ring, base: int, flat: Sequence[int], entries: Sequence[int], found: dict[int, bytes]
    ) -> bool | None:
        """Add messages that the ring had a moment ago; False if it has lost them, None if one has a wrong checksum."""
        begin, is_right = len(found), _copied(ring, base, flat, entries, found)
        if base + flat[3 * entries[0]] < ring.low:  # overtaken while it was copied
            for index in range(begin, len(found)):
                del found[index]
            return False
        if not is_right:
            return None
        self._counters.recent_messages += len(entries)
        self._counters.recent_bytes += sum(map(len, islice(found.values(), begin, None)))
        return True

    def _copied_mapped(
        self, segment: Segment, flat: Sequence[int], entries: Sequence[int], found: dict[int, bytes], spans: Spans
    ) -> int:
        """Add messages, from the first on, that can be had without a system call: how many."""
        begin = len(found)
        copied = segment.copied(flat, entries, found)
        if copied:
            if spans and spans[-1][1] == begin:
                begin = spans.pop()[0]
            spans.append((begin, len(found)))
        return copied

    def _fetch_device(
        self, segment: Segment, flat: Sequence[int], entries: Sequence[int], found: dict[int, bytes]
    ) -> bool:
        """Add messages of a segment by system calls; False if one of them is not what its checksum says."""
        if len(entries) == 1:  # as in a queue that is spread over the log
            at = 3 * entries[0]
            length = flat[at + 1]
            data = segment.read_one(flat[at], length)
            self._counters.count_device((length,), length, length, 1)
            found[len(found)] = data
            return checksum64(data) & LOW_32 == flat[at + 2]
        lengths = column(flat, entries, LENGTH)
        datas: list[bytes] = []
        size, calls = segment.read_on(datas, column(flat, entries, POSITION), lengths)
        self._counters.count_device(lengths, min(lengths), size, calls)
        return _taken(datas, flat, entries, found)


def _copied(ring: Ring, base: int, flat: Sequence[int], entries: Sequence[int], found: dict[int, bytes]) -> bool:
    """Add copies of messages that the ring has; False if one has a wrong checksum."""
    first, last = flat[3 * entries[0]], 3 * entries[-1]
    origin, size, memory = ring.shape
    shift = (base + first - origin) % size - first
    if flat[last] + flat[last + 1] + shift > size:  # the end of the ring lies between them
        lengths = column(flat, entries, LENGTH)
        datas = ring.copies(base, column(flat, entries, POSITION), lengths)
        return _taken(datas, flat, entries, found)
    for index, entry in enumerate(entries, len(found)):
        place = 3 * entry
        at = flat[place] + shift
        found[index] = data = memory[at : at + flat[place + 1]]
        if checksum64(data) & LOW_32 != flat[place + 2]:
            return False
    return True


def _taken(datas: Sequence[bytes], flat: Sequence[int], entries: Sequence[int], found: dict[int, bytes]) -> bool:
    """Add the bytes of messages; False if one has a wrong checksum."""
    if [whole & LOW_32 for whole in map(checksum64, datas)] != column(flat, entries, CHECKSUM):
        return False
    found.update(enumerate(datas, len(found)))
    return True


def _file_past_cache(segment: Segment, flat: Sequence[int], entries: Sequence[int]) -> LogFile | None:
    """The file to read messages from each by itself, that lie far apart; None if they are better had otherwise."""
    if segment.is_in_memory(flat, entries):
        return None
    file = segment.past_cache()
    if file is None:
        return None
    return file if segment.windows.alone(flat, entries) else None
