"""Fetching the bytes of messages that were found: from the ring, a mapping, the device; each checksum is compared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from ..device.log_file import LogFile, Range, RangeReads
from ..device.ring import Ring
from ..errors import OffsetOutOfRange, StoreCorrupt
from ..format.layout import checksum64
from ..log.streams import Stream
from ..segment.part import Part, checksums_of, cut_parts, lengths_of, piece_of, positions_of
from ..segment.segment import Segment
from .finder import Finder
from .read_counters import ReadCounters

LOW_32 = 0xFFFFFFFF  # of a checksum: what a message keeps
FEW_MESSAGES = 64  # of a table that was made for a call: of more, three loops in C cost less than one
DIRECT_MESSAGES = 1024  # of a call; more want their bytes in chunks

Direct = dict[int, list[bytes]]  # messages that were read past the page cache, by the number of their part
Fetched = tuple[dict[int, bytes], bool]


class Bytes(Protocol):
    """What has the bytes of messages: the log (`LogBytes`), or caches before it (`cached.CachedBytes`).

    Attributes:
        is_log: no cache is asked.
    """

    is_log: bool

    def clear(self) -> None:
        """Let go of the memory that is kept for the next readers."""

    def fetch(self, stream: Stream, parts: list[Part]) -> Fetched:
        """{0: data, 1: data, ..} of all messages of some parts, and whether the table of a lane's places cannot help.

        No message leaves without a look at its checksum. Raises StoreCorrupt, OSError, and OffsetOutOfRange if
        retention took some meanwhile.
        """


class LogBytes:
    """The log: the ring, mappings and the device, one part after the other. Any number of threads may use it."""

    is_log = True

    def __init__(self, counters: ReadCounters, finder: Finder) -> None:
        self._counters = counters
        self._finder = finder
        self._direct: RangeReads | None = None  # of the disk, once a segment has told which that is

    def clear(self) -> None:
        """Let go of the memory that is kept for the next readers."""
        if self._direct is not None:
            self._direct.clear()

    def fetch(self, stream: Stream, parts: list[Part]) -> Fetched:
        """See `Bytes`. The table cannot help where some were read past the page cache."""
        found: dict[int, bytes] = {}
        ring, counters = stream.lane.ring, self._counters
        if self._in_memory(ring, parts, found):
            return found, False
        found.clear()
        direct: Direct = {}
        spans = self._fetch(stream, [*cut_parts(ring, parts)], found, direct)  # a list of its own: it cuts more
        lengths = [*map(len, found.values())]
        mapped = [length for begin, end in spans for length in lengths[begin:end]]
        if mapped:
            counters.count_device(mapped, min(mapped), sum(mapped), 0)
        counters.messages += len(lengths)
        counters.bytes += sum(lengths)
        return found, bool(direct)

    def is_recent(self, ring: Ring, part: Part) -> bool:
        """Whether the ring has all of a part."""
        base = part[0].base
        return base is not None and base + part[1][3 * part[2][0]] >= ring.low

    def _in_memory(self, ring: Ring, parts: list[Part], found: dict[int, bytes]) -> bool:
        """Add the messages, if all of them are in the ring or in mapped pages, as most of what is read twice is."""
        mapped, is_recent = 0, False  # those of the mapping come first
        for part in parts:
            segment, flat, entries, _, _ = part
            base = segment.base
            if base is not None and base + flat[3 * entries[0]] >= ring.low:
                if not _copied(ring, base, part, found) or base + flat[3 * entries[0]] < ring.low:
                    return False
                is_recent = True
            elif not is_recent and segment.copied(flat, entries, found) == len(entries):
                mapped += len(entries)
            else:
                return False
        self._counters.count_memory(list(map(len, found.values())), mapped)
        return True

    def _fetch(
        self, stream: Stream, parts: list[Part], found: dict[int, bytes], direct: Direct
    ) -> list[tuple[int, int]]:
        """Add the messages of parts that are in the ring, or out of it; `direct` gets those past the page cache.

        Returns begin and end of those that came from a mapping, among all that were found; they do not count yet.
        """
        ring, is_asked = stream.lane.ring, False  # the device, for what comes from it
        spans: list[tuple[int, int]] = []
        for number, part in enumerate(parts):
            if self.is_recent(ring, part) and self._copied_recent(stream, part, found):
                continue
            segment, flat, entries, is_sparse, _ = part
            if not is_asked and not is_sparse and segment.wants_asking:
                is_asked = True
                direct.update(self._read_directly(ring, parts, number))
            if number not in direct:
                begin = len(found)
                copied = segment.copied(flat, entries, found)
                if copied:
                    spans.append((begin, begin + copied))
                    if copied == len(entries):
                        continue
                    parts[number] = piece_of(part, copied, len(entries))
                if not is_asked:
                    is_asked = True
                    direct.update(self._read_directly(ring, parts, number))
            datas = direct.get(number)
            if datas is None or not are_right(datas, parts[number]):
                datas = self._read(stream, parts[number])
            found.update(enumerate(datas, len(found)))
        return spans

    def _read_directly(self, ring: Ring, parts: list[Part], first: int) -> Direct:
        """Of the parts from `first` on, those that lie far apart and not in memory: read past the page cache, all at
        once. The kernel is asked for all others that it has to read.
        """
        alone: list[tuple[int, LogFile]] = []
        reads = self._direct
        if reads is None:
            reads = self._direct = parts[first][0].range_reads()
        for number, part in enumerate(islice(parts, first, None), first):
            if self.is_recent(ring, part):
                break  # and so are all later ones
            segment, flat, entries, is_sparse, _ = part
            file = _file_past_cache(segment, flat, entries) if is_sparse and not reads.is_refused else None
            if file is not None:
                alone.append((number, file))
            elif segment.wants_asking:
                segment.ask(positions_of(part), lengths_of(part))
        if not alone:
            return {}
        ranges: list[Range] = []
        for number, file in alone:
            _, flat, entries, _, _ = parts[number]
            ranges += [(file, flat[3 * entry], flat[3 * entry + 1]) for entry in entries]
        read = reads.read(ranges) if len(ranges) <= DIRECT_MESSAGES else None
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

    def _copied_recent(self, stream: Stream, part: Part, found: dict[int, bytes]) -> bool:
        """Add messages that the ring had a moment ago; False if it has lost them. Raises StoreCorrupt."""
        ring, base, begin = stream.lane.ring, part[0].base, len(found)
        assert base is not None
        is_right = _copied(ring, base, part, found)
        datas = [*islice(found.values(), begin, None)]
        if not self.is_recent(ring, part):  # overtaken while it was copied
            is_right = False
        elif not is_right and ring.is_own:
            raise self._damage(stream, part, datas)
        elif not is_right:  # of another process's: the file has the bytes as well
            self._counters.unsound_messages += 1
        if not is_right:
            for index in range(begin, len(found)):
                del found[index]
            return False
        self._counters.recent_messages += len(datas)
        self._counters.recent_bytes += sum(map(len, datas))
        return True

    def read(self, stream: Stream, part: Part) -> list[bytes]:
        """The messages of a part, by system calls alone; they do not count yet. Raises as `Bytes.fetch`."""
        if part[0].wants_asking:
            part[0].ask(positions_of(part), lengths_of(part))
        return self._read(stream, part)

    def _read(self, stream: Stream, part: Part) -> list[bytes]:
        segment, flat, entries, _, _ = part
        datas: list[bytes] = []
        try:
            if len(entries) == 1:  # as in a queue that is spread over the log
                lengths = [flat[3 * entries[0] + 1]]
                datas.append(segment.read_one(flat[3 * entries[0]], lengths[0]))
                size, calls = lengths[0], 1
            else:
                lengths = lengths_of(part)
                size, calls = segment.read_on(datas, positions_of(part), lengths)
        except OSError:
            segment.check_open()
            raise
        self._counters.count_device(lengths, min(lengths), size, calls)
        if not are_right(datas, part):
            raise self._damage(stream, part, datas)
        return datas

    def _damage(self, stream: Stream, part: Part, datas: Sequence[bytes]) -> Exception:
        """The error for bytes that are not those that were written; `datas` may end with the first of them."""
        segment = part[0]
        segment.check_open()
        if segment.removed:  # retention took the segment while it was read
            return OffsetOutOfRange(stream.topic, stream.queue_id, part[4], *self._finder.bounds(stream))
        positions = positions_of(part)
        places = zip(positions, checksums_of(part), datas, strict=False)
        wrong = (at for at, checksum, data in places if checksum64(data) & LOW_32 != checksum)
        position = next(wrong, positions[0])
        return StoreCorrupt("a message's bytes do not match their checksum", segment.path, position)


def are_right(datas: Sequence[bytes], part: Part) -> bool:
    """Whether these bytes are those of a part's messages, by their checksums."""
    return [whole & LOW_32 for whole in map(checksum64, datas)] == checksums_of(part)


