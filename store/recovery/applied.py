"""Which bulk commits the log of a closed store has."""

from __future__ import annotations

from pathlib import Path

from ..device.disk import Disk
from ..format.applied import AppliedTable, unpack_applied
from ..format.layout import lane_name
from ..format.store_files import StoreHeader
from .lane_recovery import LaneRecovery


def applied_tables(disk: Disk, store: Path, header: StoreHeader) -> list[AppliedTable]:
    """The commits of each lane, as an opening finds them. The store's lock is held. Raises StoreError, OSError."""
    tables: list[AppliedTable] = []
    for lane in range(header.lanes):
        folder = store / lane_name(lane)
        found = LaneRecovery(disk, folder, lane, header.store_id, folder, repair=False, direct=False).run()
        found.close()
        tables.append(unpack_applied(found.applied))
    return tables
