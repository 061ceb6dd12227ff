"""Planning a bulk read of a store, closed or open in another process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ..device.disk import Disk
from ..errors import InvalidMessage, StoreCorrupt, shown
from ..plans.batch import ScanBatch
from ..plans.plan import FrameRange, LogPosition, ScanPart, ScanPlan
from ..plans.planning import LaneLook, plan_of
from ..plans.reading import OnDamage, batches_of
from ..plans.wanted import ScanFilter
from .store import MessageStore

PART_BYTES = 128 << 20
LEAST_PART_BYTES = 4096
ALL = ScanFilter()


def plan_scan(
    path: str | Path, wanted: ScanFilter = ALL, *, part_bytes: int = PART_BYTES,
    start: Mapping[int, LogPosition] | None = None, end: Mapping[int, LogPosition] | None = None,
    skip_lost: bool = False, disk: Disk | None = None,
) -> ScanPlan:  # fmt: skip
    """Plan a bulk read of a store up to one fixed end (R41): what is durable now, as a reader process sees it.

    The store may be closed, or open in any process. The parts of the plan can be pickled; `read_part` reads one, in any
    process that has the folder. Segments without anything wanted are not opened: their footers tell. Nothing holds the
    plan against retention: a part whose segment was removed meanwhile raises StoreUnreadable.

    Args:
        path: the folder of the store.
        wanted: which messages.
        part_bytes: about how many bytes of the log a part has, at least 4,096.
        start: by lane, where to begin; None, or a lane that is left out, is the log's beginning.
        end: by lane, where to end, at most where the log is durable; None is that place. The plan's own `end` is the
            `start` of a read that goes on behind it.
        skip_lost: True goes on behind what retention removed behind `start`.
        disk: another file system, for tests.

    Raises:
        LogOvertaken: retention removed messages behind `start`.
        StoreCorrupt: damage hides where the log goes on.
        StoreUnusable: the folder is not a store.
        InvalidMessage: an argument has a wrong type or value.
    """
    if not isinstance(wanted, ScanFilter):
        raise InvalidMessage(f"wanted is a ScanFilter, not {shown(type(wanted))}")
    if type(part_bytes) is not int or part_bytes < LEAST_PART_BYTES:
        raise InvalidMessage(f"part_bytes is an integer from {LEAST_PART_BYTES} on, not {shown(part_bytes)}")
    with MessageStore.open(path, read_only=True, disk=disk) as store:
        looks = {lane.index: LaneLook(lane, store._store_id) for lane in store._lanes}
        for lane, position in ({} if start is None or skip_lost else start).items():
            if lane in looks:
                looks[lane].check_start(position)
        return plan_of(store.path, looks, wanted, part_bytes, start, end)


def read_part(
    part: ScanPart, *, payload: bool = True, optional: bool = True, on_damage: OnDamage | None = None,
    disk: Disk | None = None,
) -> Iterator[ScanBatch]:  # fmt: skip
    """Read a part of a plan (R41): its messages, a batch a frame, in log order. Every checksum is verified.

    Any process that has the folder may call it, at any time after the planning, and again.

    Args:
        part: of a plan of `plan_scan`.
        payload: False leaves the payloads out, and does not read them.
        optional: False leaves keys, properties and delivery times out.
        on_damage: is called with each StoreCorrupt, and the read goes on behind it: what is damaged is left out. None
            raises it.
        disk: another file system, for tests.

    Raises:
        StoreCorrupt: something is damaged; the error has file and position.
        StoreUnreadable: retention removed a segment since the planning, or the system refused a read.
    """

    def rescue(one: FrameRange, error: StoreCorrupt) -> FrameRange:
        with MessageStore.open(part.store, read_only=True, disk=disk) as store:
            return LaneLook(store._lanes[one.lane], store._store_id).rescued(one, part.wanted, error)

    return batches_of(part, rescue, payload=payload, optional=optional, on_damage=on_damage, disk=disk)