def _copied(ring: Ring, base: int, part: Part, found: dict[int, bytes]) -> bool:
    """Add copies of messages that the ring has; False after the first one that has a wrong checksum."""
    _, flat, entries, _, _ = part
    first, last = flat[3 * entries[0]], 3 * entries[-1]
    origin, size, memory = ring.shape
    shift = (base + first - origin) % size - first
    is_cut = flat[last] + flat[last + 1] + shift > size  # the end of the ring lies between them
    if is_cut or (len(entries) > FEW_MESSAGES and isinstance(entries, range)):
        datas = ring.copies(base, positions_of(part), lengths_of(part))
        found.update(enumerate(datas, len(found)))
        return are_right(datas, part)
    for index, entry in enumerate(entries, len(found)):
        place = 3 * entry
        at = flat[place] + shift
        found[index] = data = memory[at : at + flat[place + 1]]
        if checksum64(data) & LOW_32 != flat[place + 2]:
            return False
    return True


def _file_past_cache(segment: Segment, flat: Sequence[int], entries: Sequence[int]) -> LogFile | None:
    """The file to read messages from each by itself, that lie far apart; None if they are better had otherwise."""
    if segment.is_in_memory(flat, entries):
        return None
    try:
        file = segment.past_cache()
    except OSError:  # there may be no descriptor for it: those that are open are enough
        return None
    return file if file is not None and segment.windows.reads_singly(flat, entries) else None
