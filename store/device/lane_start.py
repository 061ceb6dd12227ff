"""The START file of a lane: where its log begins. Retention moves it, and so does a repair of lost first segments.

Beside it lies COMPACTED, if the log was ever compacted: where it began then.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NamedTuple

from ..errors import StoreCorrupt
from ..format.layout import BLOCK_BYTES, START_FILE
from ..format.store_files import COMPACTED_FILE, LaneStart
from .disk import Disk
from .log_file import LogFile

COMPACTED_ADVICE = (
    "Restore the file from a copy. Without one, open the store once with repair=True, which makes the file again, and "
    "begin the read or the query anew."
)
_COPIES = (0, BLOCK_BYTES)


class FoundStart(NamedTuple):
    """The content of a START file (None without a whole copy), and whether both copies are whole and the same."""

    start: LaneStart | None
    is_whole: bool


def read_start(disk: Disk, folder: Path, lane: int, store_id: bytes | None) -> FoundStart:
    """The start of a lane's log, by its folder. `store_id` None takes that of any store.

    The log's start only ever moves forward, so the larger of two copies is the newer one.
    """
    if START_FILE not in disk.list(folder):
        return FoundStart(None, False)
    file = disk.open(folder / START_FILE)
    try:
        blocks = [_block(file, at) for at in _COPIES]
    finally:
        file.close()
    copies = [LaneStart.unpack(block) for block in blocks]
    ours = [one for one in copies if one is not None and one.lane == lane and store_id in (None, one.store_id)]
    newest = max(ours, key=lambda one: one.sequence, default=None)
    return FoundStart(newest, newest is not None and blocks == [newest.pack()] * len(_COPIES))


def _block(file: LogFile, position: int) -> bytes:
    """A block, nothing where the device refuses to read it: the other copy may be whole."""
    try:
        return file.read(position, BLOCK_BYTES)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


def write_start(disk: Disk, folder: Path, start: LaneStart) -> None:
    """Note durably where a lane's log begins.

    Invariant: one copy is forced before the other is written, so one of the two is whole whenever a crash comes. A
    removal calls this before it removes a segment. So after a crash, segments that START calls removed may still be
    there, and none that it calls present was removed.
    """
    is_new = START_FILE not in disk.list(folder)
    file = disk.open(folder / START_FILE, create=True)
    try:
        for at in _COPIES:
            file.write([start.pack()], at)
            file.force()
    finally:
        file.close()
    if is_new:
        disk.force_folder(folder)


def read_compacted(disk: Disk, folder: Path, lane: int, store_id: bytes | None) -> int:
    """The number of the first segment that the newest compaction of a lane wrote; 0 if there was none.

    A lower number that a reader has kept is of a log that is gone. `store_id` None takes that of any store.

    Raises StoreCorrupt if the file is damaged: else a reader would take old positions for good ones. Raises OSError.
    """
    if COMPACTED_FILE not in disk.list(folder):
        return 0
    path = folder / COMPACTED_FILE
    file = disk.open(path)
    try:
        block = file.read(0, BLOCK_BYTES)  # there is no other copy: an error of the device is raised
    finally:
        file.close()
    start = LaneStart.unpack(block)
    if start is None or start.lane != lane or store_id not in (None, start.store_id):
        raise StoreCorrupt("where a compaction began the log is damaged", path, 0, COMPACTED_ADVICE)
    return start.sequence


def write_compacted(disk: Disk, folder: Path, start: LaneStart) -> None:
    """Note in a new folder of a lane that a compaction wrote it. The name is not forced yet. Raises OSError."""
    file = disk.open(folder / COMPACTED_FILE, create=True)
    try:
        file.write([start.pack()], 0)
        file.force()
    finally:
        file.close()
