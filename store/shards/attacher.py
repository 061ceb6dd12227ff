"""The part of a writing store that attaches what was committed to it, by whichever process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ..device.clock import Clock
from ..device.disk import Disk
from ..errors import ReplayDiffers, StoreClosed, StoreCorrupt, StoreError
from ..format.applied import HISTORY, IN_PART, NO_BATCH, batches_of
from ..format.shard import MANIFEST_SUFFIX, QUESTION, CommitBefore, Manifest, Shard
from ..log.flusher import Flusher
from ..log.streams import FindOrMake
from ..log.together import Change
from ..log.upkeep import Upkeep
from .attach_together import attach_together
from .lane_attach import LaneAttach, key_of
from .parts import LanePart
from .question import answer_question
from .staging import (
    PendingManifest,
    StagedShard,
    damaged_manifests,
    incoming_of,
    is_refused,
    load_shard,
    pending_in,
    refuse_manifest,
    remove_staged,
    sweep,
)

Telling: TypeAlias = Callable[[], AbstractContextManager[object]]

KEPT_INDEX_BYTES = 64 << 20  # of the shards of a commit in a lane; the indexes of the others are read where wanted
INDEX_BYTES = 8  # of an index in memory, a message
SWEEP_EVERY_S = 600.0
SWEEP_OLDER_S = 24 * 3600.0


class AbandonedCommit(NamedTuple):
    """A commit that a repair has set aside: its manifest, where that is now, and how many messages are lost.

    `messages` is None where the manifest itself is damaged, `copy` where it is missing.
    """

    manifest: Path
    copy: Path | None
    messages: int | None


class ManifestMissing(StoreCorrupt):
    """A manifest names one before it that is neither there nor applied."""

    def __init__(self, folder: Path, before: CommitBefore) -> None:
        self.manifest = folder / before.file
        self.messages = before.rows
        super().__init__(f"the manifest of {before.shown} is missing", self.manifest, 0)


class Attacher:
    """Attaches commits in the order of their manifests.

    Invariants:
        * a manifest is durable before its shards are attached, whatever became of its committer;
        * it is removed when all of its lanes have its shards durably, and not before;
        * no lane changes before all shards of a commit, of all lanes, were found whole, and readers see all of it or
          nothing: see `attach_together`;
        * a commit of which any lane's log has a part is finished before the store takes a message, or shows one.
    """

    def __init__(
        self, disk: Disk, folder: Path, store_id: bytes, flushers: Sequence[Flusher], upkeep: Upkeep, clock: Clock,
        find_or_make: FindOrMake, tell: Callable[[Sequence[tuple[str, int]]], None], shown: Callable[[], Change],
        telling: Telling,
    ) -> None:  # fmt: skip
        """`tell` is called with the queues that have more messages; `shown` and `telling` as `attach_together`'s."""
        self._disk = disk
        self._folder = folder
        self._store_id = store_id
        self._clock = clock
        self._tell = tell
        self._shown = shown
        self._telling = telling
        self._lanes = [LaneAttach(disk, flusher, upkeep, store_id, clock.wall_ms, find_or_make) for flusher in flushers]
        self._attaching = threading.RLock()
        self._stopped = False
        self._answering = threading.Lock()
        self._answered = ""  # the number of the last question
        self._sweep_at = clock.monotonic_s()
        self.commits = 0
        self.messages = 0

    def attach_and_sweep(self) -> None:
        """What the background does twice a second. Raises StoreError, OSError.

        Whatever hinders a commit, the leftovers of tasks are swept by a clock of their own: on a full disk their space
        may be what the commit waits for.
        """
        names = self._disk.list(incoming_of(self._folder))
        if QUESTION in names:
            with suppress(OSError):  # whoever asks says that nobody has answered
                self.answer()
        try:
            if any(name.endswith(MANIFEST_SUFFIX) for name in names):
                self.attach_pending()
        except BaseException:
            with suppress(StoreError, OSError):  # the first one tells more
                self._sweep_if_due(names)
            raise
        self._sweep_if_due(names)

    def _sweep_if_due(self, names: Sequence[str]) -> None:
        if names and self._clock.monotonic_s() >= self._sweep_at:
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
                    self._check_before(one, pending)
                    self._attach(one, pending)
                    count += 1
                except ReplayDiffers as error:
                    refused = error
                    refuse_manifest(self._disk, self._folder, one.name)
        if refused is not None:
            raise refused
        return count

    def give_up_damaged(self, given_up: list[AbandonedCommit]) -> None:
        """Attach what waits, and set aside each commit of which a part is damaged or missing: its payloads are read.

        `given_up` gets what was set aside. Of a commit that the log has begun with, the shards that are there stay, and
        the log says that they are a part.

        Raises StoreError, OSError; call it again then.
        """
        with self._attaching:
            for name in damaged_manifests(self._disk, self._folder):
                given_up.append(self._set_aside(name, None))
            pending = pending_in(self._disk, self._folder)
            for lane in self._lanes:
                lane.checks_payloads = True
            try:
                for one in pending:
                    self._give_up_or_attach(one, pending, given_up)
            finally:
                for lane in self._lanes:
                    lane.checks_payloads = False
                    lane.forget_missing()

    def _give_up_or_attach(
        self, one: PendingManifest, pending: Sequence[PendingManifest], given_up: list[AbandonedCommit]
    ) -> None:
        try:
            self._check_before(one, pending)
        except ManifestMissing as error:
            given_up.append(AbandonedCommit(error.manifest, None, error.messages))
        try:
            self._attach(one, pending)
        except ReplayDiffers:
            refuse_manifest(self._disk, self._folder, one.name)
        except StoreCorrupt:
            missing = self._missing(one)
            waiting = frozenset(key_of(other.manifest) for other in pending)
            parts = [lane.given_up(one.manifest, waiting) for lane in self._lanes]
            self._take([part for part in parts if part is not None])
            given_up.append(self._set_aside(one.name, missing))

    def _set_aside(self, name: str, messages: int | None) -> AbandonedCommit:
        copy = refuse_manifest(self._disk, self._folder, name)
        return AbandonedCommit(incoming_of(self._folder) / name, copy, messages)

    def _check_before(self, one: PendingManifest, pending: Sequence[PendingManifest]) -> None:
        """Raises ManifestMissing if the commit before this one was neither attached, nor waits, nor was refused."""
        before = one.manifest.before
        if before is None or any(other.name == before.file for other in pending):
            return
        if not was_before(one.manifest, self.batches) and not is_refused(self._disk, self._folder, before.file):
            raise ManifestMissing(incoming_of(self._folder), before)

    def _attach(self, one: PendingManifest, pending: Sequence[PendingManifest]) -> None:
        manifest = one.manifest
        if manifest.store_id != self._store_id:
            path = incoming_of(self._folder) / one.name
            raise StoreCorrupt("a manifest is of another store", path, 0, "Move it, with its shards, to that store.")
        is_replay(manifest, self.batches(*manifest[1:3]), self._folder)
        waiting = frozenset(key_of(other.manifest) for other in pending)
        parts: list[LanePart] = []
        for lane, mine in self._shards_by_lane(manifest):
            if not lane.has(manifest):
                parts.append(lane.part(manifest, self._checked(mine), waiting))
        self._take(parts)
        self.commits += 1
        self.messages += sum(shard.rows for shard in manifest.shards)
        self._clear(one)

    def _checked(self, shards: Sequence[Shard]) -> list[StagedShard]:
        """Shards whose indexes are whole; those of a large commit are not all kept. Raises StoreCorrupt, OSError."""
        found: list[StagedShard] = []
        left_bytes = KEPT_INDEX_BYTES
        for shard in shards:
            staged = load_shard(self._disk, self._folder, shard)
            left_bytes -= INDEX_BYTES * staged.index.rows
            if left_bytes < 0:
                staged.held = None
            found.append(staged)
        return found

    def _shards_by_lane(self, manifest: Manifest) -> list[tuple[LaneAttach, list[Shard]]]:
        """The lanes that get something of a commit: its shards, or the record of one without rows."""
        shards = manifest.shards
        found = [(lane, [shard for shard in shards if shard.lane == at]) for at, lane in enumerate(self._lanes)]
        return [one for one in found if one[1]] or found[:1]

    def _take(self, parts: Sequence[LanePart]) -> None:
        """Put these parts of one commit into the log. Raises as `attach_together` does."""
        if parts:
            attach_together(parts, self._shown, self._telling)
            touched = [(stream.topic, stream.queue_id) for part in parts for stream in part.touched]
            if touched:
                self._tell(list(dict.fromkeys(touched)))

    def _is_begun(self, manifest: Manifest) -> bool:
        """Has any lane's log a part of a commit, and not all of them all of it?"""
        lanes = [lane for lane, _ in self._shards_by_lane(manifest)]
        if any(lane.is_begun(manifest) for lane in lanes):
            return True
        return any(lane.remembers(manifest) for lane in lanes) and not all(lane.has(manifest) for lane in lanes)

    def _missing(self, one: PendingManifest) -> int:
        """How many messages of a commit are not in the log."""
        return sum(
            lane.missing_rows(one.manifest, [shard for shard in one.manifest.shards if shard.lane == index])
            for index, lane in enumerate(self._lanes)
        )

    def _clear(self, one: PendingManifest) -> None:
        """All is in the log: what the manifest names goes, and then the manifest.

        A manifest without its shards does no harm here. Shards without it could be committed under another name.
        """
        incoming = incoming_of(self._folder)
        remove_staged(self._disk, self._folder, [shard.folder for shard in one.manifest.shards])
        self._disk.remove(incoming / one.name)
        self._disk.force_folder(incoming)

    def batches(self, name: str, batch: int) -> dict[int, int]:
        """The digest of each batch that the log has under the name of a commit; see `Applied.batches`. Any thread.

        Of a commit that is just being attached it may be there or not: its manifest waits still. Raises StorePoisoned.
        """
        return batches_of(lane.find((name, batch == NO_BATCH)) for lane in self._lanes)

    def answer(self) -> None:
        """Tell a committer in another process what it asks, also while something is attached. Raises OSError."""
        with self._answering:
            self._answered = answer_question(self._disk, self._folder, self._answered, self.batches)

    def begun(self) -> bool:
        """Is there a commit that a lane's log has begun with, and not finished?"""
        try:
            pending = pending_in(self._disk, self._folder)
        except StoreCorrupt:  # a manifest is damaged; it may be the one
            return any(lane.has_begun for lane in self._lanes)
        return any(self._is_begun(one.manifest) for one in pending)

    def stop(self) -> None:
        """Attach nothing more; what is under way is finished. Again is fine."""
        with self._attaching:
            self._stopped = True

    def after_fork(self) -> None:
        """In a child process: a lost thread may hold a lock."""
        self._attaching, self._answering = threading.RLock(), threading.Lock()
        self._stopped = True


