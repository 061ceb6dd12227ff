"""The commits that a followed lane's log has: what its newest footer says, and the records behind that."""

from __future__ import annotations

import numpy as np

from ..errors import StoreCorrupt
from ..format.applied import Applied, AppliedRecord, find_packed
from ..format.layout import checksum64
from ..log.lane import Lane
from ..log.write import OpenSegment
from ..segment.open_table import CHECKSUM, LENGTH, POSITION

Key = tuple[str, bool]


def applied_in(lane: Lane, key: Key) -> Applied | None:
    """What the lane remembers under a commit's name, as far as it is durable. Raises StoreCorrupt, OSError.

    Looked up when somebody commits: other readers of the store pay nothing for it.
    """
    view = lane.view
    for opened in reversed(view.open):
        found = _in_open(opened, lane.trims.records.number, key)
        if found is not None:
            return found
    if not view.sealed:
        return None
    newest = view.sealed[-1]
    index = newest.index
    if index.is_remade:  # of the frames, which say nothing of commits before them
        raise newest.damaged()
    return find_packed(index.footer.applied, key)  # the opening of the footer has checked all of it


def _in_open(opened: OpenSegment, records: int, key: Key) -> Applied | None:
    """The newest record of that name in a segment that grows."""
    segment, table = opened
    visible = table.visible
    entries = np.flatnonzero(table.numbers()[:visible] == records).astype(np.uint32) if visible else ()
    for entry in reversed(entries):
        row = table.columns(int(entry), int(entry) + 1)[0].tolist()
        data = segment.read(row[POSITION], row[LENGTH])
        if checksum64(data) & 0xFFFFFFFF != row[CHECKSUM]:
            raise StoreCorrupt("a record's bytes do not match their checksum", segment.path, row[POSITION])
        commit = AppliedRecord.unpack(data)
        if commit is not None and commit.entry.key == key:
            return commit.entry
    return None
