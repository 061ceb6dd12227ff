"""Full segments get their footers, in the order of the log."""

from __future__ import annotations

import threading
from collections import defaultdict, deque

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.footer import Footer
from ..segment.sealing import Ended, StreamNames, let_go, rows_of, seal
from .lane import Lane
from .write import FullSegment


class Sealer:
    """Seals the full segments of all lanes. Any thread may ask it to.

    Invariant: the segments of a lane are sealed in the order of its log, whatever became of earlier attempts: a footer
    begins with the offsets that the one before ends with.

    Attributes:
        names: the names of each lane's streams as footers have them.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._full: deque[tuple[Lane, FullSegment]] = deque()
        self._sealing = threading.Lock()
        self.names: defaultdict[int, StreamNames] = defaultdict(StreamNames)

    def add(self, lane: Lane, full: FullSegment) -> None:
        """All of a segment's frames are forced: it can be sealed."""
        self._full.append((lane, full))

    def seal_full(self) -> None:
        """Seal what is full, of each lane in order. Raises the first error, when all lanes had their turn."""
        with self._sealing:  # also by a thread that waits for it, see `quiet`
            failed: dict[int, Exception] = {}
            while True:
                due = next((entry for entry in list(self._full) if entry[0].index not in failed), None)
                if due is None:
                    break
                lane, full = due
                try:
                    if any(opened.segment is full.segment for opened in lane.view.open):
                        self.seal_now(lane, full)  # else it is done: an interrupt came behind that
                except Exception as error:
                    failed[lane.index] = error
                    continue
                self._full.remove(due)
                rows = rows_of(full.table)
                del due, full
                let_go(rows)
            for first in failed.values():
                raise first

    def seal_now(self, lane: Lane, full: FullSegment) -> None:
        """Write a segment's footer and let readers use it. Raises OSError; the segment then stays open."""
        if not lane.view.open or lane.view.open[0].segment is not full.segment:  # before its footer is written
            raise RuntimeError(f"{full.segment.path} is sealed before an older segment of its lane")
        if not full.segment.direct:
            full.segment.drop_pages(0, full.data_end)
        before: Footer | Ended | None = None
        if lane.view.sealed:
            try:
                before = lane.view.sealed[-1].footer
            except StoreCorrupt:  # and its segment cannot tell either: that costs no other segment its footer
                before = Ended(full.table.first_offsets())
        lane.replace_open(seal(self._disk, full, lane.streams, self.names[lane.index], before))
