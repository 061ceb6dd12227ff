"""Planning a bulk read of a store, closed or open in another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from ..device.disk import Disk
from ..errors import InvalidMessage, StoreCorrupt, shown
from ..log.lane import Lane
from ..plans.batch import ScanBatch
from ..plans.limits import LimitedEnd, ScanLimit, limited_ends
from ..plans.plan import FrameRange, LogPosition, ScanPart, ScanPlan
from ..plans.planning import LaneLook, plan_of
from ..plans.reading import OnDamage, batches_of
from ..read.wanted import ALL, ScanFilter, StreamTable
from .read_only import FollowedStore
from .store import MessageStore

Given = TypeVar("Given")
PART_BYTES = 128 << 20
LEAST_PART_BYTES = 4096
Positions = Mapping[int, LogPosition]


class ScanPlanner:
    """Plans bulk reads of one store again and again, as a stream of micro-batches wants it. Close it after use.

    Each call sees what is durable when it is made. One thread at a time.
    """

    def __init__(self, path: str | Path, *, disk: Disk | None = None) -> None:
        """Open the store for reading. Raises StoreCorrupt, StoreUnusable, StoreUnreadable."""
        self._store = MessageStore.open(path, read_only=True, disk=disk)
        self._tables: dict[int, tuple[Lane, StreamTable]] = {}  # a number means the same in the same lane alone

    @property
    def store_id(self) -> str:
        """The store's identity, wherever its folder is."""
        return self._store._store_id.hex()

    def _made(self, make: Callable[[dict[int, LaneLook]], Given], *, payload: bool = True) -> Given:
        """The result of `make` on the log as it is now, made again if retention removes a segment meanwhile."""
        fetcher = self._store._fetcher
        assert isinstance(fetcher, FollowedStore), "the store is only read"
        return fetcher.fresh(lambda: make(self._looks(payload=payload)))

    def _looks(self, *, payload: bool) -> dict[int, LaneLook]:
        store, looks = self._store, {}
        for lane in store._lanes:
            known_of, known = self._tables.get(lane.index, (None, None))
            known = known if known_of is lane else None
            looks[lane.index] = look = LaneLook(lane, store._store_id, known, payload=payload)
            self._tables[lane.index] = lane, look.table
        return looks

    def begin(self) -> Positions:
        """The beginning of the log now, by lane."""
        return self._made(lambda looks: {lane: look.begin for lane, look in looks.items()})

    def end(self) -> Positions:
        """The durable end of the log now, by lane."""
        return self._made(lambda looks: {lane: look.end for lane, look in looks.items()})

    def limited(
        self, wanted: ScanFilter, start: Positions, end: Positions | None, limit: ScanLimit, *, skip_lost: bool = False
    ) -> LimitedEnd:
        """An end, at most `end`, so that what lies before it is within the limit; the lanes share the limit evenly.

        A lane ends where it starts if nothing wanted came after the start. With the next segment of its log it moves
        on all the same, so that retention does not overtake a read that waits.

        Raises LogOvertaken unless `skip_lost`, and with it, too, where the log was compacted; InvalidMessage for a
        limit of 0, with which no read would go on.
        """
        _check_wanted(wanted)
        _check_limit(limit)
        _check_positions("start", start)
        _check_positions("end", end)

        def ends(looks: dict[int, LaneLook]) -> LimitedEnd:
            self._check_starts(looks, start, skip_lost=skip_lost)
            return limited_ends(looks, wanted, start, end, limit)

        return self._made(ends)

    def plan(
        self, wanted: ScanFilter = ALL, *, part_bytes: int = PART_BYTES, start: Positions | None = None,
        end: Positions | None = None, skip_lost: bool = False, payload: bool = True,
    ) -> ScanPlan:  # fmt: skip
        """A plan: see `plan_scan`."""
        _check_wanted(wanted)
        if type(part_bytes) is not int or part_bytes < LEAST_PART_BYTES:
            raise InvalidMessage(f"part_bytes is an integer from {LEAST_PART_BYTES} on, not {shown(part_bytes)}")
        _check_positions("start", start)
        _check_positions("end", end)

        def plan(looks: dict[int, LaneLook]) -> ScanPlan:
            self._check_starts(looks, start or {}, skip_lost=skip_lost)
            return plan_of(self._store.path, looks, wanted, part_bytes, start, end)

        return self._made(plan, payload=payload)

    def _check_starts(self, looks: Mapping[int, LaneLook], start: Positions, *, skip_lost: bool) -> None:
        for lane, position in start.items():
            if lane in looks:
                looks[lane].check_compacted(self._store._disk, position)
                if not skip_lost:
                    looks[lane].check_start(position)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def __enter__(self) -> ScanPlanner:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _check_wanted(wanted: object) -> None:
    if not isinstance(wanted, ScanFilter):
        raise InvalidMessage(f"wanted is a ScanFilter, not {shown(wanted)}")


