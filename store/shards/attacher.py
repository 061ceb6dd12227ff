"""The part of a writing store that attaches what was committed to it, by whichever process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..device.clock import Clock
from ..device.disk import Disk
from ..errors import ReplayDiffers, StoreClosed, StoreCorrupt, StoreError
from ..format.applied import NO_BATCH, batches_in
from ..format.shard import MANIFEST_SUFFIX, Manifest
from ..log.flusher import Flusher
from ..log.streams import FindOrMake
from ..log.upkeep import Upkeep
from .lane_attach import LaneAttach, key_of
from .staging import (
    Pending,
    Staged,
    damaged_manifests,
    incoming_of,
    load_shard,
    pending_in,
    refuse_manifest,
    remove_staged,
    sweep,
)

SWEEP_EVERY_S = 600.0
SWEEP_OLDER_S = 24 * 3600.0


class GivenUp(NamedTuple):
    """A commit that a repair has set aside: its manifest, where that is now, and how many messages are lost.

    `messages` is None where the manifest itself is damaged.
    """

    manifest: Path
    copy: Path
    messages: int | None


class Attacher:
    """Attaches commits in the order of their manifests.

    Invariants:
        * a manifest is durable before its shards are attached, whatever became of its committer;
        * it is removed when all of its lanes have its shards durably, and not before;
        * a commit that a lane's log has begun with is finished before the store takes a message.
    """

    def __init__(
        self, disk: Disk, folder: Path, store_id: bytes, flushers: Sequence[Flusher], upkeep: Upkeep, clock: Clock,
        find_or_make: FindOrMake, tell: Callable[[Sequence[tuple[str, int]]], None],
    ) -> None:  # fmt: skip
        """`tell` is called with the queues that have more messages."""
        self._disk = disk
        self._folder = folder
        self._store_id = store_id
        self._clock = clock
        self._tell = tell
        self._lanes = [LaneAttach(disk, flusher, upkeep, store_id, clock.wall_ms, find_or_make) for flusher in flushers]
        self._attaching = threading.RLock()
        self._stopped = False
        self._sweep_at = clock.monotonic_s()
        self.commits = 0
        self.messages = 0

    def look(self) -> None:
        """What the background does twice a second. Raises StoreError, OSError."""
        names = self._disk.list(incoming_of(self._folder))
        if any(name.endswith(MANIFEST_SUFFIX) for name in names):
            self.attach_pending()
        elif names and self._clock.monotonic_s() >= self._sweep_at:
            self._sweep_at = self._clock.monotonic_s() + SWEEP_EVERY_S
            with suppress(BlockingIOError):  # somebody commits
                sweep(self._disk, self._folder, SWEEP_OLDER_S, waits=False)

    def attach_pending(self) -> int:
        """Attach the commits that wait; how many. Raises StoreError, OSError.

        A commit that differs from the one that it replays is set aside, and raises ReplayDiffers when the others are
        attached.
        """
        refused: StoreError | None = None
        count = 0
        with self._attaching:
            if self._stopped:
                raise StoreClosed(f"the store {self._folder} was closed; open it again")
            pending = pending_in(self._disk, self._folder)
            if pending:  # whoever gave a manifest its name may have died before that was durable
                self._disk.force_folder(incoming_of(self._folder))
            for one in pending:
                try:
                    self._attach(one, pending)
                    count += 1
                except ReplayDiffers as error:
                    refused = error
                    refuse_manifest(self._disk, self._folder, one.name)
        if refused is not None:
            raise refused
        return count

    def give_up_damaged(self, given_up: list[GivenUp]) -> None:
        """Attach what waits, and set aside each commit of which a part is damaged or missing.

        `given_up` gets what was set aside. Of a commit that the log has begun with, the shards that are there stay.
        Raises StoreError, OSError; call it again then.
        """
        with self._attaching:
            for name in damaged_manifests(self._disk, self._folder):
                given_up.append(self._set_aside(name, None))
            pending = pending_in(self._disk, self._folder)
            for one in pending:
                try:
                    self._attach(one, pending)
                except ReplayDiffers:
                    refuse_manifest(self._disk, self._folder, one.name)
                except StoreCorrupt:
                    given_up.append(self._set_aside(one.name, self._missing(one)))
            for lane in self._lanes:
                lane.forget_missing()

    def _set_aside(self, name: str, messages: int | None) -> GivenUp:
        copy = refuse_manifest(self._disk, self._folder, name)
        return GivenUp(incoming_of(self._folder) / name, copy, messages)

    def _attach(self, one: Pending, pending: Sequence[Pending]) -> None:
        manifest = one.manifest
        if manifest.store_id != self._store_id:
            path = incoming_of(self._folder) / one.name
            raise StoreCorrupt("a manifest is of another store", path, 0, "Move it, with its shards, to that store.")
        begun = any(lane.is_begun(manifest) for lane in self._lanes)
        if not begun:
            is_replay(manifest, self.batches(*manifest[1:3]), self._folder)
        waiting = frozenset(key_of(other.manifest) for other in pending)
        for index, lane in enumerate(self._lanes):
            mine = [shard for shard in manifest.shards if shard.lane == index]
            if not (mine or (index == 0 and not manifest.shards)) or lane.has(manifest):
                continue
            staged: list[Staged] = [load_shard(self._disk, self._folder, shard) for shard in mine]
            streams = lane.attach(manifest, staged, waiting)
            if streams:
                self._tell(list(dict.fromkeys((stream.topic, stream.queue_id) for stream in streams)))
        self.commits += 1
        self.messages += sum(shard.rows for shard in manifest.shards)
        self._clear(one)

    def _missing(self, one: Pending) -> int:
        """How many messages of a commit are not in the log."""
        return sum(
            lane.missing_rows(one.manifest, [shard for shard in one.manifest.shards if shard.lane == index])
            for index, lane in enumerate(self._lanes)
        )

    def _clear(self, one: Pending) -> None:
        """All is in the log: what the manifest names goes, and then the manifest.

        A manifest without its shards does no harm here. Shards without it could be committed under another name.
        """
        incoming = incoming_of(self._folder)
        remove_staged(self._disk, self._folder, [shard.folder for shard in one.manifest.shards])
        self._disk.remove(incoming / one.name)
        self._disk.force_folder(incoming)

    def batches(self, name: str, batch: int) -> dict[int, int]:
        """The digest of each batch that the log has under the name of a commit; see `Applied.batches`."""
        return batches_in([lane.applied for lane in self._lanes], name, batch)

    def begun(self) -> bool:
        """Is there a commit that a lane's log has begun with, and not finished?"""
        try:
            pending = pending_in(self._disk, self._folder)
        except StoreCorrupt:  # a manifest is damaged; it may be the one
            return any(lane.has_begun for lane in self._lanes)
        return any(lane.is_begun(one.manifest) for lane in self._lanes for one in pending)

    def stop(self) -> None:
        """Attach nothing more; what is under way is finished. Again is fine."""
        with self._attaching:
            self._stopped = True

    def after_fork(self) -> None:
        """In a child process: a lost thread may hold the lock."""
        self._attaching = threading.RLock()
        self._stopped = True


def is_replay(manifest: Manifest, batches: Mapping[int, int], store: Path) -> bool:
    """Was this commit applied before? `batches`: the digests of those of its name that were.

    Raises ReplayDiffers if it was with other rows, or if it comes behind later batches and nobody can tell.
    """
    known = batches.get(manifest.batch)
    if known is None and manifest.batch < max(batches, default=NO_BATCH):
        raise ReplayDiffers(
            f"{manifest.shown} comes to {store} behind batch {max(batches)}, and was not one of the {len(batches)} "
            f"batches that are remembered. Nothing has changed; if its query was set back, find out which of its rows "
            f"are there, and go on under another name."
        )
    if known not in (None, manifest.digest):
        raise ReplayDiffers(
            f"{manifest.shown} was committed to {store} with other rows. Nothing has changed; find out why its source "
            f"gives other rows now, or commit under another name."
        )
    return known is not None
