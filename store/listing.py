"""The files of a closed lane by their first two blocks: what `inspect` and `verify` begin with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from .disk import Disk
from .footer import Footer
from .format import (
    BLOCK_BYTES,
    DATA_START,
    SEALED,
    SEGMENT_SUFFIX,
    SealRecord,
    SegmentHeader,
    segment_name,
)

_SEGMENT_FILE = re.compile(r"[0-9]{12}\.seg")


class SegmentFile(NamedTuple):
    """A segment file by its first two blocks, which are in `head`.

    `header` is None when block 0 is not this segment's own header: the file is a spare, or damaged.
    `record` is None when block 1 is no seal record of this segment: it is open, or the record is damaged.
    `is_blank`: block 0 is zeros, or the header of a removed segment, as pre-written files have it.
    `is_foreign`: the file is another segment's.
    """

    sequence: int
    path: Path
    size_bytes: int
    head: bytes
    header: SegmentHeader | None
    record: SealRecord | None
    is_blank: bool
    is_foreign: bool
    is_spare: bool

    @property
    def state(self) -> str:
        """open, closed, sealed, spare; or damaged, when the header can't be read."""
        if self.header is None:
            return "spare" if self.is_spare else "damaged"
        if self.record is None:
            return "open"
        return "sealed" if self.record.state == SEALED else "closed"

    @property
    def why_unknown(self) -> str:
        """What to say of a file in use that has no header of its own."""
        return "the file is another segment's" if self.is_foreign else "the segment's header is damaged"

    @property
    def log_bytes(self) -> int:
        """Where the frames may end: at the end of the log, if it is known, and not behind the file's."""
        return min(self.size_bytes, self.record.data_end) if self.record is not None else self.size_bytes

    @property
    def used_bytes(self) -> int:
        """The bytes of the file that mean something, footer included."""
        footer_end = self.record.footer_position + self.record.footer_bytes if self.record is not None else 0
        return max(self.log_bytes, footer_end)


def list_segments(disk: Disk, folder: Path, lane: int, store_id: bytes | None) -> list[SegmentFile]:
    """The segment files of a lane, by sequence. `store_id` None takes the headers of any store.

    A spare is a file behind the last one in use whose first block is blank or was another segment's.
    """
    names = [name for name in disk.list(folder) if _SEGMENT_FILE.fullmatch(name)]
    lowest = int(names[0].removesuffix(SEGMENT_SUFFIX)) if names else 0
    files = [_read_head(disk, folder / name, lane, store_id, lowest) for name in names]
    last = max((file.sequence for file in files if file.header is not None), default=0)
    return [file._replace(is_spare=file.is_blank and file.sequence > last) for file in files]


def missing_segments(files: Sequence[SegmentFile], *, used: bool) -> Iterator[str]:
    """Names of the files that are missing between those of a lane; before its first one, retention may have taken
    some if it is in use."""
    sequences = [file.sequence for file in files]
    for before, after in pairwise(sequences if used else [0, *sequences]):
        if after != before + 1:
            yield segment_name(before + 1)


def _read_head(disk: Disk, path: Path, lane: int, store_id: bytes | None, lowest: int) -> SegmentFile:
    sequence = int(path.stem)
    file = disk.open(path)
    try:
        head, size = file.read(0, DATA_START), file.size()
    finally:
        file.close()
    header = SegmentHeader.unpack(head[:BLOCK_BYTES])
    foreign = header is not None and header.stands_wrongly(lane, store_id, sequence, lowest)
    own = header is not None and not foreign and header.sequence == sequence
    blank = not (own or foreign) and (header is not None or not any(head[:BLOCK_BYTES]))
    record = SealRecord.unpack(head[BLOCK_BYTES:])
    if record is not None and record.sequence != sequence:
        record = None  # of the file's earlier life
    return SegmentFile(sequence, path, size, head, header if own else None, record, blank, foreign, False)


def stream_names(footer: Footer) -> list[tuple[str, int]]:
    """(topic, queue id) of a footer's streams, by number."""
    topics = footer.topics()
    pairs = zip(footer.stream_topic.tolist(), footer.stream_queue.tolist(), strict=True)
    return [(topics[topic], queue_id) for topic, queue_id in pairs]
