"""A store, or a folder of stores, put in the place of another one in one step; and how many stores a folder has."""

from __future__ import annotations

import errno
import os
import re
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from ...portable import NOT_THERE
from ..delayed.parts import DELAYED_FOLDER
from ..device.disk import OsDisk
from ..device.exchange import exchange
from ..device.folder import LOCK_FILE, QUARANTINE, STORE_FILE, fixed_path, looking_at
from ..errors import InvalidMessage, StoreCorrupt, StoreUnusable, shown, system_errors
from ..format.figures_page import FIGURES_FILE
from ..format.layout import BLOCK_BYTES
from ..format.live_page import LIVE_FILE
from ..format.shard import INCOMING
from ..format.store_files import SHARDS_FILE, ShardCount
from ..subscriptions.told_counts import COUNTS_FILE
from .checks import check_counts
from .compacting import STAGING as COMPACT
from .rebuilding import STAGING as REBUILD

# What a store has in its folder. Some are written under longer names first.
_FILES = (
    STORE_FILE,
    LOCK_FILE,
    LIVE_FILE,
    COUNTS_FILE,
    FIGURES_FILE,
    INCOMING,
    QUARANTINE,
    DELAYED_FOLDER,
    REBUILD,
    COMPACT,
)
_OURS = re.compile(rf"({'|'.join(_FILES)})(\..*)?|lane-\d\d")


def replace_store(path: str | Path, fresh: str | Path) -> None:
    """Put a store that nobody has open, or a folder of such stores, in the place of what is at `path`; remove that.

    It is one step: an opening of `path` at any moment finds the one or the other, also after a power cut. Readers of
    the old store keep what they have open.

    Args:
        path: where a store is, or a folder of stores, or nothing, or an empty folder.
        fresh: the new one, in the same file system.

    Raises:
        StoreLocked: a store at `path` is open for writing. Nothing has changed.
        StoreUnusable: there is something else at `path`, or in a folder there, or the file system cannot do it.
            Nothing has changed.
    """
    disk, place, new = OsDisk(), fixed_path(path), fixed_path(fresh)
    with system_errors(place, "Look which of the two is there."), ExitStack() as held:
        _hold(disk, held, place, new)
        try:
            if place.exists():
                exchange(place, new)
            else:
                os.rename(new, place)
        except OSError as error:
            if error.errno in NOT_THERE:
                text = f"the file system of {place} cannot replace a folder in one step; remove {place} first"
                raise StoreUnusable(text) from error
            raise StoreUnusable(f"{place} cannot be replaced: {error.strerror}; nothing has changed") from error
        disk.force_folder(place.parent)
        disk.force_folder(new.parent)
    with suppress(FileNotFoundError):
        shutil.rmtree(new)


def check_replaceable(path: str | Path) -> None:
    """Raises now what `replace_store` would raise for what is at `path`, so that no work is done in vain."""
    with system_errors(path), ExitStack() as held:
        _hold(OsDisk(), held, fixed_path(path))


def put_store(path: str | Path, fresh: str | Path) -> bool:
    """Put a store that nobody has open, or a folder of such stores, where nothing is, or an empty folder.

    Returns: False if something is there by now: of several calls at once, one is the first.

    Raises StoreUnusable: the file system refuses it; `fresh` is where it was.
    """
    disk, place, new = OsDisk(), fixed_path(path), fixed_path(fresh)
    try:
        os.rename(new, place)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise StoreUnusable(f"a store cannot be put at {place}: {error.strerror}") from error
    with system_errors(place, "The store is there; a power cut may still take it away."):
        disk.force_folder(place.parent)
        disk.force_folder(new.parent)
    return True


def note_shards(path: str | Path, count: int) -> None:
    """Note durably in a folder of stores how many of them there are: `shard-0000` and the numbers that follow.

    Raises InvalidMessage: `count` is no number of stores. StoreUnusable: the note cannot be written.
    """
    (stores,) = check_counts(count=count)
    if not 0 < stores < 1 << 32:
        raise InvalidMessage(f"a folder of stores has one or more, not {shown(count)}")
    disk, folder = OsDisk(), fixed_path(path)
    try:
        file = disk.open(folder / SHARDS_FILE, create=True)
        try:
            file.write([ShardCount(stores).pack()], 0)
            file.force()
        finally:
            file.close()
        disk.force_folder(folder)
    except OSError as error:
        raise StoreUnusable(f"{folder} cannot be a folder of stores: {error.strerror or error}") from error


def noted_shards(path: str | Path) -> int | None:
    """The number of stores that a folder has had since it was made; None if that was not noted.

    Raises StoreCorrupt, StoreUnreadable.
    """
    file = fixed_path(path) / SHARDS_FILE
    with system_errors(file):
        if not file.exists():
            return None
        noted = ShardCount.unpack(file.read_bytes()[:BLOCK_BYTES])
    if noted is None:
        raise StoreCorrupt("the number of stores of the folder is damaged; if all are there, remove this file", file, 0)
    return noted.stores


def _hold(disk: OsDisk, held: ExitStack, place: Path, *others: Path) -> None:
    """Lock the stores at some places. Raises StoreLocked; StoreUnusable if there is more than stores at the first."""
    for folder in (*stores_in(place), *(store for other in others for store in stores_in(other))):
        held.enter_context(looking_at(disk, folder))
    what = _stranger(place)
    if what is not None:
        raise StoreUnusable(
            f"{place} is neither a store nor a folder of stores alone: {what} is no part of one; nothing was replaced. "
            f"Give another path, or move that away"
        )


def _stranger(place: Path) -> str | None:
    """The name of something at a place that is no store's, and would be lost with it; None if there is nothing."""
    if not place.exists():
        return None
    if not place.is_dir():
        return place.name
    stores = stores_in(place)
    if stores != [place]:
        names = {SHARDS_FILE, *(store.name for store in stores)}
        strange = [one.name for one in place.iterdir() if one.name not in names]
        return next(iter(sorted(strange)), None) or next(filter(None, map(_stranger, stores)), None)
    return next((one.name for one in sorted(place.iterdir()) if _OURS.fullmatch(one.name) is None), None)


def stores_in(path: Path) -> list[Path]:
    """The store at a path, or those of the folder there; none where there is nothing of the kind. Sorted."""
    if (path / STORE_FILE).exists():
        return [path]
    return sorted(found.parent for found in path.glob(f"*/{STORE_FILE}")) if path.is_dir() else []
