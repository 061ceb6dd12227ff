"""Asks recovery itself, on a disk that keeps nothing, whether a plain opening would refuse a lane.

So verify and inspect cannot miss damage that an opening finds, whatever rules they have of their own.
"""

from __future__ import annotations

from pathlib import Path

from ..device.looking import LookingDisk
from ..errors import StoreCorrupt
from ..recovery.lane_recovery import LaneRecovery
from .report import Damage


def refusal(folder: Path, lane: int, store_id: bytes) -> Damage | None:
    """The damage for which a plain opening would refuse a lane, in this folder; None if it would not.

    Raises OSError.
    """
    recovery = LaneRecovery(LookingDisk(), folder, lane, store_id, folder, repair=False, direct=False)
    try:
        found = recovery.run()
    except StoreCorrupt as error:
        return Damage(error.what, error.file, error.position)
    found.close()
    return None
