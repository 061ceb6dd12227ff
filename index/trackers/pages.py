"""The rows of a sealed bucket once more, by place: which entries it has, and when each of them is due.

They lie in pages. Memory has the directory, and the pages that were used last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..columns import Int64s
from .files import Files
from .format import PAGES, checksum, damaged, packed_page, unpacked_page
from .places import ENTRY_BITS, Rows

PAGE_ROWS = 1 << 13
KEPT_PAGES = 32  # in memory, of all buckets of a tracker: 4 MiB
MOST_ENDS = 1 << 16  # the highest ledgers whose ends are known


def packed_pages(places: Int64s, times: Int64s, at: int) -> tuple[bytes, npt.NDArray[np.void]]:
    """Pages of these rows, whose places ascend, and their directory; the first one is written at `at`."""
    begins = range(0, len(places), PAGE_ROWS)
    directory, parts = np.zeros(len(begins), PAGES), []
    for number, begin in enumerate(begins):
        end = min(begin + PAGE_ROWS, len(places))
        data, gap, delta, base_ms = packed_page(places[begin:end], times[begin:end])
        record = at, int(places[begin]), int(places[end - 1]), base_ms, end - begin, gap, delta, 0, checksum(data)
        directory[number] = record
        parts.append(data)
        at += len(data)
    return b"".join(parts), directory


def ends_of(places: Int64s) -> Int64s:
    """The last place of each ledger; places ascend."""
    return places[np.flatnonzero(np.diff(places >> ENTRY_BITS, append=-1))]


class LedgerEnds:
    """The last places of ledgers in buckets: later places of these ledgers are in no bucket.

    Only the ends of the highest ledgers are known. Of the others, any place may be in a bucket.
    """

    def __init__(self) -> None:
        self._ends = np.empty(0, np.int64)
        self._sure_from = 0  # ledgers before this one may have any place

    def note(self, ends: Int64s, sure_from: int) -> None:
        """Add a bucket's last places, one for each ledger; of ledgers before `sure_from` it may have any place."""
        all_ends = ends_of(np.sort(np.concatenate([self._ends, ends])))
        self._sure_from = max(self._sure_from, sure_from)
        if len(all_ends) > MOST_ENDS:
            all_ends = all_ends[-MOST_ENDS:]
            self._sure_from = max(self._sure_from, int(all_ends[0]) >> ENTRY_BITS)
        self._ends = all_ends

    def may_have(self, places: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which places may be in a bucket."""
        found: npt.NDArray[np.bool_] = places < self._sure_from << ENTRY_BITS
        if len(self._ends):
            last = self._ends[np.minimum(np.searchsorted(self._ends, places), len(self._ends) - 1)]
            found |= (places <= last) & (places >> ENTRY_BITS == last >> ENTRY_BITS)
        return found

    @property
    def memory_bytes(self) -> int:
        """The memory that they take."""
        return self._ends.nbytes


class PageCache:
    """The pages that were used last, of all buckets of a tracker."""

    def __init__(self) -> None:
        self._pages: OrderedDict[tuple[str, int], Rows] = OrderedDict()

    def get(self, name: str, number: int) -> Rows | None:
        """A page, or None if it is not here."""
        found = self._pages.get((name, number))
        if found is not None:
            self._pages.move_to_end((name, number))
        return found

    def put(self, name: str, number: int, rows: Rows) -> None:
        """Keep a page; the one that was not used for the longest time goes."""
        self._pages[name, number] = rows
        while len(self._pages) > KEPT_PAGES:
            self._pages.popitem(last=False)

    def clear(self) -> None:
        """Forget all pages."""
        self._pages.clear()

    def forget(self, name: str) -> None:
        """Forget the pages of a file that is removed."""
        for key in [key for key in self._pages if key[0] == name]:
            del self._pages[key]

    @property
    def memory_bytes(self) -> int:
        """The memory of the pages."""
        return sum(times.nbytes + places.nbytes for times, places in self._pages.values())


class Pages:
    """The pages of one bucket's file."""

    def __init__(self, files: Files, name: str, directory: npt.NDArray[np.void], cache: PageCache) -> None:
        self._files = files
        self._name = name
        self._directory = directory
        self._firsts: Int64s = np.ascontiguousarray(directory["first"])
        self._lasts: Int64s = np.ascontiguousarray(directory["last"])
        self._cache = cache

    @property
    def memory_bytes(self) -> int:
        """The memory of the directory."""
        return int(self._directory.nbytes + self._firsts.nbytes + self._lasts.nbytes)

    def find(self, places: Int64s) -> tuple[npt.NDArray[np.bool_], Int64s]:
        """(n,) which places have a row in the bucket, and (n,) when these are due. Raises TrackerDamaged, OSError."""
        found, times = np.zeros(len(places), np.bool_), np.zeros(len(places), np.int64)
        numbers = np.searchsorted(self._firsts, places, side="right") - 1
        inside = np.flatnonzero((numbers >= 0) & (places <= self._lasts[numbers]))
        for number in np.unique(numbers[inside]).tolist():
            mine = inside[numbers[inside] == number]
            page_times, page_places = self._page(number)
            at = np.searchsorted(page_places, places[mine])  # within the page, which ends at or after each of them
            is_here = page_places[at] == places[mine]
            found[mine[is_here]] = True
            times[mine[is_here]] = page_times[at[is_here]]
        return found, times

    def between(self, first: int, before: int) -> Iterator[Rows]:
        """The rows of the places `first` .. `before` - 1, in parts."""
        low = max(0, int(np.searchsorted(self._firsts, first, side="right")) - 1)
        for number in range(low, int(np.searchsorted(self._firsts, before))):
            times, places = self._page(number)
            rows = slice(*np.searchsorted(places, (first, before)).tolist())
            if len(places[rows]):
                yield times[rows], places[rows]

    def parts(self, part_rows: int) -> Iterator[Rows]:
        """All rows, in parts of `part_rows` or a few more."""
        number, rows = 0, self._directory["rows"]
        while number < len(rows):
            end, count = number + 1, int(rows[number])
            while end < len(rows) and count < part_rows:
                count += int(rows[end])
                end += 1
            read = self._read(number, end)
            yield np.concatenate([one[0] for one in read]), np.concatenate([one[1] for one in read])
            number = end

    def _page(self, number: int) -> Rows:
        found = self._cache.get(self._name, number)
        if found is None:
            [found] = self._read(number, number + 1)
            self._cache.put(self._name, number, found)
        return found

    def _read(self, first: int, end: int) -> list[Rows]:
        records = self._directory[first:end]
        sizes = records["rows"].astype(np.int64) * (records["gap"] + records["delta"])
        data = memoryview(self._files.read(self._name, int(records["at"][0]), int(sizes.sum())))
        pages, at = [], 0
        for record, size in zip(records, sizes.tolist(), strict=True):
            page = data[at : at + size]
            if checksum(page) != int(record["checksum"]):
                raise damaged(f"a page of {self._name}")
            pages.append(unpacked_page(page, record))
            at += size
        return pages


def in_place_order(rows: Rows) -> Rows:
    """The rows in the order of their places."""
    order = np.argsort(rows[1], kind="stable")
    return rows[0][order], rows[1][order]
