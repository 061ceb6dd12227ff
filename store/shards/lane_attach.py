"""The shards of a commit become segments of one lane's log: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..device.disk import Disk
from ..format.applied import Applied, AppliedRecord, pack_applied, unpack_applied
from ..format.footer import Footer
from ..format.shard import Manifest
from ..log.flusher import Flusher
from ..log.quiet import quiet
from ..log.streams import Stream
from ..log.upkeep import Upkeep
from .lane_build import LaneBuild, record_of
from .staging import Staged

FindOrMake = Callable[[str, int], Stream]
Key = tuple[str, bool]


class LaneAttach:
    """Attaches to one lane. One call at a time, and none beside the end of the store.

    Invariants:
        * offsets are given in the order of the shards, and of the rows in each;
        * nothing of the lane changes before all files are written and forced;
        * from the first new name on it cannot fail: an error poisons the lane, and the next opening does the rest;
        * readers of this process see all of the commit's messages of the lane at once, when all names are durable.
    """

    def __init__(
        self, disk: Disk, flusher: Flusher, upkeep: Upkeep, store_id: bytes, clock_ms: Callable[[], int],
        find_or_make: FindOrMake,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._flusher = flusher
        self._lane = flusher.lane
        self._upkeep = upkeep
        self._spares = upkeep.spares_of(flusher.lane.index)
        self._store_id = store_id
        self._clock_ms = clock_ms
        self._find_or_make = find_or_make

    @property
    def applied(self) -> bytes:
        """The commits that the lane has, as a footer has them."""
        return self._lane.applied

    def known(self, manifest: Manifest) -> Applied | None:
        """What the lane remembers under the commit's name: the commit itself, or a query's newest one."""
        return unpack_applied(self._lane.applied).get(key_of(manifest))

    def remaining(self, manifest: Manifest) -> int:
        """How many shards of a commit that the lane's log has begun with are not there."""
        known = self.known(manifest)
        if known is None or known.batch != manifest.batch:
            return 0
        return max(0, known.shards - (self._spares.next_sequence - known.first))

    @property
    def has_begun(self) -> bool:
        """Are shards missing of the commits that the log names?"""
        following = self._spares.next_sequence
        return any(one.first + one.shards > following for one in unpack_applied(self._lane.applied).values())

    def forget_missing(self) -> None:
        """Nobody waits any more for the shards that are missing: the lane's commits have those that are there."""
        following, lane = self._spares.next_sequence, self._lane
        table = unpack_applied(lane.applied)
        there = {key: one._replace(shards=min(one.shards, max(0, following - one.first))) for key, one in table.items()}
        lane.applied = pack_applied(there)

    def attach(self, manifest: Manifest, shards: Sequence[Staged], waiting: frozenset[Key]) -> list[Stream]:
        """Put the lane's shards behind its log; the streams that have more messages now.

        Args:
            shards: those of this lane, in order, with their indexes.
            waiting: the names of all commits whose manifests are there.

        Raises StoreCorrupt, OSError, StoreFull: nothing has changed. StorePoisoned: the next opening does the rest.
        """
        lane, spares = self._lane, self._spares
        with quiet(self._flusher, self._upkeep), spares.making:
            known, remaining = self.known(manifest), self.remaining(manifest)
            is_begun = known is not None and known.batch >= manifest.batch
            if is_begun and not remaining:
                return []
            todo = shards[len(shards) - remaining :] if is_begun else shards
            streams = [[self._find_or_make(*name) for name in names_in(staged.index.footer)] for staged in todo]
            touched = [stream for mine in streams for stream in mine]
            records = [] if is_begun else [lane.trims.records]
            names = self._upkeep.names[lane.index]
            build = LaneBuild(
                self._disk, lane, names, spares.next_sequence, [*records, *touched], self._store_id, self._clock_ms
            )
            if not is_begun:
                entry = Applied(
                    manifest.name, manifest.batch, manifest.digest, build.sequence + 1, len(shards), manifest.is_kept
                ).behind(known)
                build.applied = self._with(entry, waiting)
                build.add_record(AppliedRecord(entry, record_of(shards)))
            for staged, mine in zip(todo, streams, strict=True):
                build.add_shard(staged, mine)
            self._show(build)
        return touched

    def _with(self, entry: Applied, waiting: frozenset[Key]) -> bytes:
        """The lane's commits and one more. Those that no replay can come of any more are forgotten."""
        table = unpack_applied(self._lane.applied)
        kept = {key: one for key, one in table.items() if one.is_kept or key in waiting}
        return pack_applied({**kept, entry.key: entry})

    def _show(self, build: LaneBuild) -> None:
        sealed = self._lane.view.sealed
        used = sealed[-1].record.data_end if sealed else 0
        try:
            build.name_all()
            build.show()
            self._spares.attached(build.sequence - 1, used)
            self._upkeep.names[self._lane.index] = build.names  # else each attaching adds all streams anew
        except BaseException as error:  # which of the names are durable only the next opening can tell
            self._flusher.fail(error)
            raise


def key_of(manifest: Manifest) -> Key:
    """As `Applied.key`."""
    return manifest.name, manifest.batch < 0


def names_in(footer: Footer) -> list[tuple[str, int]]:
    """The streams of a footer by number. Raises StoreCorrupt."""
    topics = footer.topics()
    pairs = zip(footer.stream_topic.tolist(), footer.stream_queue.tolist(), strict=True)
    return [(topics[topic], queue_id) for topic, queue_id in pairs]
