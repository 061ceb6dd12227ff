"""The part of one commit in one lane, step by step: in frames, or as segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from ..device.disk import Disk
from ..log.at_once import OncePart
from ..log.attach_together import LanePart
from ..log.column_group import ColumnGroup
from ..log.flusher import Flusher
from ..log.sealer import Sealer
from ..log.spares import Spares
from ..log.stopping import stopped
from ..log.streams import Stream
from ..log.together import Change
from .lane_build import LaneBuild, write_columns_ahead
from .staging import StagedShard

RECORD_BYTES = 2 << 10  # more than any record has, with its frame


class ShardsPart(LanePart, Protocol):
    """A commit's part in one lane.

    Attributes:
        touched: the streams whose readers have to be told at the end.
    """

    touched: Sequence[Stream]


class FramesPart(OncePart):
    """The messages of a small commit after its record, or the rest of a commit that a crash has cut."""

    touched: Sequence[Stream] = ()  # the lane tells waiting readers

    def __init__(
        self, flusher: Flusher, groups: Sequence[ColumnGroup], record: Callable[[], ColumnGroup] | None,
        built: Callable[[], None],
    ) -> None:  # fmt: skip
        """`record` makes the commit's record when the lane stands still; `built` is called when the log has it."""
        super().__init__(flusher)
        self._groups = groups
        self._record = record
        self._built = built

    def make(self) -> None:
        self._once.make_room(self._groups, RECORD_BYTES)

    def build(self) -> None:
        groups = self._groups if self._record is None else [self._record(), *self._groups]
        self._once.build(groups, self._built)


class SegmentsPart:
    """The shards of a large commit as segments, after a segment with its record."""

    def __init__(
        self, disk: Disk, flusher: Flusher, sealer: Sealer, spares: Spares, shards: Sequence[StagedShard],
        streams: Sequence[Sequence[Stream]], begin: Callable[[], LaneBuild],
    ) -> None:  # fmt: skip
        """`streams` are each shard's; `begin` makes the build, with the record, when the lane stands still."""
        self.flusher = flusher
        self._disk = disk
        self._sealer = sealer
        self._spares = spares
        self._shards = shards
        self._streams = streams
        self._begin = begin
        self._build: LaneBuild
        self.touched: Sequence[Stream] = [stream for mine in streams for stream in mine]

    def prepare(self) -> None:
        write_columns_ahead(self._disk, self.flusher.lane, self._shards, self._streams)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        spares = self._spares
        with spares.making:  # making a spare may take seconds: the lane does not stand still for that
            pass
        with stopped(self.flusher, self._sealer), spares.making:
            yield

    def make(self) -> None:
        build = self._build = self._begin()
        for staged, mine in zip(self._shards, self._streams, strict=True):
            build.add_shard(staged, mine)

    def build(self) -> None:
        """Do nothing: the frames are on the device."""

    def write(self) -> None:
        build, lane = self._build, self.flusher.lane
        sealed = lane.view.sealed
        used = sealed[-1].record.data_end if sealed else 0
        build.name_all()
        build.go_on()
        self._spares.attached(build.end.sequence - 1, used)
        if build.names.made is not None:  # else the next full footer adds the names again
            self._sealer.names[lane.index] = build.names.made

    @property
    def changes(self) -> Sequence[Change]:
        return self._build.changes

    def tell(self) -> None:
        self._build.tell()
