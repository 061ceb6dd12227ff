"""Messages that a power cut took, and their acknowledgements that it left: other messages get their offsets."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import MessageStore, StoreConfig, Subscription
from stratalog.store.format.cursors import CursorMark, State, pack_acks, pack_attempts, pack_state
from stratalog.store.format.hidden import CURSOR_KIND, hidden_topic
from stratalog.store.format.layout import lane_name
from stratalog.store.log.streams import lane_of
from stratalog.store.subscriptions.cursor import Cursor
from stratalog.store.subscriptions.registry import Subscriptions
from stratalog.store.subscriptions.settings import Settings
from stratalog.store.testing import SimulatedDisk

from ...seeds import draw_seed
from ..helpers import simulated_home, tiny
from .helpers import TOPIC, fill, places

LANES = 2
NAME = next(
    name for name in map(str, range(99))
    if lane_of(hidden_topic(CURSOR_KIND, TOPIC, name), 0, LANES) != lane_of(TOPIC, 0, LANES)
)  # fmt: skip
HOME = simulated_home("lost")
FIRST, LOST = 4, 10  # messages that are forced, and that are not


def config(**changes: Any) -> StoreConfig:
    return tiny(
        lanes=LANES, durability="os", flush_interval_ms=86_400_000, memory_limit_bytes=0, **changes
    )  # fmt: skip


def after_a_power_cut(use: Callable[[Subscription], None], **settings: Any) -> SimulatedDisk:
    """A consumer uses messages of which the last ten are lost. Its records are all there: their lane was forced."""
    disk = SimulatedDisk()
    with MessageStore.open(HOME, config(), disk=disk) as store:
        fill(store, FIRST)
        sub = store.subscribe(TOPIC, NAME, **settings)
        store.flush()
        fill(store, LOST)
        use(sub)
        lane = store._lanes[1 - store._streams.topics[TOPIC][0].lane.index]
        assert lane.segment is not None
        lane.segment.writer.file.force()  # as the background does, one lane after the other
        left = disk.crash(random.Random(draw_seed()), "none")
    return left


def acknowledge_all(sub: Subscription) -> None:
    sub.ack_batch(sub.receive(100))


def acknowledge_with_holes(sub: Subscription) -> None:
    for one in sub.receive(100)[::2]:
        sub.ack(one)


def give_out(sub: Subscription) -> None:
    sub.receive(100)


def skip(sub: Subscription) -> None:
    sub.skip_all()


@pytest.mark.parametrize("use", [acknowledge_all, acknowledge_with_holes, skip])
def test_new_messages_are_not_taken_for_the_acknowledged_ones_that_were_lost(
    use: Callable[[Subscription], None],
) -> None:
    disk = after_a_power_cut(use)
    with MessageStore.open(HOME, config(), disk=disk) as store:
        assert store.queue_bounds(TOPIC, 0) == (0, FIRST)
        fill(store, LOST)
        came = places(store.subscribe(TOPIC, NAME).receive(100))
        kept = [] if use is not acknowledge_with_holes else [(0, 1), (0, 3)]
        assert came == kept + [(0, FIRST + at) for at in range(LOST)]


def test_it_is_so_for_good_also_if_nobody_receives_before_the_offsets_are_given_again() -> None:
    """Not even after another power cut, which leaves the new messages."""
    disk = after_a_power_cut(acknowledge_all)
    with MessageStore.open(HOME, config(), disk=disk) as store:
        fill(store, LOST)
        lane = store._lanes[store._streams.topics[TOPIC][0].lane.index]
        assert lane.segment is not None
        lane.segment.writer.file.force()
        left = disk.crash(random.Random(draw_seed()), "none")
    with MessageStore.open(HOME, config(), disk=left) as store:
        assert store.queue_bounds(TOPIC, 0) == (0, FIRST + LOST)
        sub = store.subscribe(TOPIC, NAME)
        assert sub.backlog().total == LOST
        assert places(sub.receive(100)) == [(0, FIRST + at) for at in range(LOST)]
        acknowledge_all(sub)


def test_new_messages_have_not_the_attempts_of_lost_ones() -> None:
    disk = after_a_power_cut(give_out, max_attempts=1, dead_letter_topic="dead")
    with MessageStore.open(HOME, config(), disk=disk) as store:
        fill(store, LOST)
        sub = store.subscribe(TOPIC, NAME)
        came = sub.receive(100)
        assert places(came) == [(0, FIRST + at) for at in range(LOST)], "the first four are dead"
        assert {one.attempt for one in came} == {1}


def test_a_repair_that_lost_the_ends_of_queues_leaves_no_acknowledgement_of_messages_to_come(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, tiny(lanes=LANES)) as store:
        fill(store, FIRST)
        sub = store.subscribe(TOPIC, NAME)
        acknowledge_all(sub)
        lane = store._streams.topics[TOPIC][0].lane.index
    shutil.rmtree(path / lane_name(lane))
    with MessageStore.open(path, tiny(), repair=True) as store:
        assert any(loss.offsets_may_repeat for loss in store.losses)
        fill(store, FIRST)
    with MessageStore.open(path, tiny()) as store:
        assert places(store.subscribe(TOPIC, NAME).receive(100)) == [(0, at) for at in range(FIRST)]


@pytest.mark.parametrize("lanes", [1, LANES])
def test_a_store_that_was_closed_loads_no_subscription_at_its_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, tiny(lanes=lanes)) as store:
        fill(store, FIRST)
        store.subscribe(TOPIC, NAME)
    monkeypatch.setattr(Subscriptions, "forget_lost", None)
    MessageStore.open(path, tiny()).close()


def test_records_of_before_count_no_more_also_if_they_are_still_there() -> None:
    """A crash may come before the older records are trimmed."""
    offsets, counts = np.arange(12), np.array([1, 2] * 6)
    records = [
        *pack_state(1, State(Settings(max_attempts=9, dead_letter_topic="dead").pack(), {0: CursorMark(0, 3)}), 4096),
        *pack_acks(1, [(0, 0, offsets[5:9])], 4096), *pack_attempts(1, [(0, 0, offsets, counts)], 4096),
    ]  # fmt: skip
    cursor, again = Cursor(), Cursor()
    for data in records:
        cursor.read(memoryview(data))
    assert cursor.cut(lambda queue_id: 7)
    assert not cursor.cut(lambda queue_id: 7)
    for data in [*records, *cursor.frozen().records(4096), *records]:
        again.read(memoryview(data))
    assert [at for at in range(12) if at in again.queue(0)] == [0, 1, 2, 5, 6]
    assert again.tried(0).of(offsets).tolist() == [0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0]
