"""The files of a closed lane by their first two blocks: the first step of `inspect` and `verify`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..device.disk import Disk
from ..device.lane_start import FoundStart, read_start
from ..format.arrays import Uint32s
from ..format.footer import Footer, names_in
from ..format.layout import START_FILE, segment_name
from ..segment.evidence import (
    HEAD_BYTES,
    SEGMENT_IS_CUT,
    SEGMENT_IS_MISSING,
    START_IS_LOST,
    first_number,
    is_lost,
    is_of_another_store,
    missing_numbers,
)
from ..segment.files import SegmentFile, read_segment_file, segment_numbers
from .report import Damage


class Listing(NamedTuple):
    """The segment files of a lane's log by sequence, and the log's start by the lane's START."""

    folder: Path
    files: list[SegmentFile]
    found: FoundStart
    numbers: list[int]

    @property
    def first(self) -> int:
        """The first segment of the log."""
        return first_number(self.found, self.numbers)

    @property
    def start_damage(self) -> Damage | None:
        """The damage of START, if it is not whole and matters."""
        return Damage(START_IS_LOST, str(self.folder / START_FILE), 0) if is_lost(self.found, self.numbers) else None

    def missing(self, used: Sequence[SegmentFile]) -> Iterator[Damage]:
        """The missing segments, the first one of each stretch; `used` are the files in use."""
        last = max((file.sequence for file in used), default=0)
        is_closed = bool(used) and used[-1].state == "closed"
        unused = [file for file in self.files if file.sequence > last]
        spares = [file.sequence for file in unused if is_closed or not file.is_cut]
        for missing in missing_numbers(self.first, [file.sequence for file in used], spares):
            is_there = any(file.sequence == missing.start for file in unused)
            what = SEGMENT_IS_CUT if is_there else SEGMENT_IS_MISSING
            yield Damage(what, str(self.folder / segment_name(missing.start)), 0)


def listing_of(disk: Disk, folder: Path, lane: int, store_id: bytes | None) -> Listing:
    """The segment files of a lane. `store_id` None accepts the headers of any store.

    A spare is a file after the last one in use, with a first block that is blank or another segment's.
    """
    numbers = segment_numbers(disk, folder)
    found = read_start(disk, folder, lane, store_id)
    first = first_number(found, numbers)
    known = [number for number in numbers if number >= first]
    files = [read_segment_file(disk, folder, number, lane, store_id, first, HEAD_BYTES) for number in known]
    at = {file.sequence: file for file in files}
    files = [file._replace(is_foreign=file.is_foreign or _is_foreign(file, at, lane, store_id)) for file in files]
    last = max((file.sequence for file in files if file.header is not None), default=0)
    files = [file._replace(is_spare=file.is_blank and file.sequence > last) for file in files]
    return Listing(folder, files, found, numbers)


def _is_foreign(file: SegmentFile, at: Mapping[int, SegmentFile], lane: int, store_id: bytes | None) -> bool:
    """Whether a file with a damaged header belongs to another store."""
    if file.header is not None or file.is_blank:
        return False
    before, following = at.get(file.sequence - 1), at.get(file.sequence + 1)
    return is_of_another_store(
        file.head, lane, store_id, file.sequence,
        None if before is None else before.record, None if following is None else following.header,
    )  # fmt: skip


class LaneNames:
    """The names of a lane's streams from its footers, one after another.

    Names that the footer before had as well are not decoded again. Small footers add to the full one before them.

    Attributes:
        fresh: the number of the first stream whose name differs from the footer before.
    """

    def __init__(self) -> None:
        self.fresh = 0
        self._footer: Footer | None = None
        self._topics: list[str] = []
        self._columns: Uint32s = np.zeros((2, 0), np.uint32)
        self._names: list[tuple[str, int]] = []

    def of(self, footer: Footer) -> list[tuple[str, int]]:
        """(topic, queue id) of the lane's streams by number; do not change the list. Raises StoreCorrupt."""
        if footer is self._footer:
            return self._names
        if footer.is_full:
            topics, columns = footer.topics(), np.array([footer.stream_topic, footer.stream_queue], np.uint32)
            known = self._columns.shape[1]
            goes_on = topics[: len(self._topics)] == self._topics and np.array_equal(columns[:, :known], self._columns)
            self.fresh = known if goes_on else 0
            more = [(topics[topic], queue_id) for topic, queue_id in columns[:, self.fresh :].T.tolist()]
            self._names = self._names[: self.fresh] + more
            self._topics, self._columns = topics, columns
        else:
            self.fresh = len(self._names)
            for number, name in zip(footer.numbers.tolist(), names_in(footer), strict=True):
                if number == len(self._names):
                    self._names.append(name)
        self._footer = footer
        return self._names
