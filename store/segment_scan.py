"""The scan of one segment in recovery: along its chain of frames, to the end of the log or to damage.

Where the chain breaks, the log ends, unless something later says that the lane was durable beyond the break:
then it is damage. A repair sets the damaged range aside and goes on with the next frame behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .errors import StoreCorrupt
from .lane_streams import FooterNames, LaneStreams
from .rebuild import ScanColumns
from .repair import Repair
from .scanner import FrameScanner, Scanned, good_messages
from .segment_files import LaneFiles, UsedFile, mark_of


class SegmentScan:
    """Scans one segment; `later` are the segments in use behind it.

    After `run`, the scanner stands at the end of the log, `columns` has all messages before it, and
    `has_gaps` says that a repair left some out, `is_torn` that the log ends inside the last frame.
    """

    def __init__(
        self,
        scanner: FrameScanner,
        file: UsedFile,
        later: Sequence[UsedFile],
        files: LaneFiles,
        repair: Repair,
    ) -> None:
        self._scanner = scanner
        self._file = file
        self._later = later
        self._files = files
        self._repair = repair
        self.columns = ScanColumns()
        self.has_gaps = False
        self.is_torn = False

    def run(self, streams: LaneStreams, behind: FooterNames | None) -> None:
        """Scan; streams are learned on the way. Raises StoreCorrupt for damage, unless repairing."""
        going = True
        while going:
            begin = self._scanner.position
            found = self._scanner.next()
            if found is None:
                going = self._step_over(begin)
            else:
                streams.learn(found.frame, behind)
                going = self._take(found)

    def _step_over(self, begin: int) -> bool:
        """The chain ended at `begin`. False if the log ends there; a repair steps over damage: True."""
        scanner, file, next_entry = self._scanner, self._file, self.columns.next_entry
        ends = [file.record.chain] if file.record is not None else []
        ends += [other.header.previous_chain for other in self._later[:1]]
        if scanner.chain in ends or not self._durable_beyond(begin):
            return False
        self._repair.on_damage("a frame is damaged or missing", file.path, begin)
        self.has_gaps = True
        following = scanner.find_later(begin, scanner.reader.size_bytes)
        resumed = next((header for header in following if header.first_entry >= next_entry), None)
        stop = resumed.position if resumed is not None else scanner.reader.size_bytes
        lost = resumed.first_entry - next_entry if resumed is not None else 0
        if stop > begin or resumed is None:
            self._repair.set_aside(file.path, begin, max(0, stop - begin), lost)
        if resumed is None:
            return False
        scanner.position, scanner.chain = resumed.position, resumed.chain
        self.columns.next_entry = resumed.first_entry
        return True

    def _take(self, found: Scanned) -> bool:
        """Take a frame on the chain. False if the log ends in it; a repair keeps its good messages: True."""
        if found.is_whole:
            self._add(found, found.whole)
            return True
        frame, header = found.frame, found.frame.header
        # A torn tail counts as well in a repair: the segment is sealed then, and not gone on with.
        self.has_gaps = self.has_gaps or self._repair.allowed
        position = int(frame.starts()[found.whole])
        if not self._durable_beyond(position):
            self._scanner.position = position
            self._add(found, found.whole)
            self.is_torn = True
            return False
        self._repair.on_damage("a message's bytes do not match their checksum", self._file.path, position)
        good = good_messages(frame, found.payload)
        self._repair.set_aside(
            self._file.path, header.position, header.end - header.position, int((~good).sum())
        )
        self._add(found, header.count, good)
        return True

    def _add(self, found: Scanned, count: int, good: npt.NDArray[np.bool_] | None = None) -> None:
        header = found.frame.header
        if header.first_entry != self.columns.next_entry:
            raise StoreCorrupt("a frame's entry number is wrong", self._file.path, header.position)
        self.columns.add(found.frame, count, good)

    def _durable_beyond(self, position: int) -> bool:
        """Does anything say that the lane was durable beyond `position` of this segment?"""
        if self._file.record is not None:
            return True
        place = (self._file.sequence, position)
        frames = self._scanner.find_later(position, self._scanner.reader.size_bytes)
        return any(mark_of(frame) > place for frame in frames) or self._files.vouched(self._later, place)
