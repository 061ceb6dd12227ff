"""The second pass: makes footers by recovery's code, beside the log, checks them, and puts them into their segments.

A new footer counts for nothing until `put_footer` has compared it with the plan. Only then is the segment's file
written to: after its frames, where nothing whole stands. So a kill at any moment leaves either the lost footer or the
new one.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import NamedTuple

from ..device.disk import Disk, OsDisk
from ..errors import StoreCorrupt
from ..format.footer import Footer
from ..format.layout import LOST_ENTRY, checksum64, kept_messages
from ..live.files import PIECE_BYTES, FollowedSegment
from ..recovery.name_list import NameList
from ..recovery.placement import OffsetBounds
from ..recovery.reindex import ScanColumns, index_columns
from ..recovery.repair import Repair
from ..segment.scanner import FrameScanner, PieceReader
from ..segment.sealing import write_footer
from ..segment.segment import Segment
from .placing import FooterPart


class MadeFooter(NamedTuple):
    """A footer in a file of its own: `lane` and `sequence` of its segment, and the expected content of the file."""

    lane: int
    sequence: int
    path: str
    size_bytes: int
    checksum: int


def make_footer(part: FooterPart, staging: Path, disk: Disk | None = None) -> MadeFooter:
    """Make a footer from the heads of its segment's frames, and write it, forced, to a new file in `staging`.

    Any process may call it, and several at once for the same part. Raises StoreCorrupt, OSError.
    """
    used = disk or OsDisk()
    at, record = part.look.at, part.look.record
    segment = FollowedSegment(used, Path(at.folder), part.look.header, grows=False)
    try:
        columns = _columns(segment, part)
    finally:
        segment.close()
    refusing = Repair(used, staging, at.lane, allowed=False)
    data, _ = index_columns(columns, NameList(part.names), OffsetBounds(part.first), refusing, segment.path)
    if columns.next_entry != record.entries or (data.entries == LOST_ENTRY).any():
        raise StoreCorrupt("a frame is damaged or missing", segment.path, record.data_end)
    data.trimmed, data.applied, data.presence = part.trimmed, part.applied, part.presence
    content = data.pack(at.sequence)
    path = staging / f"footer-{at.lane:02d}-{at.sequence:012d}-{secrets.token_hex(8)}"
    file = used.open(path, create=True)
    try:
        file.write([content], 0)
        file.force()
    finally:
        file.close()
    return MadeFooter(at.lane, at.sequence, str(path), len(content), checksum64(content))


def _columns(segment: FollowedSegment, part: FooterPart) -> ScanColumns:
    """The columns of the segment's frames. No payload is read: the first pass has done that."""
    record, columns = part.look.record, ScanColumns()
    scanner = FrameScanner.after_header(PieceReader(segment.data, record.data_end, PIECE_BYTES), segment.header)
    while (frame := scanner.next_frame()) is not None:
        columns.add(frame, kept_messages(record, frame.header), None)
    return columns


def put_footer(disk: Disk, part: FooterPart, made: MadeFooter) -> None:
    """Check a footer, and put it into its segment, forced. The store is locked. Raises StoreCorrupt, OSError."""
    at, record = part.look.at, part.look.record
    file = disk.open(Path(made.path))
    try:
        content = file.read(0, made.size_bytes + 1)
    finally:
        file.close()
    path = Path(made.path)
    if len(content) != made.size_bytes or checksum64(content) != made.checksum:
        raise StoreCorrupt("a footer that was just made is damaged", path, 0)
    new = record._replace(footer_bytes=len(content), streams=len(part.names))
    footer = Footer(None, str(path), new, content)
    footer.check_entries()
    if (footer.first != part.first).any() or (footer.next_offsets != part.following).any():
        raise StoreCorrupt("a footer that was just made has other offsets", path, 0)
    segment = Segment(disk, Path(at.folder), part.look.header, direct=False)
    try:
        write_footer(disk, segment, footer.data(), record.data_end, record.chain, record.entries)
    finally:
        segment.close()
