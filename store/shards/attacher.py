"""The part of a writing store that attaches commits, whichever process made them."""

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
from ..log.attach_together import attach_together
from ..log.flusher import Flusher
from ..log.streams import FindOrMake
from ..log.together import Change
from ..log.upkeep import Upkeep
from .lane_attach import LaneAttach, key_of
from .parts import ShardsPart
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

KEPT_INDEX_BYTES = 64 << 20  # of a commit's shards in a lane; indexes beyond that are read at each use
INDEX_BYTES = 8  # for each message, of an index in memory
SWEEP_EVERY_S = 600.0
SWEEP_OLDER_S = 24 * 3600.0


class AbandonedCommit(NamedTuple):
    """A commit that a repair has set aside: its manifest, the manifest's new place, and the number of lost messages.

    `messages` is None if the manifest itself is damaged, `copy` if it is missing.
    """

    manifest: Path
    copy: Path | None
    messages: int | None


class ManifestMissing(StoreCorrupt):
    """A manifest names an earlier one that neither exists nor was applied."""

    def __init__(self, folder: Path, before: CommitBefore) -> None:
        self.manifest = folder / before.file
        self.messages = before.rows
        super().__init__(f"the manifest of {before.shown} is missing", self.manifest, 0)


class Attacher:
    """Attaches commits in the order of their manifests.

    Invariants:
        * a manifest is durable before its shards are attached, whatever became of its committer;
        * a manifest is removed only when all of its lanes have its shards durably;
        * no lane changes before all shards of a commit, of all lanes, were found whole, and readers see all of it or
          nothing: see `attach_together`;
        * if any lane's log has a part of a commit, that commit is finished before the store takes or shows a message.
    """

    def __init__(
        self, disk: Disk, folder: Path, store_id: bytes, flushers: Sequence[Flusher], upkeep: Upkeep, clock: Clock,
        find_or_make: FindOrMake, tell: Callable[[Sequence[tuple[str, int]]], None], shown: Callable[[], Change],
        telling: Telling,
    ) -> None:  # fmt: skip
        """`tell` gets the queues that have more messages; `shown` and `telling` as for `attach_together`."""
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
        """The work of the background, twice a second. Raises StoreError, OSError.

        Whatever hinders a commit, leftovers of tasks are swept by a clock of their own: on a full disk the commit may
        wait for their space.
        """
        names = self._disk.list(incoming_of(self._folder))
        if QUESTION in names:
            with suppress(OSError):  # the committer that asks will report that it got no answer
                self.answer()
        try:
            if any(name.endswith(MANIFEST_SUFFIX) for name in names):
                self.attach_pending()
        except BaseException:
            with suppress(StoreError, OSError):  # the first error tells more
                self._sweep_if_due(names)
            raise
        self._sweep_if_due(names)

    def _sweep_if_due(self, names: Sequence[str]) -> None:
        if names and self._clock.monotonic_s() >= self._sweep_at:
            self._sweep_at = self._clock.monotonic_s() + SWEEP_EVERY_S
            with suppress(BlockingIOError):  # somebody commits
                sweep(self._disk, self._folder, SWEEP_OLDER_S, waits=False)

    def attach_pending(self) -> int:
        """Attach the waiting commits. Returns their number. Raises StoreError, OSError.

        A commit that replays an earlier one with other rows is set aside, and raises ReplayDiffers after the others
        were attached.
        """
        refused: StoreError | None = None
        count = 0
        with self._attaching:
            if self._stopped:
                raise StoreClosed(f"the store {self._folder} was closed; open it again")
            pending = pending_in(self._disk, self._folder)
            if pending:  # a committer may have died between renaming a manifest and forcing the folder
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
        """Attach waiting commits, and set aside each commit with a damaged or missing part. All payloads are read.

        `given_up` gets these commits. If the log has a part of one, that part stays, and the log notes the loss.

        Raises StoreError, OSError; then call it again.
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
        """Raise ManifestMissing if the commit before this one was neither attached, nor waits, nor was refused."""
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
        parts: list[ShardsPart] = []
        for lane, mine in self._shards_by_lane(manifest):
            if not lane.has(manifest):
                parts.append(lane.part(manifest, self._checked(mine), waiting))
        self._take(parts)
        self.commits += 1
        self.messages += sum(shard.rows for shard in manifest.shards)
        self._clear(one)

    def _checked(self, shards: Sequence[Shard]) -> list[StagedShard]:
        """Shards with whole indexes; not all indexes of a large commit are kept. Raises StoreCorrupt, OSError."""
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
        """The lanes that get a part of a commit, with its shards there; a commit without rows has only its record."""
        shards = manifest.shards
        found = [(lane, [shard for shard in shards if shard.lane == at]) for at, lane in enumerate(self._lanes)]
        return [one for one in found if one[1]] or found[:1]

    def _take(self, parts: Sequence[ShardsPart]) -> None:
        """Put the parts of one commit into the log. Raises as `attach_together` does."""
        if parts:
            attach_together(parts, self._shown, self._telling)
            touched = [(stream.topic, stream.queue_id) for part in parts for stream in part.touched]
            if touched:
                self._tell(list(dict.fromkeys(touched)))

    def _is_begun(self, manifest: Manifest) -> bool:
        """Whether some lane's log has a part of a commit, and not all lanes have all of it."""
        lanes = [lane for lane, _ in self._shards_by_lane(manifest)]
        if any(lane.is_begun(manifest) for lane in lanes):
            return True
        return any(lane.remembers(manifest) for lane in lanes) and not all(lane.has(manifest) for lane in lanes)

    def _missing(self, one: PendingManifest) -> int:
        """The number of a commit's messages that are not in the log."""
        return sum(
            lane.missing_rows(one.manifest, [shard for shard in one.manifest.shards if shard.lane == index])
            for index, lane in enumerate(self._lanes)
        )

    def _clear(self, one: PendingManifest) -> None:
        """The log has all of a commit: remove its shards, and then its manifest.

        A manifest without its shards does no harm here. Shards without their manifest could be committed once more
        under another name.
        """
        incoming = incoming_of(self._folder)
        remove_staged(self._disk, self._folder, [shard.folder for shard in one.manifest.shards])
        self._disk.remove(incoming / one.name)
        self._disk.force_folder(incoming)

    def batches(self, name: str, batch: int) -> dict[int, int]:
        """By batch, the digest of each one that the log has under a commit's name; see `Applied.batches`. Any thread.

        A commit that is being attached at this moment may be missing: its manifest still waits. Raises StorePoisoned.
        """
        return batches_of(lane.find((name, batch == NO_BATCH)) for lane in self._lanes)

    def answer(self) -> None:
        """Answer the question of a committer in another process, also during an attaching. Raises OSError."""
        with self._answering:
            self._answered = answer_question(self._disk, self._folder, self._answered, self.batches)

    def begun(self) -> bool:
        """Whether a lane's log has a part of a commit that is not finished."""
        try:
            pending = pending_in(self._disk, self._folder)
        except StoreCorrupt:  # a damaged manifest may be the one of that commit
            return any(lane.has_begun for lane in self._lanes)
        return any(self._is_begun(one.manifest) for one in pending)

    def stop(self) -> None:
        """Attach nothing more, and wait for the commit under way. A second call does no harm."""
        with self._attaching:
            self._stopped = True

    def after_fork(self) -> None:
        """In a child process: a lost thread may hold a lock."""
        self._attaching, self._answering = threading.RLock(), threading.Lock()
        self._stopped = True


def was_before(manifest: Manifest, batches: Callable[[str, int], Mapping[int, int]]) -> bool:
    """Whether the commit was applied that a manifest names as the one before. `batches`: as `Attacher.batches`.

    True also if the manifest's own commit was applied: the one before was checked then, and may be forgotten since.
    """
    before = manifest.before
    if before is None or manifest.batch in batches(manifest.name, manifest.batch):
        return True
    return max(batches(before.name, before.batch), default=NO_BATCH - 1) >= before.batch


def is_replay(manifest: Manifest, batches: Mapping[int, int], store: Path) -> bool:
    """Whether this commit was applied already. `batches`: the digests of the applied ones of its name.

    Raises ReplayDiffers if it was applied with other rows, or if it comes after later batches and is not remembered. A
    batch without rows and record may come after later ones: with rows, it would be remembered.
    """
    known = batches.get(manifest.batch)
    newer = sum(batch > manifest.batch for batch in batches)
    leaves_nothing = not manifest.shards and not manifest.is_kept
    if known is None and newer and not (leaves_nothing and newer <= HISTORY):
        raise ReplayDiffers(
            f"{manifest.shown} comes to {store} after batch {max(batches)}, and was not one of the {len(batches)} "
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
