"""What the cache is fed with: every message once, with its offset, at whatever moments the feed looks."""

from __future__ import annotations

import gc
import weakref
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stratalog.cache import MessageCache
from stratalog.store.device.ring import Ring
from stratalog.store.log.offsets import NextOffsets
from stratalog.store.log.write import OpenSegment
from stratalog.store.log.written_lane import WrittenLane
from stratalog.store.read.feed import LaneFeed
from stratalog.store.read.feeder import Feeder
from stratalog.store.segment.open_table import OpenTable, entry_rows
from stratalog.store.segment.segment import Segment

SIZE = 100


class Tables:
    """A lane's tables, filled and made visible by hand; all messages are of stream 0 and have 100 bytes."""

    def __init__(self) -> None:
        self.ring = Ring(1 << 20)
        self.ring.fill(0, [bytes(range(250)) * 4000], 1_000_000)
        self.lane: Any = SimpleNamespace(
            index=0,
            view=SimpleNamespace(open=()),
            offsets=NextOffsets(),
            ring=self.ring,
            durable=1 << 40,
            on_segment=None,
        )
        self.feed = LaneFeed(cast(WrittenLane, self.lane), 1)
        self.tail = 0

    def segment(self) -> OpenTable:
        table = OpenTable()
        self.lane.on_segment(OpenSegment(cast(Segment, SimpleNamespace(base=0)), table))
        return table

    def frame(self, table: OpenTable, count: int) -> None:
        starts = range(self.tail, self.tail + count * SIZE, SIZE)
        rows = entry_rows(starts, array("I", [SIZE] * count), array("I", starts))
        table.add_frame(self.tail, 0, 0, bytes(2 * count), rows)
        self.tail += count * SIZE

    def taken(self) -> list[tuple[int, int]]:
        """(offset, where it lies) of all that can be taken."""
        found: list[tuple[int, int]] = []
        while parts := self.feed.take(7):
            for part in parts:
                found += zip(part.batch.offsets.tolist(), part.positions.tolist(), strict=True)
        return found


@pytest.fixture
def tables() -> Tables:
    return Tables()


def expected(first: int, end: int) -> list[tuple[int, int]]:
    return [(offset, offset * SIZE) for offset in range(first, end)]


def test_only_whole_frames_that_are_visible_are_taken(tables: Tables) -> None:
    table = tables.segment()
    assert tables.taken() == []
    tables.frame(table, 5)
    tables.frame(table, 3)
    found = []
    for visible in (0, 4, 5, 7, 8):
        table.visible = visible
        found.append(tables.taken())
    assert found == [[], [], expected(0, 5), [], expected(5, 8)]


def test_marks_between_frames_are_stepped_over(tables: Tables) -> None:
    table = tables.segment()
    for count in (0, 4, 0, 0, 2, 0):
        tables.frame(table, count)
        table.visible = table.entries
    assert tables.taken() == expected(0, 6)
    tables.frame(table, 1)
    table.visible = table.entries
    assert tables.taken() == expected(6, 7)


@pytest.mark.parametrize("behind", ["whole_frames", "the first look"])
def test_the_end_of_a_segment_becomes_visible_while_the_feed_looks(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, behind: str
) -> None:
    first = tables.segment()
    tables.frame(first, 5)
    first.visible = 5
    tables.frame(first, 4)
    second = tables.segment()
    tables.frame(second, 3)
    look = OpenTable.whole_frames

    def meanwhile(table: OpenTable) -> tuple[int, int]:
        found = look(table)
        first.visible, second.visible = 9, 3
        return found if behind == "whole_frames" else look(table)

    monkeypatch.setattr(OpenTable, "whole_frames", meanwhile)
    assert tables.taken() == expected(0, 12)


def test_a_frame_that_comes_while_the_feed_looks_is_taken_next_time(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.segment()
    tables.frame(table, 2)
    table.visible = 2
    look: Callable[[OpenTable], tuple[int, int]] = OpenTable.whole_frames
    more = iter((3, 1))

    def meanwhile(mine: OpenTable) -> tuple[int, int]:
        found = look(mine)
        for count in more:
            tables.frame(table, count)
            table.visible = table.entries
            break
        return found

    monkeypatch.setattr(OpenTable, "whole_frames", meanwhile)
    assert tables.taken() == expected(0, 6)


def test_a_feed_that_would_skip_messages_raises(tables: Tables) -> None:
    table = tables.segment()
    tables.frame(table, 5)
    tables.frame(table, 5)
    table.visible = 10
    tables.feed._frame = 1
    with pytest.raises(RuntimeError, match="skipped"):
        tables.taken()


def test_a_feed_that_lags_keeps_no_file_of_a_segment(tables: Tables) -> None:
    segment = Segment.__new__(Segment)
    segment.base = 0
    gone, table = weakref.ref(segment), OpenTable()
    tables.lane.on_segment(OpenSegment(segment, table))
    tables.frame(table, 5)
    table.visible = table.entries
    del segment
    gc.collect()
    assert gone() is None
    assert tables.taken() == expected(0, 5)


def test_a_feed_says_where_its_next_message_is(tables: Tables) -> None:
    feed, table = tables.feed, tables.segment()
    tables.lane.durable = 0
    assert (feed.taken_until(), feed.waiting_bytes()) == (0, 0)
    for _ in range(3):
        tables.frame(table, 4)
    tables.lane.durable = 3 * 4 * SIZE
    table.visible = 8
    assert (feed.taken_until(), feed.waiting_bytes()) == (0, 12 * SIZE)
    assert tables.taken() == expected(0, 8)
    assert (feed.taken_until(), feed.waiting_bytes()) == (12 * SIZE, 0)  # what is there, nobody may see yet
    table.visible = 12
    assert (feed.taken_until(), feed.waiting_bytes()) == (8 * SIZE, 4 * SIZE)


def test_a_feeder_is_woken_when_half_of_the_ring_waits_and_not_before(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeder = Feeder(cast(MessageCache, None), [], lambda error: None)
    feeder._feeds, half = [tables.feed], tables.ring.size_bytes // 2
    table = tables.segment()
    tables.frame(table, 4)
    table.visible, tables.lane.durable = 4, 4 * SIZE
    woken: list[tuple[int, bool]] = []

    def wait(seconds: float | None) -> bool:
        for durable in (5 * SIZE, half, half + 1):
            tables.lane.durable = durable
            feeder.look()
            woken.append((durable, feeder._wake.is_set()))
        return feeder._wake.is_set()

    monkeypatch.setattr(feeder._wake, "wait", wait)
    feeder._sleep()
    assert woken == [(5 * SIZE, False), (half, False), (half + 1, True)]
    feeder.look()
    assert not feeder._asleep


def test_a_feeder_with_nothing_to_do_is_woken_by_whatever_comes(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeder = Feeder(cast(MessageCache, None), [], lambda error: None)
    feeder._feeds = [tables.feed]
    tables.lane.durable = 0
    waits: list[float | None] = []

    def wait(seconds: float | None) -> bool:
        waits.append(seconds)
        tables.lane.durable = SIZE
        feeder.look()
        return feeder._wake.is_set()

    monkeypatch.setattr(feeder._wake, "wait", wait)
    feeder._sleep()
    assert waits == [None] and feeder._wake.is_set()
