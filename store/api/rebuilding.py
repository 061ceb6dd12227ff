"""Making again what a closed store has lost and can do without: footers, and indexes of delayed messages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from ..delayed.parts import DELAYED_FOLDER
from ..device.clock import SYSTEM_CLOCK
from ..device.disk import Disk, OsDisk, ReadingDisk
from ..device.exchange import exchange
from ..device.folder import fixed_path, looking_at, read_header
from ..errors import system_errors
from ..format.delays import BEGIN, DELAYS, LogPlace
from ..format.dues import NO_DUES
from ..format.hidden import hidden_parts
from ..format.layout import checksum64, lane_name
from ..rebuild.delays import DuePart, gather_dues, join_index
from ..rebuild.footers import make_footer, put_footer
from ..rebuild.looking import SegmentAt, look_at_segment, sealed_segments
from ..rebuild.placing import FooterPart, LeftFooter, place_lane
from .looking import look_into_folder
from .store_reader import StoreReader

STAGING = "rebuild"  # in the store's folder; what a killed rebuild leaves there goes with the next one
DUE_PART_BYTES = 128 << 20
Part = TypeVar("Part")
Result = TypeVar("Result")


class InParts(Protocol):
    """Has a function called with each part of some work, in any processes: the results, in the order of the parts."""

    def __call__(self, work: Callable[[Part], Result], parts: Sequence[Part], /) -> list[Result]: ...


class Rebuilt(NamedTuple):
    """The outcome of a rebuild.

    Attributes:
        footers: how many were made again and put into their segments.
        left: a sentence for each lost footer that was left as it is.
        delayed: by topic, how many pending messages its new index has; what an opening adds from the log's end, and
            from changed delays, is not counted.
    """

    footers: int
    left: list[str]
    delayed: dict[str, int]


def here(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Do one part after the other, in this process."""
    return [work(part) for part in parts]


def rebuild_store(
    path: str | Path, *, in_parts: InParts = here, footers: bool = True, delays: bool = True, now_ms: int | None = None
) -> Rebuilt:
    """Make lost footers, and the indexes of delayed messages, again of the log of a closed store.

    A footer is made where the frames and the segment before tell all of it without doubt; every checksum of its segment
    is compared. Others are left: a store that opens reads such a segment by its frames, and one that does not open
    needs a repair. The indexes are made of the frames that have delivery times, of each topic that has an index, and
    take the place of what is there. The store then opens without reading them from the log. A topic gets its index with
    its first subscription; one without is left out.

    The store is locked meanwhile. A kill at any moment leaves it as it was, or with some of the work done.

    Args:
        path: the folder of the store.
        in_parts: how the parts of the work are done; the function and the parts can be pickled. The default does all of
            it here, one after the other.
        footers, delays: False leaves these as they are.
        now_ms: ms since the epoch; messages that are due by then are pending no more. None is the system's time.

    Raises:
        StoreLocked: a process has the store open.
        StoreUnusable: the folder is not a store.
        StoreCorrupt: damage hides where the log goes on, or a footer that could not be made again hides messages.
        StoreFull: there is no space for what is made.
        StoreUnreadable: the system refused to read or to write a file; try again.
    """
    store = fixed_path(path)
    with system_errors(f"{store} could not be rebuilt", "Nothing is lost; try again."):
        made, left = _rebuild_footers(store, in_parts) if footers else (0, [])
        found = rebuild_delays(store, in_parts, now_ms) if delays else {}
    return Rebuilt(made, [f"{Path(one.at.folder).name}, segment {one.at.sequence}: {one.why}" for one in left], found)


