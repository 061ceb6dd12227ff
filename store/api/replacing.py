"""A store, or a folder of stores, put in the place of another one in one step."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from ..device.disk import OsDisk
from ..device.exchange import exchange
from ..device.folder import STORE_FILE, fixed_path, looking_at
from ..errors import StoreUnusable


def replace_store(path: str | Path, fresh: str | Path) -> None:
    """Put a store that nobody has open, or a folder of such stores, in the place of what is at `path`; remove that.

    It is one step: whoever opens `path` at any moment finds the one or the other, also after a power cut. Readers of
    the old store keep what they have open.

    Args:
        path: where a store is, or a folder of stores, or nothing, or an empty folder.
        fresh: the new one, in the same file system.

    Raises:
        StoreLocked: a store at `path` is open for writing. Nothing has changed.
        StoreUnusable: there is something else at `path`, or the file system cannot do it. Nothing has changed.
    """
    disk, place, new = OsDisk(), fixed_path(path), fixed_path(fresh)
    with ExitStack() as held:
        for folder in (*stores_in(place), *stores_in(new)):
            held.enter_context(looking_at(disk, folder))
        try:
            if place.exists():
                if not stores_in(place) and any(place.iterdir()):
                    raise StoreUnusable(f"{place} is neither a store nor a folder of stores; nothing was replaced")
                exchange(place, new)
            else:
                os.rename(new, place)
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
                text = f"the file system of {place} cannot replace a folder in one step; remove {place} first"
                raise StoreUnusable(text) from error
            raise StoreUnusable(f"{place} cannot be replaced: {error.strerror}; nothing has changed") from error
        disk.force_folder(place.parent)
        disk.force_folder(new.parent)
    with suppress(FileNotFoundError):
        shutil.rmtree(new)


def stores_in(path: Path) -> list[Path]:
    """The store at a path, or those of the folder there; none where there is nothing of the kind. Sorted."""
    if (path / STORE_FILE).exists():
        return [path]
    return sorted(found.parent for found in path.glob(f"*/{STORE_FILE}")) if path.is_dir() else []
