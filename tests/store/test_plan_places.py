"""Reads that want no byte of a message: footers tell what its frames would."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import LogPosition, MessageStore, ScanPlan, StoreCorrupt, plan_scan, read_part
from tests.seeds import draw_seed

from .helpers import flip_bit, full_frames, seal_of, segment_path, segment_paths, tiny
from .test_plans import Clock, Name, ReadDisk, drawn_filter, fill, read_all

PLACES: dict[str, Any] = {"payload": False, "optional": False, "lengths": False}
Places = dict[Name, int]


def places_of(plan: ScanPlan, **options: object) -> Places:
    """Each message's time."""
    return {name: row.time_ms for name, row in read_all(plan, **{**PLACES, **options}).items()}


def framed(plan: ScanPlan) -> Places:
    """The same as the frames tell it."""
    return places_of(plan, lengths=True)


def test_footers_tell_what_frames_tell(tmp_path: Path) -> None:
    chance, clock = random.Random(draw_seed()), Clock()
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
        for lane in store._lanes:
            lane._clock_ms = clock.wall_ms
        for _ in range(10):
            fill(store, chance, 200)
            clock.now_ms += chance.choice([0, 10, 500, -300])
        store.trim("orders", 1, 100)
        store.delete_topic("bills")
        fill(store, chance, 300)
        times = list(framed(plan_scan(tmp_path)).values())
        for _ in range(15):  # also of the segments that are written
            wanted, size = drawn_filter(chance, times), chance.choice([20_000, 1 << 30])
            for payload in (False, True):
                plan = plan_scan(tmp_path, wanted, part_bytes=size, payload=payload)
                assert places_of(plan) == framed(plan), wanted
        assert len(times) > 1_000


def test_footers_tell_where_messages_are_between_positions(tmp_path: Path) -> None:
    """A position may cut a frame and a segment."""
    chance = random.Random(draw_seed())
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, chance, 2_000)
    last = plan_scan(tmp_path).end[0].segment
    for _ in range(30):
        low, high = sorted(LogPosition(chance.randrange(1, last + 1), chance.randrange(60), -1) for _ in range(2))
        plan = plan_scan(tmp_path, start={0: low}, end={0: high}, part_bytes=30_000)
        assert places_of(plan) == framed(plan), (low, high)


def test_messages_come_in_the_order_of_the_log(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, random.Random(draw_seed()), 1_000)

    def order(**options: Any) -> list[tuple[int, int]]:
        batches = [batch for part in plan_scan(tmp_path) for batch in read_part(part, **options)]
        return [pair for one in batches for pair in zip(one.stream_index.tolist(), one.offsets.tolist(), strict=True)]

    assert order(**PLACES) == order()


@pytest.mark.parametrize("frame", [0, 2, -1])
def test_what_a_repair_gave_up_is_left_out_and_the_rest_has_its_own_times(tmp_path: Path, frame: int) -> None:
    clock = Clock()
    with MessageStore.open(tmp_path, tiny()) as store:
        store._lanes[0]._clock_ms = clock.wall_ms
        for _ in range(12):
            store.append_batch([("t", queue, bytes(2_000)) for queue in (0, 1, 0)])
            clock.now_ms += 1_000
    file = segment_paths(tmp_path, 0)[0]
    flip_bit(file, full_frames(file)[frame].header.position + 40)
    with MessageStore.open(tmp_path, repair=True) as store:
        assert store.losses
        rows = [row for queue in (0, 1) for row in store.read("t", queue, 0, max_messages=100, max_bytes=1 << 30)]
        kept = {(row.topic, row.queue_id, row.offset): row.timestamp_ms for row in rows}
    for size in (7_000, 1 << 30):
        assert places_of(plan_scan(tmp_path, part_bytes=size)) == kept


def test_no_frame_of_a_sealed_segment_is_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(200):
            store.append_batch([("t", 0, bytes(1_000))])
    plan, disk = plan_scan(tmp_path), ReadDisk()
    assert len(places_of(plan, disk=disk)) == 200
    *sealed, _, _ = segment_paths(tmp_path)  # one that grows is read as it is, and the next may be there
    assert all(0 < disk.bytes[file.name] < 10_000 for file in sealed)


def test_damaged_frame_is_told_to_those_who_want_to_hear_of_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, random.Random(1), 500)
    frame = full_frames(segment_path(tmp_path, 1))[1]
    flip_bit(segment_path(tmp_path, 1), frame.header.position + 20)
    plan, found = plan_scan(tmp_path), list[StoreCorrupt]()
    assert len(places_of(plan)) == 500
    assert len(places_of(plan, on_damage=found.append)) == 500 - frame.header.count and len(found) == 1
    with pytest.raises(StoreCorrupt):
        framed(plan)


def test_frames_tell_where_a_footer_is_damaged(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, random.Random(2), 500)
    expected, plan = framed(plan_scan(tmp_path)), plan_scan(tmp_path)
    seal = seal_of(segment_path(tmp_path, 1))
    assert seal is not None
    flip_bit(segment_path(tmp_path, 1), seal.footer_position + 150)
    told = list[StoreCorrupt]()
    assert places_of(plan, on_rebuilt=told.append) == expected and len(told) == 1
    assert places_of(plan_scan(tmp_path)) == expected


def test_messages_that_a_repair_gave_up_have_no_place(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, random.Random(3), 500)
    frame = full_frames(segment_path(tmp_path, 1))[1]
    flip_bit(segment_path(tmp_path, 1), frame.header.position + 20)
    with MessageStore.open(tmp_path, tiny(), repair=True):
        pass
    plan = plan_scan(tmp_path)
    assert places_of(plan) == framed(plan)
    assert len(places_of(plan)) < 500
