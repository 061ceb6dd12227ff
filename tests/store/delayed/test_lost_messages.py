"""Delayed messages that a power cut took, and the changes of them that it left: other messages get their offsets."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from stratalog.store import MessageStore, StoreConfig
from stratalog.store.delayed.changes import ChangesReader
from stratalog.store.format.delays import CANCELLED, CHANGES, DELAYS, WHOLE, Changes
from stratalog.store.format.hidden import hidden_topic
from stratalog.store.log.streams import lane_of
from stratalog.store.testing import SimulatedDisk

from ...clocks import WallClock
from ...seeds import draw_seed
from ..helpers import simulated_home, tiny
from .consumer import START_MS, Consumer, Got, Hand, delays_of

LANES = 2
TOPIC = next(
    name for name in map(str, range(99)) if lane_of(hidden_topic(DELAYS, name), 0, LANES) != lane_of(name, 0, LANES)
)
HOME = simulated_home("lost-delays")
FIRST, LOST = 4, 6  # messages that are forced, and that are not
SOONER_MS, LATER_MS, MUCH_LATER_MS = START_MS + 5, START_MS + 10, START_MS + 1000


def config(**changes: object) -> StoreConfig:
    settings = {"durability": "os", "flush_interval_ms": 86_400_000, "memory_limit_bytes": 0, **changes}
    return tiny(lanes=LANES, **settings)


def opened(disk: SimulatedDisk, hand: Hand, **changes: object) -> MessageStore:
    store = MessageStore.open(HOME, config(**changes), disk=disk, clock=WallClock(lambda: hand.now_ms))
    return store


def fill(store: MessageStore, count: int, at_ms: int = LATER_MS) -> None:
    for _ in range(count):
        store.append(TOPIC, 0, b"x", deliver_at_ms=at_ms)


def cancel(store: MessageStore, offset: int) -> None:
    assert store.cancel_delayed(TOPIC, 0, offset)


def move(store: MessageStore, offset: int) -> None:
    assert store.reschedule_delayed(TOPIC, 0, offset, MUCH_LATER_MS)


def cut_power(store: MessageStore, disk: SimulatedDisk, *, keep_messages: bool) -> SimulatedDisk:
    """What is left where one of the two lanes was forced just before."""
    at = store._streams.topics[TOPIC][0].lane.index
    lane = store._lanes[at if keep_messages else 1 - at]
    assert lane.segment is not None
    lane.segment.writer.file.force()
    return disk.crash(random.Random(draw_seed()), "none")


def after_a_power_cut(change: Callable[[MessageStore, int], None], hand: Hand, *, save: bool = False) -> SimulatedDisk:
    """The last messages are changed, and lost; the records of that are all there. `save`: the index has files."""
    disk = SimulatedDisk()
    with opened(disk, hand) as store:
        fill(store, FIRST)
        cancel(store, 0)
        store.flush()
        fill(store, LOST)
        if change is not cancel or not save:
            for offset in range(FIRST, FIRST + LOST):
                change(store, offset)
        if save:
            delays = delays_of(store)
            delays.catch_up()
            delays.checkpoint(delays.topic(TOPIC))
        left = cut_power(store, disk, keep_messages=False)
    return left


@pytest.mark.parametrize("change", [cancel, move])
@pytest.mark.parametrize("durability", ["os", "force"])
def test_a_change_of_a_lost_message_is_none_of_the_one_that_gets_its_offset(
    change: Callable[[MessageStore, int], None], durability: str, hand: Hand
) -> None:
    disk = after_a_power_cut(change, hand)
    with opened(disk, hand, durability=durability) as store:
        assert store.queue_bounds(TOPIC, 0) == (0, FIRST)
        fill(store, LOST)
        consumer = Consumer(store, TOPIC)
        hand.now_ms = LATER_MS
        assert sorted(consumer.poll()) == [Got(0, at) for at in range(1, FIRST + LOST)]


@pytest.mark.parametrize("change", [cancel, move])
def test_it_is_so_for_good(change: Callable[[MessageStore, int], None], hand: Hand) -> None:
    """Not even after another power cut, which leaves the new messages, do the old changes count."""
    disk = after_a_power_cut(change, hand)
    with opened(disk, hand) as store:
        fill(store, LOST)
        left = cut_power(store, disk, keep_messages=True)
    with opened(left, hand) as store:
        assert store.queue_bounds(TOPIC, 0) == (0, FIRST + LOST)
        consumer = Consumer(store, TOPIC)
        hand.now_ms = LATER_MS
        assert sorted(consumer.poll()) == [Got(0, at) for at in range(1, FIRST + LOST)]


def test_the_files_of_an_index_are_not_taken_over_if_they_have_lost_messages(hand: Hand) -> None:
    """The lost end of a lane is told by the entries of its last segment, also once that is sealed."""
    disk = after_a_power_cut(cancel, hand, save=True)
    with opened(disk, hand, durability="force") as store:
        fill(store, LOST, SOONER_MS)
        consumer = Consumer(store, TOPIC)
        hand.now_ms = SOONER_MS
        assert sorted(consumer.poll()) == [Got(0, at) for at in range(FIRST, FIRST + LOST)]


def test_changes_of_messages_from_the_end_of_their_queue_on_are_left_out() -> None:
    reader = ChangesReader(lambda queue_id: 10 * queue_id)
    queues, offsets = np.array([1, 1, 2, 2]), np.array([9, 10, 19, 1 << 40])
    for kind in (CHANGES, WHOLE):
        places = reader.add(Changes(kind, 0, queues, offsets, np.full(4, CANCELLED)).pack())
        assert places.tolist() == [(1 << 32) + 9, (2 << 32) + 19]
        assert sorted(reader.state.cancelled) == places.tolist()
        assert reader.is_cut