def _check_limit(limit: object) -> None:
    if not isinstance(limit, ScanLimit):
        raise InvalidMessage(f"limit is a ScanLimit, not {shown(limit)}")
    for name, value in (("rows", limit.rows), ("size_bytes", limit.size_bytes)):
        if type(value) is not int or value < 1:
            raise InvalidMessage(f"{name} of a limit is an int of at least 1, not {shown(value)}")


def _check_positions(name: str, given: object) -> None:
    """Positions by lane, as `begin`, `end` and plans give them."""
    if given is None:
        return
    is_right = isinstance(given, Mapping) and all(
        isinstance(one, LogPosition) and all(type(number) is int for number in one) for one in given.values()
    )
    if not is_right:
        raise InvalidMessage(f"{name} has a LogPosition for each lane, as the `end` of a plan, not {shown(given)}")


def plan_scan(
    path: str | Path, wanted: ScanFilter = ALL, *, part_bytes: int = PART_BYTES, start: Positions | None = None,
    end: Positions | None = None, skip_lost: bool = False, payload: bool = True, disk: Disk | None = None,
) -> ScanPlan:  # fmt: skip
    """Plan a bulk read of a store up to one fixed end: what is durable now, as a reader process sees it.

    The store may be closed, or open in any process. The parts of the plan can be pickled; `read_part` reads one, in any
    process that has the folder. Segments without anything wanted are not opened: their footers tell. Nothing holds the
    plan against retention: a part whose segment was removed meanwhile raises StoreUnreadable.

    Args:
        path: the folder of the store.
        wanted: which messages.
        part_bytes: about how many bytes of the log a part has, at least 4,096.
        start: by lane, where to begin; None, or a lane that is left out, is the log's beginning.
        end: by lane, where to end, at most where the log is durable; None is that place. The plan's own `end` is the
            `start` of a read that continues there.
        skip_lost: True passes over messages that retention removed after `start`.
        payload: False if the parts are to be read without payloads: these do not count in `part_bytes` then.
        disk: another file system, for tests.

    Raises:
        LogOvertaken: retention removed messages after `start`, or the store was compacted since it was taken.
        StoreCorrupt: damage hides where the log goes on.
        StoreUnusable: the folder is not a store.
        InvalidMessage: an argument has a wrong type or value.
    """
    with ScanPlanner(path, disk=disk) as planner:
        return planner.plan(wanted, part_bytes=part_bytes, start=start, end=end, skip_lost=skip_lost, payload=payload)


def read_part(
    part: ScanPart, *, payload: bool = True, optional: bool = True, lengths: bool = True,
    on_damage: OnDamage | None = None, on_rebuilt: OnDamage | None = None, disk: Disk | None = None,
) -> Iterator[ScanBatch]:  # fmt: skip
    """Read a part of a plan: its messages, a batch a frame, in log order; their checksums are compared.

    Any process that has the folder may call it, at any time after the planning, and again.

    Args:
        part: of a plan of `plan_scan`.
        payload: False leaves the payloads out, and does not read them.
        optional: False leaves keys, properties and delivery times out.
        lengths: False leaves the lengths of payloads out. Without all three, what footers tell is enough: no frame of a
            sealed segment is read, unless `on_damage` wants to hear of damaged ones.
        on_damage: is called with each StoreCorrupt, and the read goes on after it: what is damaged is left out. None
            raises it.
        on_rebuilt: is called with the damage of a segment's footer that was made again of the frames; once a range.
        disk: another file system, for tests.

    Raises:
        StoreCorrupt: something is damaged; the error has file and position.
        StoreUnreadable: retention removed a segment since the planning, or the system refused a read.
        InvalidMessage: an argument has a wrong type.
    """
    if not isinstance(part, ScanPart):
        raise InvalidMessage(f"part is one of the `parts` of a plan, not {shown(part)}")
    for name, told in (("on_damage", on_damage), ("on_rebuilt", on_rebuilt)):
        if told is not None and not callable(told):
            raise InvalidMessage(f"{name} is called with the error, or None; it is not {shown(told)}")

    def rescue(one: FrameRange, error: StoreCorrupt) -> FrameRange:
        with MessageStore.open(part.store, read_only=True, disk=disk) as store:
            return LaneLook(store._lanes[one.lane], store._store_id).rescued(one, part.wanted, error)

    return batches_of(
        part, rescue, payload=payload, optional=optional, lengths=lengths, on_damage=on_damage, on_rebuilt=on_rebuilt,
        disk=disk,
    )  # fmt: skip
