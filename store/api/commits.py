"""Committing shards to a store, from any process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from ..device.clock import Clock
from ..device.disk import Disk, OsDisk
from ..device.folder import check_store_folder, fixed_path, read_header
from ..errors import InvalidMessage, StoreError, StoreLocked, StoreUnusable, shown, system_errors
from ..format.applied import MAX_NAME_BYTES, NO_BATCH, batches_of
from ..format.shard import Manifest, Shard
from ..live.calls import call
from ..live.lane_commits import NotSure, look_beside_writer, notes_to_leave
from ..shards.attacher import is_replay
from ..shards.committing import committing
from ..shards.lane_attach import key_of
from ..shards.noting import read_note, write_note
from ..shards.staging import (
    Pending,
    incoming_of,
    load_shard,
    named_folders,
    pending_in,
    remove_staged,
    staged_by,
    sweep,
    write_manifest,
)
from .store import MessageStore

FIRST_LOOK_S, LOOK_S = 0.0005, 0.02
NOT_COMMITTED = "Nothing was committed; call it again."


class Commit(NamedTuple):
    """What became of a commit.

    Attributes:
        is_new: False if it had been committed before: then nothing has changed, and its shards were removed.
        is_attached: True if its messages have offsets and can be read. Else the process that has the store open
            attaches it soon, or the next opening does; `stats()["last_background_error"]` of that says what hinders it.
        rows: messages of the commit.
    """

    is_new: bool
    is_attached: bool
    rows: int


def commit_shards(
    path: str | Path, shards: Sequence[Shard], *, name: str, batch: int | None = None, keep: bool = True,
    wait_ms: int = 2_000, disk: Disk | None = None, clock: Clock | None = None,
) -> Commit:  # fmt: skip
    """Make shards a part of a store: all of their messages, exactly once, whatever crashes.

    The commit is durable when this returns. If it raises, nothing was committed, but for an error of the last step,
    whose text says that the commit may be durable: then call it again, with the same name. If no process has the store
    open, it is opened, and the messages have offsets when this returns, unless something hinders it: a full device, or
    an earlier commit whose shards are damaged. Else the process that has it open is called, and attaches them at once.

    Args:
        path: the store's folder.
        shards: what `ShardWriter.finish` returned, in the order in which offsets are to be given.
        name: whose commit it is: a query, or a transaction; up to 255 bytes of UTF-8.
        batch: its number in the query. Of a query the newest 65 batches are remembered, and a batch must come behind
            those before it. None: `name` is a transaction, and is remembered for good.
        keep: False forgets a transaction once it is attached: for names that never come again. Without shards and with
            False nothing is written: it is only compared with the commit that it replays, if there is one.
        wait_ms: how long to wait for another process to attach it.

    Returns: what became of it.

    Raises:
        ReplayDiffers: a commit of this name and batch had other messages, or it is too old to tell, or a repair has
            given up a part of it. Nothing has changed.
        StoreCorrupt: a shard, a manifest or the store is damaged.
        StoreUnusable: the folder is no store, or the shards are another store's.
        InvalidMessage: an argument is wrong, or another commit that waits has some of the shards.
        StoreFull: there is no space for the manifest.
        StoreUnreadable: the system refused a step for another reason.
    """
    disk = disk or OsDisk()
    store = fixed_path(path)
    manifest = _manifest(disk, store, shards, name, batch, keep=keep)
    with system_errors(store, NOT_COMMITTED), committing(disk, store), ExitStack() as opened:
        writer, is_locked = _writer(disk, store, clock)
        if writer is not None:
            opened.enter_context(writer)
        known = _known_batches(disk, store, manifest, writer, clock, is_locked=is_locked)
        is_new = not is_replay(manifest, known, store)
        if is_new and not shards and not keep:
            return Commit(is_new=True, is_attached=True, rows=0)
        if is_new:
            _check_shards(disk, store, manifest)
            write_manifest(disk, store, manifest)
            if is_locked:
                call(disk, store)
        else:
            _remove(disk, store, {shard.folder for shard in shards})
        if writer is not None:
            with suppress(StoreError, OSError):  # it is durable; `stats` and the next opening tell what hinders it
                writer.attach_pending()
    attached = _attach(disk, store, manifest, wait_ms, clock, is_locked=is_locked)
    return Commit(is_new, attached, sum(shard.rows for shard in shards))


def abort_shards(
    path: str | Path, shards: Sequence[Shard], *, transaction: str | None = None, disk: Disk | None = None
) -> int:  # fmt: skip
    """Remove shards that are not to be committed; what a manifest names stays. How many folders were removed.

    With a `transaction`, all that its tasks have staged goes, also what nobody has the shards of. So give one that no
    other run has.

    Raises StoreCorrupt, StoreUnreadable.
    """
    disk = disk or OsDisk()
    store = fixed_path(path)
    with system_errors(store):
        if not disk.list(incoming_of(store)):
            return 0
        with committing(disk, store):
            folders = {shard.folder for shard in shards}
            if transaction is not None:
                folders |= staged_by(disk, store, transaction)
            return _remove(disk, store, folders)


def sweep_shards(path: str | Path, *, older_than_s: float = 24 * 3600.0) -> list[str]:
    """Remove staged shards that were never committed and that nobody has written to for so long; their folders' names.

    A store that is open does it by itself, for those older than a day.

    Raises StoreCorrupt, StoreUnreadable.
    """
    store = fixed_path(path)
    with system_errors(store):
        return sweep(OsDisk(), store, older_than_s)


def _manifest(
    disk: Disk, store: Path, shards: Sequence[Shard], name: str, batch: int | None, *, keep: bool
) -> Manifest:
    """The manifest of checked arguments; the shards' indexes are whole, and the store's."""
    if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= MAX_NAME_BYTES:
        raise InvalidMessage(f"the name of a commit is a str of 1 to {MAX_NAME_BYTES} bytes, not {shown(name)}")
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or not 0 <= batch < 1 << 62):
        raise InvalidMessage(f"the batch of a commit is an int from 0, or None, not {shown(batch)}")
    if any(type(shard) is not Shard for shard in shards):
        raise InvalidMessage("shards are what `ShardWriter.finish` returned")
    if len({(shard.folder, shard.file) for shard in shards}) != len(shards):
        raise InvalidMessage("a shard is there twice; give each once")
    try:
        check_store_folder(disk, store)
        header = read_header(disk, store)
    except OSError as error:
        raise StoreUnusable(f"{store} cannot be read: {error.strerror or error}") from error
    if header is None:
        raise StoreUnusable(f"{store} is no store; open it once to make one")
    return Manifest(header.store_id, name, NO_BATCH if batch is None else batch, keep, tuple(shards))


def _writer(disk: Disk, store: Path, clock: Clock | None) -> tuple[MessageStore | None, bool]:
    """The store, opened to attach, so that a commit takes one opening; or None, and whether somebody has it open.

    What is damaged may still take a commit: reading tells.
    """
    try:
        return MessageStore.open(store, disk=disk, clock=clock), False
    except StoreError as error:
        return None, isinstance(error, StoreLocked)


def _known_batches(
    disk: Disk, store: Path, manifest: Manifest, writer: MessageStore | None, clock: Clock | None, *, is_locked: bool
) -> dict[int, int]:
    """The digests of the commits of this name, those that wait among them, by batch."""
    pending = pending_in(disk, store)  # before the log: what is attached meanwhile is then found there
    key = manifest.name, manifest.batch
    found = _beside_writer(disk, store, manifest) if is_locked else None
    if writer is not None:
        found = writer._applied_batches(*key)
    elif found is None:
        with MessageStore.open(store, read_only=True, disk=disk, clock=clock) as reader:
            found = reader._applied_batches(*key)
    mine = [one.manifest for one in pending if key_of(one.manifest) == key_of(manifest)]
    return {**found, **{one.batch: one.digest for one in mine}}


def _beside_writer(disk: Disk, store: Path, manifest: Manifest) -> dict[int, int] | None:
    """What the log of an open store says of the commits of this name, looked for from the note on; None if not sure.

    What was found is noted for the next committer. `committing` is held.
    """
    try:
        header = read_header(disk, store)
        if header is None or header.store_id != manifest.store_id:
            return None
        known = read_note(disk, store, header)
        lanes = look_beside_writer(disk, store, header, known)
        if lanes is None:
            return None
        found = [lane.find(key_of(manifest)) for lane in lanes]
        notes = notes_to_leave(lanes)
        if notes is not None:
            write_note(disk, store, header, notes)
    except (NotSure, StoreError, OSError):
        return None
    return batches_of(found)


def _remove(disk: Disk, store: Path, staged: set[str]) -> int:
    """Remove these staging folders, but for those that a manifest names; how many. `committing` is held."""
    folders = staged - named_folders(pending_in(disk, store))
    remove_staged(disk, store, folders)
    return len(folders)


def _check_shards(disk: Disk, store: Path, manifest: Manifest) -> None:
    """Raises StoreCorrupt, StoreUnusable or InvalidMessage if a shard cannot be attached."""
    mine = {shard.folder for shard in manifest.shards}
    for one in pending_in(disk, store):
        if mine & named_folders([one]):  # attaching it removes them
            raise InvalidMessage(
                f"shards of {manifest.shown} are those of {one.manifest.shown}, which is committed; write others for it"
            )
    for shard in manifest.shards:
        staged = load_shard(disk, store, shard)
        if staged.index.store_id != manifest.store_id:
            raise StoreUnusable(f"the shard {staged.path} was written for another store")


def _attach(disk: Disk, store: Path, manifest: Manifest, wait_ms: int, clock: Clock | None, *, is_locked: bool) -> bool:
    """Have it attached by whoever has the store open and was called, or do it; False if it waits.

    It is durable, whatever hinders it; so no StoreError comes out. `stats` and the next opening tell of it.
    """
    deadline = time.monotonic() + wait_ms / 1000
    nap_s = FIRST_LOOK_S if is_locked else LOOK_S
    try:
        while _is_pending(pending_in(disk, store), manifest):
            if nap_s >= LOOK_S:  # the process that was called may have ended
                with suppress(StoreLocked):
                    MessageStore.open(store, disk=disk, clock=clock).close()  # an opening attaches what waits
                    return not _is_pending(pending_in(disk, store), manifest)
            if time.monotonic() >= deadline:
                return False
            time.sleep(nap_s)  # that process has no way to tell us
            nap_s = min(2 * nap_s, LOOK_S)
    except (StoreError, OSError):
        return False
    return True


def _is_pending(pending: Sequence[Pending], manifest: Manifest) -> bool:
    return any((one.manifest.name, one.manifest.batch) == manifest[1:3] for one in pending)


__all__ = ["Commit", "abort_shards", "commit_shards", "sweep_shards"]