def was_before(manifest: Manifest, batches: Callable[[str, int], Mapping[int, int]]) -> bool:
    """Was the commit applied that a manifest names before it? `batches`: as `Attacher.batches`.

    Also if the manifest's own commit was: this was looked at then, and an earlier one may be forgotten since.
    """
    before = manifest.before
    if before is None or manifest.batch in batches(manifest.name, manifest.batch):
        return True
    return max(batches(before.name, before.batch), default=NO_BATCH - 1) >= before.batch


def is_replay(manifest: Manifest, batches: Mapping[int, int], store: Path) -> bool:
    """Was this commit applied before? `batches`: the digests of those of its name that were.

    Raises ReplayDiffers if it was with other rows, or if it comes after later batches and nobody can tell. A batch
    that leaves nothing may come after later ones: if it had had rows, it would be remembered.
    """
    known = batches.get(manifest.batch)
    newer = sum(batch > manifest.batch for batch in batches)
    leaves_nothing = not manifest.shards and not manifest.is_kept
    if known is None and newer and not (leaves_nothing and newer <= HISTORY):
        raise ReplayDiffers(
            f"{manifest.shown} comes to {store} behind batch {max(batches)}, and was not one of the {len(batches)} "
            f"batches that are remembered. Nothing has changed; if its query was set back, find out which of its rows "
            f"are there, and go on under another name."
        )
    if known == IN_PART:
        raise ReplayDiffers(
            f"{manifest.shown} is in {store} in part: a repair has given up the rest, as a part of it was damaged. "
            f"Nothing has changed; find out which of its rows are there, and commit the others under another name."
        )
    if known not in (None, manifest.digest):
        raise ReplayDiffers(
            f"{manifest.shown} was committed to {store} with other rows. Nothing has changed; find out why its source "
            f"gives other rows now, or commit under another name."
        )
    return known is not None
