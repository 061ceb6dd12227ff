"""Segments whose first messages, or all, a repair gave up."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import MessageStore, ScanFilter, ScanLimit, ScanPlanner, StoreCorrupt, read_part
from stratalog.store.format.layout import DATA_START
from stratalog.store.testing import TunedConfig

from .delayed.consumer import Hand, topic_of
from .helpers import flip_bit, mark, overwrite, segment_path, tiny

HOUR_MS = 3_600_000
KIB = 1 << 10
COLD = TunedConfig(
    segment_bytes=64 * KIB, max_message_bytes=16 * KIB, max_frame_bytes=16 * KIB, recent_bytes=0, memory_limit_bytes=0
)


@pytest.fixture
def hand() -> Hand:
    return Hand()


def give_up_first_frame(path: Path, sequence: int, hand: Hand) -> None:
    """The head of a segment's first frame is damaged, and a repair sets the frame aside."""
    flip_bit(segment_path(path, sequence), DATA_START + 20)
    with hand.open(path, COLD, repair=True) as store:
        assert sum(loss.messages or 0 for loss in store.losses) == 1


def append_until(store: MessageStore, sequence: int) -> int:
    """Append messages until there is one in this segment; how many there are before it."""
    (lane,) = store._lanes
    count = -1
    while not lane.view.open or lane.view.open[-1].segment.sequence < sequence:
        store.append("t", 0, bytes(10_000))
        count += 1
    return count


def test_queue_is_read_up_to_a_segment_that_has_a_mark_and_no_message(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path, COLD) as store:
        count = append_until(store, 2)
        mark(store)
    give_up_first_frame(tmp_path, 2, hand)
    for read_only in (False, True):
        with MessageStore.open(tmp_path, COLD, read_only=read_only) as found:
            assert len(found.read("t", 0, 0)) == count
            assert found.read("t", 0, count) == []


def test_limited_end_passes_a_segment_whose_frames_and_footer_are_gone(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path, COLD) as store:
        append_until(store, 3)
    path = segment_path(tmp_path, 1)
    overwrite(path, DATA_START, bytes(path.stat().st_size - DATA_START))
    with ScanPlanner(tmp_path) as planner:
        found = planner.limited(ScanFilter(topics=("t",)), planner.begin(), None, ScanLimit(1, 1))
        assert found.rows == 1 and found.ends[0].segment == 2
        with pytest.raises(StoreCorrupt):  # the reading tells
            for part in planner.plan(ScanFilter(topics=("t",)), end=found.ends).parts:
                list(read_part(part))


def test_delayed_messages_behind_a_lost_first_frame_are_in_the_index(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path) as store:
        store.append("other", 0, b"lost")
        store.append("t", 0, b"later", deliver_at_ms=hand.now_ms + HOUR_MS)
    give_up_first_frame(tmp_path, 1, hand)
    with hand.open(tmp_path, tiny()) as store:
        assert topic_of(store).pending == 1
        store.append("t", 0, b"now")
        with store.subscribe("t", "s") as sub:
            assert sub.backlog().delayed == 1
            assert [one.message.data for one in sub.receive()] == [b"now"]
            hand.now_ms += HOUR_MS
            assert [one.message.data for one in sub.receive()] == [b"later"]
