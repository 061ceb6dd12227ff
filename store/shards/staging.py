"""The folder `incoming` of a store: staged shards, manifests, and leftovers of failed tasks."""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..device.disk import Disk
from ..errors import StoreCorrupt, system_errors
from ..format.layout import checksum64
from ..format.shard import (
    INCOMING,
    INDEX_SUFFIX,
    MANIFEST_SUFFIX,
    REFUSED_SUFFIX,
    SHARD_SUFFIX,
    CommitBefore,
    Manifest,
    Shard,
    ShardIndex,
)
from .committing import LOCK, committing
from .writer import write_forced

FRESH = ".new"  # a manifest that is being written
DAMAGED_MANIFEST = "a manifest is damaged"
NOT_COMMITTED = "Nothing was committed; call it again."
MAY_BE_DURABLE = "The commit may be durable: call it again, with the same name."


class StagedShard:
    """A shard that a manifest names. Its index, some 4 bytes a message, was found whole, and is read at each use.

    Attributes:
        held: the index, if it is kept between two uses.
    """

    def __init__(self, shard: Shard, path: Path, index: ShardIndex, load: Callable[[], ShardIndex]) -> None:
        self.shard = shard
        self.path = path
        self.held: ShardIndex | None = index
        self._load = load

    @property
    def index(self) -> ShardIndex:
        """The index. Raises StoreCorrupt, OSError."""
        return self.held or self._load()


class PendingManifest(NamedTuple):
    """A manifest in the folder, with its file's name."""

    name: str
    manifest: Manifest


def incoming_of(store: Path) -> Path:
    """The folder for incoming shards."""
    return store / INCOMING


def staging_name(transaction: str, partition: int, attempt: int) -> str:
    """A name that no other task, attempt or run has. `_` replaces characters that a file name must not have."""
    return f"{_plain(transaction)}-{partition}-{attempt}-{secrets.token_hex(8)}"


def _plain(transaction: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in transaction)[:80] or "shards"


def staged_by(disk: Disk, store: Path, transaction: str) -> set[str]:
    """The staging folders of all tasks with a transaction of this name, committed or not."""
    its = re.compile(rf"{re.escape(_plain(transaction))}-\d+-\d+-[0-9a-f]{{16}}")
    return {name for name in disk.list(incoming_of(store)) if its.fullmatch(name)}


def pending_in(disk: Disk, store: Path) -> list[PendingManifest]:
    """The waiting commits, in their order. Raises StoreCorrupt for a damaged manifest."""
    folder = incoming_of(store)
    found = []
    for name in sorted(_manifests(disk, folder, MANIFEST_SUFFIX), key=_number):
        with suppress(FileNotFoundError):  # it was attached meanwhile
            manifest = Manifest.unpack(read_all(disk, folder / name))
            if manifest is None:
                raise StoreCorrupt(DAMAGED_MANIFEST, folder / name, 0)
            found.append(PendingManifest(name, manifest))
    return found


def _manifests(disk: Disk, folder: Path, *suffixes: str) -> list[str]:
    return [name for name in disk.list(folder) if name.endswith(suffixes)]


def _number(manifest: str) -> int:
    """The number of a commit, from its manifest's name; 0 if the name is not a committer's."""
    digits = manifest.partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def damaged_manifests(disk: Disk, store: Path) -> list[str]:
    """The names of manifests that cannot be read. Raises OSError."""
    folder = incoming_of(store)
    names = _manifests(disk, folder, MANIFEST_SUFFIX)
    return [name for name in names if Manifest.unpack(read_all(disk, folder / name)) is None]


def write_manifest(disk: Disk, store: Path, manifest: Manifest) -> str:
    """Make a commit durable by its manifest. Returns the manifest's name. One committer at a time.

    Raises StoreCorrupt; OSError if nothing was committed; StoreFull, StoreUnreadable if it may have been.
    """
    folder = incoming_of(store)
    pending = pending_in(disk, store)
    if pending:
        name, last = pending[-1]
        rows = sum(shard.rows for shard in last.shards)
        manifest = manifest._replace(before=CommitBefore(name, last.name, last.batch, rows))
    numbers = map(_number, _manifests(disk, folder, MANIFEST_SUFFIX, REFUSED_SUFFIX))
    key = zlib.crc32(f"{manifest.name}\n{manifest.batch}".encode())
    name = f"{max(numbers, default=0) + 1:012d}-{key:08x}{MANIFEST_SUFFIX}"
    fresh = folder / (name + FRESH)
    write_forced(disk, fresh, manifest.pack())
    with system_errors(folder / name, MAY_BE_DURABLE):
        disk.rename(fresh, folder / name)
        disk.force_folder(folder)
    return name


