"""The note of committers in the folder `incoming`: the next one need not read what is known. See `format.note`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..device.disk import Disk
from ..format.note import NO_NOTE, NOTE_FILE, LaneNote, pack_note, unpack_note
from ..format.store_files import StoreHeader
from .staging import FRESH, incoming_of, read_all


def read_note(disk: Disk, store: Path, header: StoreHeader) -> list[LaneNote]:
    """What is noted of each lane; NO_NOTE where there is nothing."""
    try:
        content = read_all(disk, incoming_of(store) / NOTE_FILE)
    except OSError:
        return [NO_NOTE] * header.lanes
    return unpack_note(content, header.store_id, header.lanes)


def write_note(disk: Disk, store: Path, header: StoreHeader, lanes: Sequence[LaneNote]) -> None:
    """Leave a note, or none: nothing depends on it, so nothing is forced. `committing` is held.

    A write that fails, or is interrupted, leaves no file that is written in part: a sweep would remove it, but not
    before it is a day old.
    """
    path = incoming_of(store) / NOTE_FILE
    fresh, content = path.with_name(NOTE_FILE + FRESH), pack_note(header.store_id, lanes)
    with suppress(OSError):
        _remove(disk, fresh)  # of a committer that was killed
        try:
            file = disk.open(fresh, create=True)
            try:
                file.write([content], 0)
            finally:
                file.close()
            disk.rename(fresh, path)
        except BaseException:  # an interrupt too
            _remove(disk, fresh)
            raise


def _remove(disk: Disk, path: Path) -> None:
    with suppress(OSError):
        disk.remove(path)