def _rebuild_footers(store: Path, in_parts: InParts) -> tuple[int, list[LeftFooter]]:
    disk, looking = OsDisk(), ReadingDisk()
    with looking_at(looking, store):
        header = read_header(looking, store)
        assert header is not None, "a folder without one is refused"
        staging = _staging(disk, store)
        lanes = [
            sealed_segments(looking, store / lane_name(lane), lane, header.store_id)
            for lane in range(header.lanes)
            if (store / lane_name(lane)).is_dir()
        ]
        looks = iter(in_parts(look_at_segment, [at for lane in lanes for at in lane.sealed]))
        parts: list[FooterPart] = []
        left: list[LeftFooter] = []
        for lane in lanes:
            of_lane = place_lane(looking, lane, [next(looks) for _ in lane.sealed])
            parts += of_lane[0]
            left += of_lane[1]
        made = in_parts(partial(make_footer, staging=staging), parts)
        for part, footer in zip(parts, made, strict=True):
            put_footer(disk, part, footer)
        _clear(staging)
        return len(parts), left


def rebuild_delays(store: Path, in_parts: InParts, now_ms: int | None = None) -> dict[str, int]:
    """The indexes of delayed messages, made again: see `rebuild_store`. Raises StoreError, OSError."""
    after_ms = SYSTEM_CLOCK.wall_ms() if now_ms is None else now_ms
    disk = OsDisk()
    with look_into_folder(store) as looked:
        told = [hidden_parts(stream.topic) for stream in looked._shared.hidden.of_kind(DELAYS)]
        topics = tuple(one.names[0] for one in told if one is not None and one.names)
        if not topics:
            return {}
        staging = _staging(disk, store)
        try:
            segments, places = _sealed_dues(looked, after_ms)
            parts = [DuePart(some, topics, after_ms) for some in _grouped(segments)]
            runs = [run for found in in_parts(partial(gather_dues, staging=staging), parts) for run in found]
            counts = {}
            for topic in topics:
                to = staging / f"{checksum64(topic.encode()):016x}"
                counts[topic] = join_index(disk, topic, [run for run in runs if run.topic == topic], places, to)
                _put_index(disk, to, store / DELAYED_FOLDER / to.name)
        finally:
            shutil.rmtree(staging, ignore_errors=True)  # also on a full disk
        return counts


def _sealed_dues(looked: StoreReader, after_ms: int) -> tuple[list[SegmentAt], list[LogPlace]]:
    """The sealed segments with pending messages, and for each lane the place after its last sealed one.

    Segments that an opening seals are left out: their end may not be durable yet. Raises StoreCorrupt.
    """
    segments, places = [], []
    for lane in looked._lanes:
        sealed = sealed_segments(ReadingDisk(), lane.folder, lane.index, looked._store_id).sealed
        known = {at.sequence: at for at in sealed}
        place = BEGIN
        for one in lane.view.sealed:
            at = known.get(one.segment.sequence)
            if at is None:
                break
            index = one.index
            if index.is_remade:
                raise one.damaged()
            if index.footer.dues != NO_DUES and index.footer.dues.most > after_ms:
                segments.append(at)
            place = LogPlace(at.sequence + 1, 0)
        places.append(place)
    return segments, places


def _grouped(segments: Sequence[SegmentAt]) -> list[tuple[SegmentAt, ...]]:
    """Neighbouring segments, put together until they are large enough for a part."""
    groups: list[list[SegmentAt]] = []
    size = DUE_PART_BYTES
    for at in segments:
        if size >= DUE_PART_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(at)
        size += at.size_bytes
    return [tuple(group) for group in groups]


def _put_index(disk: Disk, fresh: Path, place: Path) -> None:
    """Put the folder of a new index in the place of the old one. Both have one name or the other at any moment."""
    disk.make_folder(place.parent)
    if place.exists():
        try:
            exchange(fresh, place)
        except OSError:  # the file system cannot: for a moment there is no index, and an opening would make it anew
            disk.rename(place, fresh.with_name(f"old-{fresh.name}"))
            disk.rename(fresh, place)
    else:
        disk.rename(fresh, place)
    disk.force_folder(place.parent)
    disk.force_folder(fresh.parent)


def _staging(disk: Disk, store: Path) -> Path:
    """An empty folder for what is not a part of the store yet."""
    staging = store / STAGING
    _clear(staging)
    disk.make_folder(staging)
    return staging


def _clear(staging: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(staging)
