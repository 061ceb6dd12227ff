"""Committing shards to a store, from any process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from ..device.clock import Clock
from ..device.disk import Disk, OsDisk
from ..device.folder import check_store_folder, fixed_path, looking_at, read_header
from ..errors import InvalidMessage, StoreError, StoreLocked, StoreUnusable, shown, system_errors
from ..format.applied import MAX_NAME_BYTES, NO_BATCH, batches_in
from ..format.shard import Manifest, Shard
from ..live.calls import call
from ..recovery.applied import applied_tables
from ..shards.attacher import is_replay
from ..shards.committing import committing
from ..shards.lane_attach import key_of
from ..shards.question import Question
from ..shards.staging import (
    NOT_COMMITTED,
    PendingManifest,
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
FIRST_PATIENCE_S, ANSWER_S = 0.125, 30.0


class Commit(NamedTuple):
    """The outcome of a commit.

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

    The commit is durable when this returns. If it raises, nothing was committed, except after an error of the last
    step, whose text says that the commit may be durable: then call it again, with the same name. If no process has the
    store open, it is opened, and the messages have offsets when this returns, unless something hinders it: a full
    device, or an earlier commit whose shards are damaged. Else the process that has it open is called, and attaches
    them at once.

    Args:
        path: the store's folder.
        shards: what `ShardWriter.finish` returned, in the order in which offsets are to be given.
        name: whose commit it is: a query, or a transaction; up to 255 bytes of UTF-8.
        batch: its number in the query. Of a query the newest 65 batches are remembered, and a batch must come after
            those before it. None: `name` is a transaction, and is remembered for good.
        keep: False forgets a transaction once it is attached: for names that never come again. Without shards and with
            False nothing is written: it is only compared with the commit that it replays, if there is one.
        wait_ms: how long to wait for another process to attach it.

    Returns: what became of it.

    Raises:
        ReplayDiffers: a commit of this name and batch had other messages, or it is too old to tell, or a repair has
            given up a part of it. Nothing has changed.
        StoreLocked: the process that has the store open has not answered for 30 s (it hangs, or compacts), or it was
            poisoned. Nothing was committed.
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
        writer, known = _look_up(disk, store, manifest, clock, opened)
        is_new = not is_replay(manifest, known, store)
        if is_new and not shards and not keep:
            return Commit(is_new=True, is_attached=True, rows=0)
        if is_new:
            _check_shards(disk, store, manifest)
            write_manifest(disk, store, manifest)
            if writer is None:
                call(disk, store)
        else:
            _remove(disk, store, {shard.folder for shard in shards})
        if writer is not None:
            with suppress(StoreError, OSError):  # it is durable; `stats` and the next opening tell what hinders it
                writer.attach_pending()
    attached = _attach(disk, store, manifest, wait_ms, clock, FIRST_LOOK_S if writer is None else LOOK_S)
    return Commit(is_new, attached, sum(shard.rows for shard in shards))


def abort_shards(
    path: str | Path, shards: Sequence[Shard], *, transaction: str | None = None, disk: Disk | None = None
) -> int:  # fmt: skip
    """Remove shards that are not to be committed; return how many folders were removed. What a manifest names stays.

    With a `transaction`, all that its tasks have staged is removed, also shards that no caller has. So pass a name that
    no other run has.

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
    """Remove staged shards that were never committed nor written to for so long; return their folders' names.

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
    if not isinstance(name, str) or not 0 < _utf8_bytes(name) <= MAX_NAME_BYTES:
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


def _utf8_bytes(name: str) -> int:
    """0 of what UTF-8 cannot say."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:  # half a surrogate pair
        return 0


def _look_up(
    disk: Disk, store: Path, manifest: Manifest, clock: Clock | None, opened: ExitStack
) -> tuple[MessageStore | None, dict[int, int]]:
    """The store, if no process has it open, and the digests of the commits of this name, also of those that wait.

    The store is opened to attach the commit as well, and `opened` closes it. If a process has it open, that one is
    asked. Raises StoreLocked if it does not answer.
    """
    key = manifest.name, manifest.batch
    until, patience_s = time.monotonic() + ANSWER_S, FIRST_PATIENCE_S
    while True:
        writer = None
        is_locked = False
        try:
            writer = opened.enter_context(MessageStore.open(store, disk=disk, clock=clock))
        except StoreLocked:
            is_locked = True
        except StoreError:
            pass  # a damaged one may still take a commit, see `_in_closed`
        pending = pending_in(disk, store)  # before the log: what is attached meanwhile is then found there
        if writer is not None:
            found: dict[int, int] | None = writer._applied_batches(*key)
        else:
            found = (_asked if is_locked else _in_closed)(disk, store, key, patience_s)
        if found is not None:
            mine = [one.manifest for one in pending if key_of(one.manifest) == key_of(manifest)]
            return writer, {**found, **{one.batch: one.digest for one in mine}}
        if time.monotonic() >= until:
            raise StoreLocked(
                f"{store} is open in a process that has not told for {ANSWER_S:.0f} s which commits it has: it hangs, "
                f"or it compacts or rebuilds the store. {NOT_COMMITTED}"
            )
        patience_s *= 2


def _asked(disk: Disk, store: Path, key: tuple[str, int], patience_s: float) -> dict[int, int] | None:
    """The commits of a name, by the process that has the store open; None if it does not answer in `patience_s`.

    It may have ended then, or another one have come. Raises StoreLocked if it cannot tell.
    """
    question = Question(disk, store, *key)
    try:
        call(disk, store)
        until, nap_s = time.monotonic() + patience_s, FIRST_LOOK_S
        while (found := question.answer()) is None and time.monotonic() < until:
            time.sleep(nap_s)
            nap_s = min(2 * nap_s, LOOK_S)
        return found
    finally:
        question.end()


def _in_closed(disk: Disk, store: Path, key: tuple[str, int], _: float) -> dict[int, int] | None:
    """The commits of a name in a store that cannot be opened for writing; None if a process has it open now."""
    try:
        with looking_at(disk, store):
            header = read_header(disk, store)
            assert header is not None, "the manifest has its id"
            return batches_in(applied_tables(disk, store, header), *key)
    except StoreLocked:
        return None


def _remove(disk: Disk, store: Path, staged: set[str]) -> int:
    """Remove these staging folders, except those that a manifest names; return how many. `committing` is held."""
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


def _attach(disk: Disk, store: Path, manifest: Manifest, wait_ms: int, clock: Clock | None, nap_s: float) -> bool:
    """Have the process that was called attach it, or attach it here; False if it still waits.

    It is durable, whatever hinders it; so no StoreError comes out. `stats` and the next opening tell of it.
    """
    deadline = time.monotonic() + wait_ms / 1000
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


def _is_pending(pending: Sequence[PendingManifest], manifest: Manifest) -> bool:
    return any((one.manifest.name, one.manifest.batch) == manifest[1:3] for one in pending)


__all__ = ["Commit", "abort_shards", "commit_shards", "sweep_shards"]
