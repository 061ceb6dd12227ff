"""The exact offsets that a whole footer further on gives to a segment that has none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..device.disk import Disk
from ..format.footer import FooterData
from ..format.layout import UNKNOWN
from ..segment.scanner import ChunkReader, FrameScanner, open_sequential
from .lane_files import UsedFile
from .lane_streams import footer_of


class Ahead(NamedTuple):
    """What the first whole footer behind a segment says of the segment's end.

    ends (streams,): each stream's next offset behind the segment; too high by the messages that are lost in between.
    messages_before: of the log before this end, if none is lost in between; or UNKNOWN.
    is_next: nothing lies in between, so `ends` are exact.
    """

    footer: FooterData
    ends: npt.NDArray[np.int64]
    messages_before: int
    is_next: bool


def ends_ahead(disk: Disk, folder: Path, later: Sequence[UsedFile]) -> Ahead | None:
    """The first whole footer of the segments behind one, carried back to that one's end. None if they have none."""
    found = np.zeros(0, np.int64)
    for index, file in enumerate(later):
        footer = footer_of(disk, folder, file)
        if footer is not None:
            ends = footer.first.copy()
            ends -= np.resize(np.concatenate([found, np.zeros(len(ends), np.int64)]), len(ends))
            before = file.header.messages_before
            return Ahead(footer, ends, before - int(found.sum()) if before != UNKNOWN else UNKNOWN, index == 0)
        counts = _messages(disk, file)
        total = np.zeros(max(len(found), len(counts)), np.int64)
        total[: len(found)] += found
        total[: len(counts)] += counts
        found = total
    return None


def _messages(disk: Disk, file: UsedFile) -> npt.NDArray[np.int64]:
    """How many messages of each stream the frames of a segment have, on the chain or not."""
    data = open_sequential(disk, file.path)
    reader = ChunkReader(data, file.record.data_end if file.record is not None else data.size())
    try:
        scanner = FrameScanner(reader, file.header.lane, file.sequence, 0, 0)
        numbers = [np.zeros(0, np.uint32)]
        for header in scanner.find_later(0, reader.size_bytes):
            frame = scanner.frame_at(header.position)
            if frame is not None:
                numbers.append(frame.numbers)
        return np.bincount(np.concatenate(numbers))
    finally:
        reader.close()
        data.close()
