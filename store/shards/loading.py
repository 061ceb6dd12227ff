"""The messages of staged shards as columns, for a commit so small that it is appended to the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.frame import Frame, frame_of
from ..format.layout import FrameHead
from ..format.rows import Rows
from ..log.column_group import ColumnGroup, ColumnRows
from ..log.streams import Stream
from ..segment.checksums import whole_messages
from ..segment.placed_frames import WRONG_BYTES
from .rewriting import DAMAGED, lasting_heads
from .staging import StagedShard


def groups_of(disk: Disk, staged: StagedShard, streams: Sequence[Stream], skip: int = 0) -> list[ColumnGroup]:
    """The messages of a shard, from number `skip` on, one group for each frame.

    `streams` are the shard's, by its numbers. Bytes of the file that attaching writes are ignored: an earlier attempt
    may have begun to write them. Each payload is compared with its checksum. Raises StoreCorrupt, OSError.
    """
    index = staged.index
    of_entry = np.empty(index.rows, np.int64)
    of_entry[index.footer.entries] = np.arange(len(streams)).repeat(index.counts)
    groups = []
    for frame, payload in _frames(disk, staged):
        first, count = frame.header.first_entry, frame.header.count
        begin = max(skip - first, 0)
        if begin < count:
            groups.append(ColumnGroup(_rows(frame, payload, streams, of_entry[first : first + count], begin)))
    return groups


def check_payloads(disk: Disk, staged: StagedShard) -> None:
    """Read a shard, and compare each of its payloads with its checksum. Raises StoreCorrupt, OSError."""
    for _ in _frames(disk, staged):
        pass


def _frames(disk: Disk, staged: StagedShard) -> Iterator[tuple[Frame, memoryview]]:
    """The frames of a shard with their payloads."""
    path = staged.path
    try:
        file = disk.open(path)
    except FileNotFoundError:
        raise StoreCorrupt("a committed shard is missing", path, 0) from None
    try:
        for header, columns in lasting_heads(file, path, staged.index):
            frame = frame_of(FrameHead(header, columns, 0))
            if frame is None:
                raise StoreCorrupt(DAMAGED, path, header.position)
            payload = memoryview(file.read(frame.payload_start, header.payload_bytes))
            if whole_messages(frame, payload) < header.count:
                raise StoreCorrupt(WRONG_BYTES, path, header.position)
            yield frame, payload
    finally:
        file.close()


def _rows(frame: Frame, payload: memoryview, streams: Sequence[Stream], numbers: Int64s, begin: int) -> ColumnRows:
    """The messages of a frame from number `begin` on; `numbers` (n,) is the index of each in `streams`."""
    extras = frame.extras()
    lengths = frame.lengths.astype(np.int64)
    rows = Rows(numbers, lengths, payload, extras.keys, extras.properties, extras.times_ms)
    return ColumnRows.of(streams, rows.part(begin, frame.header.count))
