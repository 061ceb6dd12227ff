"""Segments: files of frames, and the one place where a message's bytes are fetched from. `writer` writes them."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from ..device.disk import Disk
from ..device.leased import LeasedMap
from ..device.log_file import LogFile, RangeReads
from ..device.open_files import are_scarce, let_go_of_most, note_opened
from ..device.ring import Ring
from ..errors import StoreClosed
from ..format.layout import SegmentHeader, segment_name
from .copies import Copies
from .windows import Windows
from .writer import SegmentWriter

NEAR_BYTES = 16 << 10  # a gap that is cheaper to read than to skip
GROUP_BYTES = 1 << 20
MAP_AFTER = 8  # looks, where descriptors are scarce: a mapping costs as much as many reads
TRIES = 4  # to open a file where the process has no descriptor left
MAP_AGAIN_S = 1.0  # after a lease was refused, or given back


class Segment:
    """One segment file as readers have it (`data`). What writes it is apart: `writer`.

    Readers have four ways to bytes, the cheapest first: a mapping under a lease (`leased`, `copied`), the only one that
    there is of the file; kept windows (`copies`, looked into by `read.lane_places`); system calls (`read_one`,
    `read_on`, `read_places`), by which footers are read, too; reads past the page cache, of the file that `past_cache`
    gives. The ring comes before all of them: readers ask it themselves, or by `fetch`.

    `base` maps positions in this file to lane positions of the ring (lane position = base + position);
    it is None for a segment from before this opening of the store.

    Invariant: a segment with a mapping is in the set `_mapped` that its lane has of them; no other is there for long.

    Any number of threads may read. They share `_data`, which goes and comes under `_opening`; a reader takes it once,
    and with it the descriptor until the end of the call. `let_go` gives back all that readers have of the file: its
    descriptors, and the lease with the mapping.
    """

    def __init__(self, disk: Disk, folder: Path, header: SegmentHeader, *, direct: bool) -> None:
        self.path = folder / segment_name(header.sequence)
        self.sequence = header.sequence
        self.header = header
        self.base: int | None = None
        self.removed = False
        self.without_windows = False  # nobody will want what lies around a message that is read
        self._disk = disk
        self.writer = SegmentWriter(disk, self.path, direct=direct)
        self._data: LogFile | None = None
        self._past_cache: LogFile | None = None  # the file once more, with O_DIRECT
        self._is_cached = False  # the file system does not take O_DIRECT: there is no `past_cache`
        self._closed = False
        self._opening = threading.Lock()
        self.leased: LeasedMap | None = None
        self._mapped: set[Segment] = set()
        self._map_at = 0.0  # not before (`time.monotonic`)
        self._used = False  # see `was_used`
        self._unmapped = 0  # how often it was not mapped because descriptors are scarce, since it was opened
        self.windows = Windows()
        self.copies = Copies()

    def open_writer(self) -> LogFile:
        """Open the writing side. Raises OSError."""
        file = self.writer.open()
        # Where appending goes on in it, the windows past its old end were read ahead as zeros.
        self.windows.forget()
        return file

    @property
    def data(self) -> LogFile:
        """The file to read from. Raises StoreClosed."""
        return self._data if self._data is not None else self.open_data()

    @property
    def is_open(self) -> bool:
        """Whether the reading side has a descriptor."""
        return self._data is not None

    def open_data(self) -> LogFile:
        """Open the reading side. Raises StoreClosed when the store was closed meanwhile, and OSError."""
        for _ in range(TRIES):
            try:
                return self._open_data()
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
            let_go_of_most()
        return self._open_data()

    def _open_data(self) -> LogFile:
        with self._opening:
            self.check_open()
            data = self._data
            if data is not None:
                return data
            data = self._data = self._opened_to_read()
            self._unmapped = 0
        note_opened(self)
        return data

    def _opened_to_read(self) -> LogFile:
        return self._disk.open_to_read(self.path)

    def open_sequential(self) -> LogFile:
        """The file for reading from front to back, past the page cache where possible; close it after use."""
        return self.data.sequential()

    def range_reads(self) -> RangeReads:
        """The reads for `past_cache` files of this segment's disk."""
        return self._disk.range_reads()

    def past_cache(self) -> LogFile | None:
        """The file for reads past the page cache; None where it cannot be read so. Raises StoreClosed, OSError."""
        if self._past_cache is not None or self._is_cached or self.without_windows:
            return self._past_cache
        data = self.data
        with self._opening:
            self.check_open()
            if self._past_cache is not None:
                return self._past_cache
            file = data.sequential()
            if not file.direct:
                self._is_cached = True
                return None
            self._past_cache = file
        note_opened(self)
        return file

    def is_in_memory(self, flat: Sequence[int], entries: Sequence[int]) -> bool:
        """Whether the page cache has all of these messages, as far as that can be told without a system call each."""
        if not self._may_be_cached:
            return False
        leased = self.leased or self._map()
        return self.windows.has(flat, entries) if leased is None else leased.has_pages(flat, entries)

    @property
    def _may_be_cached(self) -> bool:
        """False for what was written past the page cache in this opening, before the kernel is asked for any of it.

        Other processes may have read it; that counts for nothing.
        """
        return self.base is None or not self.writer.wants_direct or self.windows.are_used

    def fetch(self, ring: Ring | None, position: int, size: int) -> tuple[bytes, bool]:
        """`size` bytes at `position`, and whether they came from the ring of recent frames."""
        if ring is not None and self.base is not None:
            at = self.base + position
            if at >= ring.low:
                found = ring.copy(at, size)
                if at >= ring.low:
                    return found, True
        return self.read(position, size), False

    def read(self, position: int, size: int) -> bytes:
        """`size` bytes from the file, fewer at its end."""
        return self.read_places([position], [size])[0][0]

    def read_places(self, starts: Sequence[int], lengths: Sequence[int]) -> tuple[list[bytes], int, int]:
        """Each of the ranges, and how many bytes with how many calls: those near each other with one. Starts ascend."""
        found: list[bytes] = []
        if self.wants_asking:
            self.ask(starts, lengths)
        try:
            size, calls = self.read_on(found, starts, lengths)
        except OSError:
            self.check_open()
            raise
        return found, size, calls

    @property
    def wants_asking(self) -> bool:
        """False if the kernel need not be asked for what is read: all of it was, or each message is read by itself."""
        windows = self.windows
        return not (self.without_windows or (windows.all_asked and monotonic() < windows.look_at))

    def ask(self, starts: Sequence[int], lengths: Sequence[int]) -> None:
        """Have the kernel asked for some ranges before the first of them is read. A hint."""
        data, leased = self._data or self.data, self.leased
        self.windows.prepare(data, starts, lengths, written=self.writer.is_open, leased=leased)

    def read_one(self, start: int, length: int) -> bytes:
        """The bytes of one range. Raises OSError."""
        self._used = True
        return (self._data or self.data).read(start, length)

    def read_on(self, found: list[bytes], starts: Sequence[int], lengths: Sequence[int]) -> tuple[int, int]:
        """Add the bytes of the ranges to `found`: how many were read, and with how many calls. Raises OSError."""
        self._used = True
        read, end = (self._data or self.data).read, len(starts)
        if end == 1:  # as in a queue that is spread over the log
            found.append(read(starts[0], lengths[0]))
            return lengths[0], 1
        index = 0
        total = calls = 0
        while index < end:
            begin, last = starts[index], index + 1
            limit = begin + lengths[index]
            while last < end and 0 <= starts[last] - limit <= NEAR_BYTES and limit - begin < GROUP_BYTES:
                limit = starts[last] + lengths[last]
                last += 1
            part = read(begin, limit - begin)
            total += limit - begin
            calls += 1
            if last == index + 1:
                found.append(part)
            else:
                places = zip(starts[index:last], lengths[index:last], strict=True)
                found += [part[(low := at - begin) : low + length] for at, length in places]
            index = last
        return total, calls

    def copied(self, flat: Sequence[int], entries: Sequence[int], found: dict[int, bytes]) -> int:
        """Add those messages to `found` that can be had without a system call, as `LeasedMap.copied` does: how many."""
        leased = self.leased
        if leased is None and self._may_be_cached:
            leased = self._map()
        return 0 if leased is None or leased.memory is None else leased.copied(flat, entries, found)

    def copied_pieces(self, view: memoryview, begins: Sequence[int], ends: Sequence[int]) -> bool:
        """Fill a buffer with some ranges, without a system call; False if they cannot all be had so."""
        leased = self.leased or self._map()
        return leased is not None and leased.copied_pieces(view, begins, ends)

    def read_pieces(self, view: memoryview, begins: Sequence[int], ends: Sequence[int]) -> bool:
        """Fill a buffer with some ranges, a system call each; False if the file ends before. Raises OSError."""
        self._used = True
        data, at = self._data or self.data, 0
        for begin, end in zip(begins, ends, strict=True):
            following = at + end - begin
            if data.read_into([view[at:following]], begin) != end - begin:
                return False
            at = following
        return True

    def join(self, mapped: set[Segment]) -> None:
        """Be in this set of a lane's from now on, whenever the file is mapped."""
        with self._opening:
            self._mapped = mapped
            if self.leased is not None:
                mapped.add(self)

    def _map(self) -> LeasedMap | None:
        """Map the file if nobody writes to it, us included."""
        if self.writer.is_open or monotonic() < self._map_at:
            return None
        if self._unmapped < MAP_AFTER and are_scarce():
            self._unmapped += 1
            return None
        data = self._data or self.data
        with self._opening:
            if self.leased is not None or self.removed or self._closed or monotonic() < self._map_at:
                return self.leased
            self._map_at = monotonic() + MAP_AGAIN_S
            try:
                self._mapped.add(self)  # first: `give_way` then finds it
                leased = self.leased = LeasedMap(data)
            except OSError:
                return None
            finally:
                if self.leased is None:
                    self._mapped.discard(self)
        return leased

    def give_way(self) -> None:
        """If a program waits to write to the file, read it without a mapping for now: it may be cut."""
        leased = self.leased
        if leased is not None and leased.is_wanted():
            self.unmap()

    def unmap(self) -> None:
        """Copy nothing from a mapping for a while. A removed file is not mapped again."""
        with self._opening:
            leased, self.leased = self.leased, None
            self._mapped.discard(self)
            self._map_at = monotonic() + MAP_AGAIN_S
        if leased is not None:
            leased.let_go()

    def check_open(self) -> None:
        """Raises StoreClosed if the store was closed meanwhile: then nothing that was read counts."""
        if self._closed:
            raise StoreClosed("the store was closed while it was read; open it again")

    def stop_writing(self) -> None:
        """Close the writing side; reading goes on."""
        self.writer.close()
        self.windows.forget()  # of the file as long as it was

    def close(self) -> None:
        """Close both sides."""
        self.stop_writing()
        with self._opening:
            self._closed = True
            self._data = self._past_cache = None
        self.unmap()

    def after_fork(self) -> None:
        """In a forked child: have nothing of the file. With it, a lease would outlive the parent that took it."""
        self._opening = threading.Lock()  # a lost thread may hold it
        self._closed = True
        self._data = self._past_cache = self.leased = None
        self._mapped = set()

    def was_used(self) -> bool:
        """Whether the file was read since the last time that this was asked, or copied from its mapping."""
        leased = self.leased
        was_copied = leased is not None and leased.was_used()
        used, self._used = self._used or was_copied, False
        return used

    def let_go(self) -> None:
        """Give the reading side's descriptor back until it is wanted again. Readers inside keep theirs."""
        self.unmap()
        with self._opening:
            if not self.removed:  # a removed segment's name leads nowhere, or to another life of the file
                self._data = None
            self._past_cache = None