def refuse_manifest(disk: Disk, store: Path, name: str) -> Path:
    """Set a manifest aside that cannot be attached. Returns its new place."""
    folder = incoming_of(store)
    aside = (folder / name).with_suffix(REFUSED_SUFFIX)
    disk.rename(folder / name, aside)
    disk.force_folder(folder)
    return aside


def is_refused(disk: Disk, store: Path, name: str) -> bool:
    """Whether the manifest of this name was set aside."""
    return Path(name).with_suffix(REFUSED_SUFFIX).name in disk.list(incoming_of(store))


def load_shard(disk: Disk, store: Path, shard: Shard) -> StagedShard:
    """The index of a shard in the folder `incoming`, checked. Raises StoreCorrupt, OSError."""
    return staged_in(disk, incoming_of(store) / shard.folder, shard)


def staged_in(disk: Disk, folder: Path, shard: Shard) -> StagedShard:
    """The index of a shard whose files are in a folder, checked. Raises StoreCorrupt, OSError."""
    load = partial(_index_of, disk, folder / (shard.file + INDEX_SUFFIX), shard)
    return StagedShard(shard, folder / (shard.file + SHARD_SUFFIX), load(), load)


def _index_of(disk: Disk, path: Path, shard: Shard) -> ShardIndex:
    """A shard's index, checked. Raises StoreCorrupt, OSError."""
    try:
        content = read_all(disk, path)
    except FileNotFoundError:
        raise StoreCorrupt("a committed shard's index is missing", path, 0) from None
    index = ShardIndex.unpack(content, str(path)) if checksum64(content) == shard.checksum else None
    if index is None or (index.lane, index.rows, index.data_end) != (shard.lane, shard.rows, shard.file_bytes):
        raise StoreCorrupt("a committed shard's index is damaged", path, 0)
    try:
        index.footer.check_entries()
    except StoreCorrupt:
        raise StoreCorrupt("a committed shard's index is damaged", path, 0) from None
    return index


def remove_staged(disk: Disk, store: Path, folders: Iterable[str]) -> None:
    """Remove staging folders. Those that cannot be removed are swept later."""
    incoming = incoming_of(store)
    for name in sorted(set(folders)):
        with suppress(OSError):
            for file in disk.list(incoming / name):
                disk.remove(incoming / name / file)
            disk.remove_folder(incoming / name)


def named_folders(pending: Sequence[PendingManifest]) -> set[str]:
    """The staging folders that manifests name."""
    return {shard.folder for one in pending for shard in one.manifest.shards}


def sweep(disk: Disk, store: Path, older_than_s: float, *, waits: bool = True) -> list[str]:
    """Remove files that no manifest names and that have not changed for `older_than_s`. Returns their names.

    On a disk without ages nothing is removed. Raises BlockingIOError if somebody commits and `waits` is False.
    """
    incoming = incoming_of(store)
    old = [name for name in disk.list(incoming) if _is_leftover(name) and disk.age_s(incoming / name) > older_than_s]
    if not old:
        return []
    with committing(disk, store, waits=waits):  # a committer checks its shards before its manifest names them
        kept = named_folders(pending_in(disk, store)) | _refused_folders(disk, store)
        swept = [name for name in old if name not in kept]
        for name in swept:
            remove_staged(disk, store, [name])
            with suppress(OSError):  # it is a file: of a committer that was killed
                disk.remove(incoming / name)
    return swept


def _refused_folders(disk: Disk, store: Path) -> set[str]:
    """The staging folders of manifests that were set aside: somebody may want their undamaged parts."""
    folder = incoming_of(store)
    names = _manifests(disk, folder, REFUSED_SUFFIX)
    found = [Manifest.unpack(read_all(disk, folder / name)) for name in names]
    return {shard.folder for manifest in found if manifest is not None for shard in manifest.shards}


def _is_leftover(name: str) -> bool:
    return name != LOCK and not name.endswith((MANIFEST_SUFFIX, REFUSED_SUFFIX))


def read_all(disk: Disk, path: Path) -> bytes:
    """A file's bytes. Raises OSError."""
    file = disk.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()
