"""Whether a plain opening would refuse a lane: recovery itself is asked, on a disk that keeps nothing.

So verify and inspect cannot miss what an opening finds, whatever rules they have of their own.
"""

from __future__ import annotations

from pathlib import Path

from ..device.looking import LookingDisk
from ..errors import StoreCorrupt
from ..recovery.lane_recovery import LaneRecovery
from .report import Damage


def refusal(folder: Path, lane: int, store_id: bytes) -> Damage | None:
    """What a plain opening would say of a lane, in this folder, that it refuses; None if it takes it.

    Raises OSError.
    """
    recovery = LaneRecovery(LookingDisk(), folder, lane, store_id, folder, repair=False, direct=False)
    try:
        found = recovery.run()
    except StoreCorrupt as error:
        return Damage(error.what, error.file, error.position)
    found.close()
    return None
