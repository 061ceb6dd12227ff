"""The commits in one lane, and the way of another one into its log.

The shards of a large commit become segments. The messages of a small one are appended in ordinary frames, after its
record: so the number of segments grows with the bytes of the log, and not with the number of commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from ..device.disk import Disk
from ..errors import copy_of
from ..format.applied import IN_PART, AppliedCommit, AppliedRecord, Key, pack_applied
from ..format.commit_names import CommitNames
from ..format.footer import names_in
from ..format.layout import DATA_START, UNKNOWN
from ..format.shard import Manifest, Shard
from ..log.at_once import frame_bytes, room_for_once
from ..log.column_group import ColumnGroup, ColumnRows
from ..log.flusher import Flusher
from ..log.streams import FindOrMake, Stream, check_name
from ..log.upkeep import Upkeep
from .lane_build import LaneBuild, record_of
from .loading import check_payloads, groups_of
from .parts import RECORD_BYTES, FramesPart, SegmentsPart, ShardsPart
from .staging import StagedShard

SMALL_BYTES = 4 << 20  # with fewer bytes, two more segments cost more than writing the messages twice


class LaneAttach:
    """The commits that one lane has, and the part of a commit that goes into it.

    Invariants:
        * offsets are given in the order of the shards, and of the rows in each;
        * a commit's record comes before its messages, so the log tells how much of the commit is there.
    """

    def __init__(
        self, disk: Disk, flusher: Flusher, upkeep: Upkeep, store_id: bytes, clock_ms: Callable[[], int],
        find_or_make: FindOrMake,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._flusher = flusher
        self._lane = flusher.lane
        self._sealer = upkeep.sealer
        self._spares = upkeep.spares_of(flusher.lane.index)
        self._store_id = store_id
        self._clock_ms = clock_ms
        self._find_or_make = find_or_make
        # Messages in the log at the opening, or after the newest commit in frames: a commit that counts beyond this is
        # incomplete. UNKNOWN, after a repair, is larger than any count.
        self._reached = self._lane.messages_before
        self.checks_payloads = False  # of large shards, too, which are not read otherwise

    @property
    def applied(self) -> Mapping[Key, AppliedCommit]:
        """The lane's commits. Raises StorePoisoned."""
        self._check_poison()
        return self._lane.commits.table

    def _check_poison(self) -> None:
        """Raise StorePoisoned if a write has failed: then the lane's memory proves nothing."""
        if self._lane.poison is not None:
            raise copy_of(self._lane.poison)

    def find(self, key: Key) -> AppliedCommit | None:
        """The lane's commit of this key: the commit itself, or a query's newest one. Any thread.

        Raises StorePoisoned.
        """
        self._check_poison()
        return self._lane.commits.find(key)

    def known(self, manifest: Manifest) -> AppliedCommit | None:
        """`find` by a commit's manifest."""
        return self.find(key_of(manifest))

    def is_begun(self, manifest: Manifest) -> bool:
        """Whether the lane's log has a part of a commit, and not all of it."""
        known = self.known(manifest)
        return known is not None and known.batch == manifest.batch and self._remaining(known) > 0

    def has(self, manifest: Manifest) -> bool:
        """Whether the lane has all of a commit, or a later one of its query."""
        known = self.known(manifest)
        return known is not None and known.batch >= manifest.batch and not self.is_begun(manifest)

    def remembers(self, manifest: Manifest) -> bool:
        """Whether the lane has a commit's record, and no later commit of its query."""
        known = self.known(manifest)
        return known is not None and known.batch == manifest.batch

    def missing_rows(self, manifest: Manifest, shards: Sequence[Shard]) -> int:
        """The number of a commit's messages that are missing in this lane."""
        known = self.known(manifest)
        if known is None or not self.is_begun(manifest):
            return 0 if self.has(manifest) else sum(shard.rows for shard in shards)
        remaining = self._remaining(known)
        return remaining if known.in_frames else sum(shard.rows for shard in shards[len(shards) - remaining :])

    def _remaining(self, known: AppliedCommit) -> int:
        """The number of missing shards of a commit that the log has begun; for one in frames, of missing rows."""
        if known.in_frames:
            return max(0, known.first - self._reached)
        return max(0, known.shards - (self._spares.next_sequence - known.first))

    @property
    def has_begun(self) -> bool:
        """Whether a part of a commit that the log names is missing."""
        return any(map(self._remaining, self.applied.values()))

    def forget_missing(self) -> None:
        """Count the lane's commits as complete with the parts that exist: the missing parts were given up."""
        left = pack_applied({key: self._cut(one) for key, one in self.applied.items()})
        self._lane.replace_commits(CommitNames(left))

    def _cut(self, one: AppliedCommit) -> AppliedCommit:
        remaining = self._remaining(one)
        return (
            one._replace(first=self._reached)
            if one.in_frames and remaining
            else one._replace(shards=one.shards - remaining)
        )

    def part(self, manifest: Manifest, shards: Sequence[StagedShard], waiting: frozenset[Key]) -> ShardsPart:
        """The part of a commit that goes into the lane. The payloads of a small one are read and checked.

        Args:
            shards: those of this lane, in order, with their indexes.
            waiting: the names of all commits whose manifests still exist.

        Raises StoreCorrupt, OSError.
        """
        known = self.known(manifest)
        begun = known if self.is_begun(manifest) else None
        if begun.in_frames if begun is not None else self._are_small(shards):
            groups = self._groups(shards, 0 if begun is None else begun.first - self._reached)
            if begun is not None or self._fit(groups):
                return self._in_frames(manifest, groups, begun, waiting)
        return self._as_segments(manifest, shards, begun, waiting)

    @property
    def _messages(self) -> int:
        """The number of messages in the lane's log, or UNKNOWN."""
        return self._lane.next_header(0, 0, b"").messages_before

    # -- a small commit: frames -----------------------------------------------------------------------

    def _are_small(self, shards: Sequence[StagedShard]) -> bool:
        """Whether shards are so small that their messages are read. If the log's message count is unknown, no commit
        is: it could not be continued after a crash.
        """
        size = sum(staged.shard.file_bytes - DATA_START for staged in shards)
        return size <= SMALL_BYTES and self._messages != UNKNOWN

    def _fit(self, groups: Sequence[ColumnGroup]) -> bool:
        return frame_bytes(groups) + RECORD_BYTES <= room_for_once(self._flusher)

    def _groups(self, shards: Sequence[StagedShard], remaining: int) -> list[ColumnGroup]:
        """The messages of the shards; with `remaining`, only the last `remaining` ones."""
        skip = sum(staged.shard.rows for staged in shards) - remaining if remaining else 0
        groups: list[ColumnGroup] = []
        for staged in shards:
            groups += groups_of(self._disk, staged, self._streams_of(staged), skip)
            skip = max(0, skip - staged.shard.rows)
        return groups

    def _streams_of(self, staged: StagedShard) -> list[Stream]:
        """A shard's streams, by the shard's numbers."""
        return self._find_or_make([check_name(*name) for name in names_in(staged.index.footer)])

    def _in_frames(
        self, manifest: Manifest, groups: list[ColumnGroup], begun: AppliedCommit | None, waiting: frozenset[Key]
    ) -> ShardsPart:
        """A commit's messages after its record, or the rest of a commit that was `begun`."""
        if begun is not None:
            return FramesPart(self._flusher, groups, None, partial(self._note_reached, begun))
        rows = sum(group.count for group in groups)

        def entry() -> AppliedCommit:
            return self._entry(manifest, self._messages + 1 + rows, 0, in_frames=True)

        return self._recorded(groups, entry, waiting)

    def _recorded(
        self, groups: list[ColumnGroup], entry: Callable[[], AppliedCommit], waiting: frozenset[Key]
    ) -> ShardsPart:
        """Messages after a record. `entry` makes the record's content when the lane stands still."""
        lane, made = self._lane, list[AppliedCommit]()

        def record() -> ColumnGroup:
            made.append(entry())
            return _record_group(lane.lows.records, AppliedRecord(made[0], ()).pack())

        def built() -> None:
            lane.commits.add(made[0], waiting)
            lane.counters.count(0, 1)
            self._note_reached(made[0])

        return FramesPart(self._flusher, groups, record, built)

    def _note_reached(self, entry: AppliedCommit) -> None:
        self._reached = max(self._reached, entry.first)

    def _entry(self, manifest: Manifest, first: int, shards: int, *, in_frames: bool = False) -> AppliedCommit:
        given = manifest.name, manifest.batch, manifest.digest, first, shards, manifest.is_kept
        return AppliedCommit(*given, in_frames=in_frames).behind(self.known(manifest))

    def given_up(self, manifest: Manifest, waiting: frozenset[Key]) -> ShardsPart | None:
        """The record that the lane has only a part of a commit, whose rest was given up; None if it has no part.

        So a replay of the commit is never taken for one of all of its rows.
        """
        known = self.known(manifest)
        if known is None or known.batch != manifest.batch:
            return None
        messages = self._messages
        first = 0 if messages == UNKNOWN else messages + 1
        part = known._replace(digest=IN_PART, first=first, shards=0, in_frames=True)
        return self._recorded([], lambda: part, waiting)

    # -- a large commit: segments ---------------------------------------------------------------------

    def _as_segments(
        self, manifest: Manifest, shards: Sequence[StagedShard], begun: AppliedCommit | None, waiting: frozenset[Key]
    ) -> ShardsPart:
        lane, spares = self._lane, self._spares
        todo = shards if begun is None else shards[len(shards) - self._remaining(begun) :]
        streams = [self._streams_of(staged) for staged in todo]
        for staged in todo if self.checks_payloads else ():
            check_payloads(self._disk, staged)

        def begin() -> LaneBuild:
            records = [] if begun is not None else [lane.lows.records]
            touched = [stream for mine in streams for stream in mine]
            build = LaneBuild(
                self._disk, lane, self._sealer.names[lane.index], spares.next_sequence, [*records, *touched],
                self._store_id, self._clock_ms,
            )  # fmt: skip
            if begun is None:
                entry = self._entry(manifest, build.end.sequence + 1, len(shards))
                build.commits = lane.commits.copy()
                build.commits.add(entry, waiting)
                build.add_record(AppliedRecord(entry, record_of(shards)))
            return build

        return SegmentsPart(self._disk, self._flusher, self._sealer, spares, todo, streams, begin)


def _record_group(records: Stream, data: bytes) -> ColumnGroup:
    """A record as a group of one message."""
    return ColumnGroup(
        ColumnRows([records], np.zeros(1, np.intp), None, np.array([len(data)], np.int64), [data], len(data))
    )


def key_of(manifest: Manifest) -> Key:
    """`AppliedCommit.key` of a manifest's commit."""
    return manifest.name, manifest.batch < 0
