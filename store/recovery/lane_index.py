"""The footers of a lane's segments that have no whole one: made of their frames and of facts from the neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..format.arrays import Int64s
from ..format.footer import FooterData
from ..format.layout import DATA_START
from ..segment.segment import Segment
from .lane_files import LaneFiles
from .lane_streams import LaneStreams, LaterNames, footer_of, whole_before
from .neighbours import first_told, look_ahead
from .placement import ANY, NO_OFFSET, OffsetBounds
from .reindex import ScanColumns, index_by_footer, index_columns, leave_out, lost_count
from .repair import Repair
from .segment_scan import SegmentScan
from .tally import MessageTally
from .used_file import UsedFile

_NOTHING = np.zeros(0, np.int64)


class LaneIndex:
    """See the module's text. Each new footer moves the streams past its segment; what is lost is noted.

    In all calls `later` are the segments in use after the one at hand.
    """

    def __init__(
        self, disk: Disk, folder: Path, files: LaneFiles, streams: LaneStreams, tally: MessageTally, repair: Repair
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._files = files
        self._streams = streams
        self._tally = tally
        self._repair = repair

    def of_scan(
        self, scan: SegmentScan, segment: Segment, file: UsedFile, behind: LaterNames | None,
        later: Sequence[UsedFile], *, is_oldest: bool,
    ) -> FooterData:  # fmt: skip
        """The footer of a scanned segment: its own once more, if it was found, else one made of the frames.

        `is_oldest`: it is the first one that retention has left. Then only its footer says what was before.
        """
        columns, footer, streams = scan.columns, scan.footer, self._streams
        if footer is not None and is_oldest:
            before = footer if footer.stream is None else whole_before(self._disk, self._folder, [file, *later])
            if before is not None:
                streams.load_before(before)  # what its frames name are streams that began here
        if footer is not None and footer.stream is not None:
            if file.record is not None:
                streams.know(file.record.streams, behind, segment.path)
            told = first_told(self._disk, self._folder, later) if NO_OFFSET in streams.next_offsets else _NOTHING
            footer = streams.widened(footer, told)
        if footer is not None and streams.continues_with(footer) and not scan.end_is_lost:
            data = index_by_footer(columns, footer, streams.begins(footer))
            if data is not None and not self.leaves_a_gap(data.next_offsets, file, later):
                streams.take_over(footer)
                streams.next_offsets = data.next_offsets.tolist()
                data.trimmed, data.applied = streams.trimmed_at(data.next_offsets), streams.applied
                self._tally.place(segment.path, lost_count(data) - lost_count(footer), is_exact=True, is_sure=True)
                return data
        # A lost frame may have named some; of others no frame may be left.
        streams.know(columns.streams(), behind, segment.path)
        if streams.unnamed:
            self._repair.on_break("a stream was never defined", segment.path, DATA_START)
        bounds = self._bounds(later, scan)
        is_last = not later and self._files.ends_before <= segment.sequence + 1  # the log ends here
        return self._index(
            columns, segment, bounds, is_exact=bounds.is_exact and not bounds.is_partial, is_last=is_last
        )

    def of_lost(self, segment: Segment, later: Sequence[UsedFile], count: int) -> FooterData:
        """The footer of an empty segment in the place of a lost one, the first of `count` in a row."""
        bounds = self._bounds(later).share(count)
        return self._index(
            ScanColumns(), segment, bounds, is_exact=bounds.is_exact and not bounds.is_partial and count == 1
        )

    def leaves_a_gap(self, ends: Int64s, file: UsedFile, later: Sequence[UsedFile]) -> bool:
        """Does a stream that ends like this go on at a later offset in the next segment, by that one's whole footer?

        It does if a copy from before a repair was put back: the repair had left these offsets out.
        """
        if not later or later[0].sequence != file.sequence + 1:
            return False
        following = footer_of(self._disk, self._folder, later[0])
        if following is None:
            return False
        numbers = following.numbers
        known = numbers < len(ends)
        return bool((following.first[known] > ends[numbers[known]]).any())

    def _bounds(self, later: Sequence[UsedFile], scan: SegmentScan | None = None) -> OffsetBounds:
        """The known bounds of the offsets of the segment at hand, besides what its frames say.

        `scan` has its frames; None for an empty one.
        """
        streams, unplaced = self._streams, self._tally.unplaced
        ahead = look_ahead(self._disk, self._folder, later) if self._repair.allowed else None
        if ahead is not None and ahead.footer is not None:
            streams.take_over(ahead.footer)
        bounds = OffsetBounds(np.array(streams.next_offsets, np.int64), ANY if unplaced is None else unplaced)
        end = scan.end_entry if scan is not None else 0
        if ahead is not None:
            bounds.lows = ahead.lows
        if ahead is not None and ahead.ends is not None:
            # What is missing between two segments is left out in the place of the missing ones.
            adjacent = scan is None or later[0].sequence == scan.sequence + 1
            bounds.ends, bounds.is_exact = ahead.ends, ahead.is_next and adjacent
            bounds.is_partial = ahead.is_partial
            end = scan.entry_before(ahead.messages_before) if scan is not None else None
        if scan is not None and end is not None:
            bounds.inside = max(0, end - scan.columns.count)
        return bounds

    def _index(
        self, columns: ScanColumns, segment: Segment, bounds: OffsetBounds, *, is_exact: bool, is_last: bool = False
    ) -> FooterData:
        """The footer of scanned columns; the streams go on after it.

        With `is_exact` it ends where the next footer begins. At the log's end, no queue gives an offset again that one
        of the lost messages may have had.
        """
        streams, tally, path = self._streams, self._tally, segment.path
        data, is_sure = index_columns(columns, streams.names, bounds, self._repair, path)
        tally.place(path, lost_count(data), is_exact=is_exact, is_sure=is_sure)
        if is_last and tally.unplaced:
            more = leave_out(data, tally.unplaced)
            if more is not None:
                data = more
                tally.is_left_out()
        streams.next_offsets = data.next_offsets.tolist()
        data.trimmed, data.applied = streams.trimmed_at(data.next_offsets), streams.applied
        return data
