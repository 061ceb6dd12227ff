"""A commit becomes a part of one lane's log: all of its shards, or none.

A large one's shards become segments. The messages of a small one are appended in ordinary frames, behind its record:
so the number of segments grows with the bytes of the log, and not with the number of commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..device.disk import Disk
from ..format.applied import Applied, AppliedRecord, pack_applied, unpack_applied
from ..format.footer import Footer
from ..format.layout import DATA_START, UNKNOWN
from ..format.shard import Manifest, Shard
from ..log.at_once import append_at_once, frame_bytes, room_for_once
from ..log.column_group import ColumnGroup, ColumnRows
from ..log.flusher import Flusher
from ..log.quiet import quiet
from ..log.streams import FindOrMake, Stream, check_name
from ..log.upkeep import Upkeep
from .lane_build import LaneBuild, record_of
from .loading import groups_of
from .staging import Staged

Key = tuple[str, bool]
SMALL_BYTES = 4 << 20  # two segments for fewer bytes cost more than to write them twice
RECORD_BYTES = 2 << 10  # more than any record has, with its frame


class LaneAttach:
    """Attaches to one lane. One call at a time, and none beside the end of the store.

    Invariants:
        * offsets are given in the order of the shards, and of the rows in each;
        * nothing of the lane changes before all files are written and forced, or the frames are to be written;
        * from there on it cannot fail: an error poisons the lane, and the next opening does the rest;
        * readers of this process see a commit's messages of the lane when all are durable.
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
        # So many messages the log had when it was opened, or has with the newest commit in frames: what a commit names
        # beyond that is missing. UNKNOWN, behind a repair, is beyond all.
        self._reached = self._lane.messages_before
        self._unpacked: tuple[bytes, dict[Key, Applied]] = (b"", {})  # the newest section that was asked for, and it

    @property
    def applied(self) -> Mapping[Key, Applied]:
        """The commits that the lane has."""
        section, table = self._unpacked
        if section is not self._lane.applied:
            section = self._lane.applied
            table = unpack_applied(section)
            self._unpacked = section, table
        return table

    def known(self, manifest: Manifest) -> Applied | None:
        """What the lane remembers under the commit's name: the commit itself, or a query's newest one."""
        return self.applied.get(key_of(manifest))

    def is_begun(self, manifest: Manifest) -> bool:
        """Has the lane's log begun with a commit, and not all of it?"""
        known = self.known(manifest)
        return known is not None and known.batch == manifest.batch and self._remaining(known) > 0

    def has(self, manifest: Manifest) -> bool:
        """Does the lane have all of a commit, or a later one of its query?"""
        known = self.known(manifest)
        return known is not None and known.batch >= manifest.batch and not self.is_begun(manifest)

    def missing_rows(self, manifest: Manifest, shards: Sequence[Shard]) -> int:
        """How many of a commit's messages are not there, of its shards in this lane."""
        known = self.known(manifest)
        if known is None or not self.is_begun(manifest):
            return 0 if self.has(manifest) else sum(shard.rows for shard in shards)
        remaining = self._remaining(known)
        return remaining if known.in_frames else sum(shard.rows for shard in shards[len(shards) - remaining :])

    def _remaining(self, known: Applied) -> int:
        """How many shards of a commit that the log has begun with are not there; of one in frames, how many rows."""
        if known.in_frames:
            return max(0, known.first - self._reached)
        return max(0, known.shards - (self._spares.next_sequence - known.first))

    @property
    def has_begun(self) -> bool:
        """Is anything missing of the commits that the log names?"""
        return any(map(self._remaining, self.applied.values()))

    def forget_missing(self) -> None:
        """Nobody waits any more for what is missing: the lane's commits have what is there."""
        self._lane.applied = pack_applied({key: self._cut(one) for key, one in self.applied.items()})

    def _cut(self, one: Applied) -> Applied:
        remaining = self._remaining(one)
        return (
            one._replace(first=self._reached)
            if one.in_frames and remaining
            else one._replace(shards=one.shards - remaining)
        )

    def attach(self, manifest: Manifest, shards: Sequence[Staged], waiting: frozenset[Key]) -> list[Stream]:
        """Put the lane's shards behind its log; the streams that readers have to be told of.

        Args:
            shards: those of this lane, in order, with their indexes.
            waiting: the names of all commits whose manifests are there.

        Raises StoreCorrupt, OSError, StoreFull: nothing has changed. StorePoisoned: the next opening does the rest.
        """
        if self.has(manifest):
            return []
        known = self.known(manifest)
        begun = known if self.is_begun(manifest) else None
        if begun.in_frames if begun is not None else self._are_small(shards):
            groups = self._groups(shards, 0 if begun is None else begun.first - self._reached)
            if begun is not None or self._fit(groups):
                self._append(manifest, groups, begun, waiting)
                return []
        return self._attach_segments(manifest, shards, begun, waiting)

    @property
    def _messages(self) -> int:
        """How many messages the lane's log has, or UNKNOWN."""
        return self._lane.next_header(0, 0, b"").messages_before

    # -- a small commit: frames -----------------------------------------------------------------------

    def _are_small(self, shards: Sequence[Staged]) -> bool:
        """So small that its messages are read; only where the count of messages is known can they be gone on with."""
        size = sum(staged.shard.file_bytes - DATA_START for staged in shards)
        return size <= SMALL_BYTES and self._messages != UNKNOWN

    def _fit(self, groups: Sequence[ColumnGroup]) -> bool:
        return frame_bytes(groups) + RECORD_BYTES <= room_for_once(self._flusher)

    def _groups(self, shards: Sequence[Staged], remaining: int) -> list[ColumnGroup]:
        """The messages of the shards; if some `remaining`, the last ones of them."""
        skip = sum(staged.shard.rows for staged in shards) - remaining if remaining else 0
        groups: list[ColumnGroup] = []
        for staged in shards:
            groups += groups_of(self._disk, staged, self._streams_of(staged), skip)
            skip = max(0, skip - staged.shard.rows)
        return groups

    def _streams_of(self, staged: Staged) -> list[Stream]:
        """A shard's streams, by the numbers that it gives them."""
        return self._find_or_make([check_name(*name) for name in names_in(staged.index.footer)])

    def _append(
        self, manifest: Manifest, groups: list[ColumnGroup], begun: Applied | None, waiting: frozenset[Key]
    ) -> None:
        """Append a commit's messages behind its record, or the rest of one that was `begun`."""
        lane, rows = self._lane, sum(group.count for group in groups)
        entries: list[Applied] = [] if begun is None else [begun]

        def make() -> list[ColumnGroup]:
            if begun is not None:
                return groups
            entry = self._entry(manifest, self._messages + 1 + rows, 0)._replace(in_frames=True)
            entries.append(entry)
            return [_record_group(lane.trims.records, AppliedRecord(entry, ()).pack()), *groups]

        def built(_: Sequence[ColumnGroup]) -> None:
            if begun is None:
                lane.applied = self._with(entries[0], waiting)
                lane.counters.count(0, 1)

        append_at_once(self._flusher, make, built)
        self._reached = max(self._reached, entries[0].first)

    def _entry(self, manifest: Manifest, first: int, shards: int) -> Applied:
        entry = Applied(manifest.name, manifest.batch, manifest.digest, first, shards, manifest.is_kept)
        return entry.behind(self.known(manifest))

    # -- a large one: segments ------------------------------------------------------------------------

    def _attach_segments(
        self, manifest: Manifest, shards: Sequence[Staged], begun: Applied | None, waiting: frozenset[Key]
    ) -> list[Stream]:
        lane, spares = self._lane, self._spares
        with quiet(self._flusher, self._sealer), spares.making:
            todo = shards if begun is None else shards[len(shards) - self._remaining(begun) :]
            streams = [self._streams_of(staged) for staged in todo]
            touched = [stream for mine in streams for stream in mine]
            records = [] if begun is not None else [lane.trims.records]
            names = self._sealer.names[lane.index]
            build = LaneBuild(
                self._disk, lane, names, spares.next_sequence, [*records, *touched], self._store_id, self._clock_ms
            )
            if begun is None:
                entry = self._entry(manifest, build.end.sequence + 1, len(shards))
                build.applied = self._with(entry, waiting)
                build.add_record(AppliedRecord(entry, record_of(shards)))
            for staged, mine in zip(todo, streams, strict=True):
                build.add_shard(staged, mine)
            self._show(build)
        return touched

    def _with(self, entry: Applied, waiting: frozenset[Key]) -> bytes:
        """The lane's commits and one more. Those that no replay can come of any more are forgotten."""
        table = {key: one for key, one in self.applied.items() if one.is_kept or key in waiting}
        table[entry.key] = entry
        section = pack_applied(table)
        self._unpacked = section, table  # else the next commit unpacks what was packed here
        return section

    def _show(self, build: LaneBuild) -> None:
        sealed = self._lane.view.sealed
        used = sealed[-1].record.data_end if sealed else 0
        try:
            build.name_all()
            build.show()
            self._spares.attached(build.end.sequence - 1, used)
            self._sealer.names[self._lane.index] = build.names  # else each attaching adds all streams anew
        except BaseException as error:  # which of the names are durable only the next opening can tell
            self._flusher.fail(error)
            raise


def _record_group(records: Stream, data: bytes) -> ColumnGroup:
    """A record as a group of one message."""
    return ColumnGroup(
        ColumnRows([records], np.zeros(1, np.intp), None, np.array([len(data)], np.int64), [data], len(data))
    )


def key_of(manifest: Manifest) -> Key:
    """As `Applied.key`."""
    return manifest.name, manifest.batch < 0


def names_in(footer: Footer) -> list[tuple[str, int]]:
    """The streams of a footer by number. Raises StoreCorrupt."""
    topics = footer.topics()
    pairs = zip(footer.stream_topic.tolist(), footer.stream_queue.tolist(), strict=True)
    return [(topics[topic], queue_id) for topic, queue_id in pairs]
