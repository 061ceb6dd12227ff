"""Bulk reads in steps: each within its limit, together all that is wanted, each message once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import (
    InvalidMessage,
    LogOvertaken,
    LogPosition,
    MessageStore,
    ScanFilter,
    ScanLimit,
    ScanPlanner,
)
from tests.seeds import draw_seed

from .helpers import has_settled, tiny, until
from .test_plans import Name, Row, drawn_filter, fill, meets, read_all, scanned_rows


def steps(planner: ScanPlanner, wanted: ScanFilter, limit: ScanLimit) -> list[dict[Name, Row]]:
    """What the steps give until one of them does not move."""
    found: list[dict[Name, Row]] = []
    at = dict(planner.begin())
    while True:
        ended = planner.limited(wanted, at, None, limit)
        assert all(ended.ends[lane] >= position for lane, position in at.items())
        if ended.ends == at:
            return found
        found.append(read_all(planner.plan(wanted, part_bytes=50_000, start=at, end=ended.ends)))
        at = ended.ends


@pytest.mark.parametrize("lanes", [1, 3])
def test_steps_within_a_limit_give_each_wanted_message_once(tmp_path: Path, lanes: int) -> None:
    chance = random.Random(draw_seed())
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store, ScanPlanner(tmp_path) as planner:
        fill(store, chance, 1_500)
        store.trim("orders", 0, 30)
        expected = scanned_rows(store)
        times = [row.time_ms for row in expected.values()]
        for _ in range(12):
            wanted = chance.choice([ScanFilter(), drawn_filter(chance, times)])
            rows = chance.choice([20, 100, 1_000])
            limit = chance.choice([ScanLimit(rows), ScanLimit(size_bytes=100 * rows), ScanLimit(rows, 20_000)])
            found = steps(planner, wanted, limit)
            assert all(len(step) <= limit.rows for step in found)
            together: dict[Name, Row] = {}
            for step in found:
                assert not step.keys() & together.keys()
                together |= step
            assert together == {name: row for name, row in expected.items() if meets(name, row, wanted)}


def test_limit_of_rows_is_used_up_where_there_are_as_many(tmp_path: Path) -> None:
    """Lanes with little leave their share to the others."""
    with MessageStore.open(tmp_path, tiny(lanes=4)) as store, ScanPlanner(tmp_path) as planner:
        names = [("t", queue) for queue in range(8)]
        for _ in range(5):
            store.append_columns(names, np.arange(400) % 3, np.full(400, 10), bytes(4_000))
        begin = planner.begin()
        ended = planner.limited(ScanFilter(), begin, None, ScanLimit(777))
        assert len(read_all(planner.plan(start=begin, end=ended.ends))) == ended.rows == 777


def test_limit_of_bytes_takes_at_least_a_frame_and_not_much_more_than_it_says(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store, ScanPlanner(tmp_path) as planner:
        for _ in range(20):
            store.append("t", 0, bytes(50_000))
        found = steps(planner, ScanFilter(), ScanLimit(size_bytes=10))
        assert [len(step) for step in found] == [1] * 20
        found = steps(planner, ScanFilter(), ScanLimit(size_bytes=250_000))
        assert {len(step) for step in found[:-1]} <= {3, 4, 5}


def test_steps_end_at_a_given_end(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store, ScanPlanner(tmp_path) as planner:
        store.append_batch([("t", 0, b"%d" % at) for at in range(100)])
        target = dict(planner.end())
        store.append_batch([("t", 0, b"later")] * 50)
        assert planner.limited(ScanFilter(), planner.begin(), target, ScanLimit()).ends == target
        assert planner.limited(ScanFilter(), planner.begin(), target, ScanLimit(rows=1_000)).ends == target
        behind = {0: LogPosition(1, 120, 120)}
        assert planner.limited(ScanFilter(), behind, target, ScanLimit()).ends == behind  # it never goes back


def test_planner_sees_what_comes_and_keeps_the_id_of_a_moved_store(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store, ScanPlanner(tmp_path / "store") as planner:
        assert dict(planner.end()) == {0: LogPosition(1, 0, 0)}
        store.append("t", 0, b"a")
        assert dict(planner.end()) == {0: LogPosition(1, 1, 1)}
        known = planner.store_id
    (tmp_path / "store").rename(tmp_path / "moved")
    with ScanPlanner(tmp_path / "moved") as planner:
        assert planner.store_id == known


@pytest.mark.parametrize("wrong", [ScanLimit(0), ScanLimit(rows=-1), ScanLimit(size_bytes=0), ScanLimit(1.5), 10])  # type: ignore[arg-type]  # that is what is tested
def test_limit_of_nothing_is_refused(tmp_path: Path, wrong: Any) -> None:
    MessageStore.open(tmp_path / "store").close()
    with ScanPlanner(tmp_path / "store") as planner, pytest.raises(InvalidMessage, match="limit"):
        planner.limited(ScanFilter(), planner.begin(), None, wrong)


@pytest.mark.parametrize("limit", [ScanLimit(), ScanLimit(50)])
def test_a_read_rests_until_something_wanted_comes(tmp_path: Path, limit: ScanLimit) -> None:
    wanted = ScanFilter(("orders",), start_offset=2)
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store, ScanPlanner(tmp_path) as planner:
        sub = store.subscribe("other", "s")
        store.append_batch([("orders", queue, b"x") for queue in range(8)] * 3)
        at = planner.limited(wanted, planner.begin(), None, limit).ends
        assert read_all(planner.plan(wanted, start=planner.begin(), end=at))
        store.append_batch([("other", queue, b"x") for queue in range(8)])
        for one in sub.receive(100, wait_ms=1_000):
            sub.ack(one)
        store.append("orders", 20, b"below the start")
        assert planner.end() != at
        assert planner.limited(wanted, at, None, limit).ends == at
        store.append("orders", 0, b"new")
        ended = planner.limited(wanted, at, None, limit).ends
        assert [*read_all(planner.plan(wanted, start=at, end=ended))] == [("orders", 0, 3)]
        assert planner.limited(wanted, ended, None, limit).ends == ended


def test_a_read_that_only_waits_moves_on_with_the_segments(tmp_path: Path) -> None:
    """So retention does not overtake it."""
    wanted = ScanFilter(("orders",))
    with MessageStore.open(tmp_path, tiny(retention_bytes=300_000)) as store, ScanPlanner(tmp_path) as planner:
        at, moves, segments = planner.end(), 0, set()
        for _ in range(60):
            store.append("other", 0, bytes(20_000))
            until(lambda: has_settled(store))
            before, at = at, planner.limited(wanted, at, None, ScanLimit()).ends
            moves += at != before
            segments.add(planner.end()[0].segment)
        assert store.queue_bounds("other", 0)[0] > 10, "retention was to remove some"
        assert 5 < moves <= len(segments)


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_read_rests_exactly_where_nothing_wanted_came_in_its_segment(tmp_path: Path, lanes: int) -> None:
    chance = random.Random(draw_seed())
    with MessageStore.open(tmp_path / "s", tiny(lanes=lanes)) as store, ScanPlanner(tmp_path / "s") as planner:
        starts = []
        for _ in range(15):
            fill(store, chance, chance.choice([1, 20, 150]))
            starts.append(planner.end())
        store.trim("orders", 0, store.queue_bounds("orders", 0)[1] // 2)
        times = [row.time_ms for row in scanned_rows(store).values()]
    checked = 0
    for is_open in (True, False):
        with (
            MessageStore.open(tmp_path / "s", tiny(lanes=lanes), read_only=not is_open),
            ScanPlanner(tmp_path / "s") as planner,
        ):
            ends = planner.end()
            for start in starts:
                wanted = drawn_filter(chance, times)
                for lane, end in ends.items():
                    try:
                        came = read_all(planner.plan(wanted, start={**ends, lane: start[lane]}))
                    except LogOvertaken:  # the trim has freed all of its segment, the lane's first
                        assert start[lane].segment == 1
                        continue
                    checked += 1
                    rested = planner.limited(wanted, {lane: start[lane]}, None, ScanLimit()).ends[lane]
                    assert (rested == start[lane]) is (start[lane].segment == end.segment and not came)
    assert checked > 15 * lanes
