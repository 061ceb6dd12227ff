"""Streams of deleted topics and subscriptions: they leave, once retention has passed all of their messages."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import MessageStore, StoreConfig, StoreCorrupt, compact_store, inspect_folder, verify_folder
from stratalog.store.format.footer import names_in
from stratalog.store.format.layout import BLOCK_BYTES, GONE_TOPIC
from stratalog.store.log.gone import _are_before
from stratalog.store.log.lane import Lane
from stratalog.store.log.streams import lane_of
from stratalog.store.segment import sealing
from stratalog.store.segment.sealed import SealedSegment
from stratalog.store.testing import TunedConfig

from .helpers import crash_copy, flip_bit, overwrite, seal_of, segment_paths, until

SEGMENT = 1 << 16
PART = bytes(SEGMENT // 8)


@pytest.fixture(params=["full footers", "small footers"], autouse=True)
def footers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Full ones alone, or each 4th, also of lanes of a few streams."""
    if request.param == "small footers":
        monkeypatch.setattr(sealing, "FEW_STREAMS", 0)
        monkeypatch.setattr(sealing, "SMALL_SHARE", 0)
        monkeypatch.setattr(sealing, "GROUP_SEGMENTS", 4)
    yield request.param


def config(lanes: int = 1, segments: int = 6) -> StoreConfig:
    """Retention keeps so many segments of each lane."""
    return TunedConfig(lanes=lanes, segment_bytes=SEGMENT, prewrite_bytes=0, retention_bytes=lanes * segments * SEGMENT)


def roll(store: MessageStore, segments: int) -> None:
    """Go on until each lane has so many sealed segments more, and no other that waits for its seal."""
    for lane in store._lanes:
        sealed_up(lane)
        queue = next(number for number in range(1000) if lane_of("live", number, len(store._lanes)) == lane.index)
        newest = last(lane)
        while last(lane) < newest + segments:
            store.append("live", queue, PART)
            sealed_up(lane)


def sealed_up(lane: Lane) -> None:
    until(lambda: len(lane.view.open) <= 1)


def last(lane: Lane) -> int:
    sealed = lane.view.sealed
    return sealed[-1].segment.sequence if sealed else 0


def passed(store: MessageStore) -> None:
    """Retention has passed all that was appended by now."""
    newest = [last(lane) for lane in store._lanes]
    roll(store, 20)
    until(
        lambda: all(
            lane.view.sealed[0].segment.sequence > at + 1 for lane, at in zip(store._lanes, newest, strict=True)
        )
    )


def names(one: SealedSegment) -> list[tuple[str, int]]:
    return names_in(one.footer)


def in_ms(delay_ms: int) -> int:
    return time.time_ns() // 1_000_000 + delay_ms


def newest_full(lane: Lane) -> SealedSegment:
    return [one for one in lane.view.sealed if one.record.full][-1]


def of_the_dead(store: MessageStore) -> list[str]:
    known = [stream.topic for lane in store._lanes for stream in lane.streams]
    return [topic for topic in known if "dead" in topic]


def make_dead(store: MessageStore, topics: int = 5) -> None:
    for at in range(topics):
        store.append_batch([(f"dead{at}", queue, b"old") for queue in (0, 7)] * 3)
        store.subscribe(f"dead{at}", "worker").close()
    for at in range(topics):
        assert store.delete_subscription(f"dead{at}", "worker")
        assert store.delete_topic(f"dead{at}")


def test_they_leave_at_the_next_opening_and_its_next_full_footer(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, config()) as store:
        make_dead(store)
        passed(store)
        assert len(of_the_dead(store)) == 15
    with MessageStore.open(tmp_path, config()) as store:
        assert of_the_dead(store) == []
        assert store.topics() == ["live"]
        lane = store._lanes[0]
        roll(store, 6)
        fulls = [one for one in lane.view.sealed if one.record.full and GONE_TOPIC in dict(names(one))]
        assert fulls[-1] is newest_full(lane)
        for full in fulls:
            assert {topic for topic, _ in names(full)} == {GONE_TOPIC, "live", "\x01records"}
            assert not full.footer.trimmed
        assert len(lane.gone) == 0
        assert len(lane.trims.lend().whole()) == 0
    assert verify_folder(tmp_path).damages == []
    assert {row["topic"] for row in inspect_folder(tmp_path)["queues"]} == {"live"}


@pytest.mark.parametrize("more", range(4))
def test_a_deleted_topic_stays_hidden_until_the_full_footer_without_it(tmp_path: Path, more: int) -> None:
    """The trim that hides it is in each footer until then: whatever the log ends with, it never comes back."""
    with MessageStore.open(tmp_path / "0", config()) as store:
        store.append_batch([(f"dead{at}", 0, b"old") for at in range(5)])
        passed(store)
        roll(store, more)  # the segment that ends is of any place between two full footers
        assert all([store.delete_topic(f"dead{at}") for at in range(5)])  # no full footer says anything of it
    for at in range(6):
        with MessageStore.open(tmp_path / str(at), config()) as store:
            assert store.topics() == ["live"]
            assert store.subscriptions() == []
            roll(store, 1)
            crash_copy(tmp_path / str(at), tmp_path / str(at + 1))
        assert verify_folder(tmp_path / str(at + 1)).damages == []
    with MessageStore.open(tmp_path / "6", config()) as store:
        assert of_the_dead(store) == []


def test_a_queue_of_its_name_begins_anew_also_after_a_crash(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "a", config()) as store:
        make_dead(store)
        passed(store)
    with MessageStore.open(tmp_path / "a", config(segments=20)) as store:
        assert [store.append("dead1", 0, b"new%d" % at) for at in range(3)] == [0, 1, 2]
        with store.subscribe("dead1", "worker") as worker:
            worker.ack_batch(worker.receive_batch(2).receipts)
        crash_copy(tmp_path / "a", tmp_path / "b")  # before a full footer
        roll(store, 6)
        crash_copy(tmp_path / "a", tmp_path / "c")  # and behind one
    for folder in ("a", "b", "c"):
        assert verify_folder(tmp_path / folder).damages == []
        with MessageStore.open(tmp_path / folder, config(segments=20)) as store:
            assert store.topics() == ["dead1", "live"]
            assert store.queues("dead1") == [0]
            assert store.queue_bounds("dead1", 0) == (0, 3)
            assert [message.data for message in store.read("dead1", 0, 0, max_messages=10)] == [
                b"new0",
                b"new1",
                b"new2",
            ]
            with store.subscribe("dead1", "worker") as worker:
                assert list(map(bytes, worker.receive_batch(5).payloads())) == [b"new2"]
            assert store.append("dead1", 0, b"next") == 3
            # The new subscription tells of the topic. Before a full footer the other queue is still one of it.
            assert store.append("dead1", 7, b"other") in ((0, 3) if folder == "b" else (0,))


def test_what_is_still_there_stays(tmp_path: Path) -> None:
    """A topic with a message in the log, a queue that is only empty, one that a subscription remembers."""
    with MessageStore.open(tmp_path, config()) as store:
        store.append("empty", 0, b"x")
        store.append("again", 0, b"x")
        store.append("watched", 0, b"x")
        store.subscribe("watched", "worker").close()
        store.delete_topic("again")
        store.delete_topic("watched")
        store.append("again", 0, b"y")
        store.append("late", 0, b"x")
        store.trim("empty", 0, 1)
        passed(store)
        store.append("late", 0, b"x")
        store.delete_topic("late")
        roll(store, 2)
    with MessageStore.open(tmp_path, config()) as store:
        assert store.append("empty", 0, b"y") == 1
        assert store.append("again", 0, b"z") == 2
        assert store.append("watched", 0, b"y") == 1
        assert store.append("late", 0, b"y") == 2
        with store.subscribe("watched", "worker") as worker:
            assert worker.receive_batch(5).offsets.tolist() == [1]


def test_they_leave_each_lane_for_itself(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, config(lanes=3)) as store:
        make_dead(store, 30)
        passed(store)
    for _ in range(2):
        with MessageStore.open(tmp_path, config(lanes=3)) as store:
            assert store.topics() == ["live"]
            roll(store, 6)
    with MessageStore.open(tmp_path, config(lanes=3)) as store:
        assert of_the_dead(store) == []
        for lane in store._lanes:
            assert not [topic for topic, _ in names(newest_full(lane)) if "dead" in topic]
    assert verify_folder(tmp_path).damages == []


def test_readers_of_other_processes_find_the_new_queue(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, config()) as store:
        make_dead(store)
        passed(store)
        reader = MessageStore.open(tmp_path, read_only=True)
        assert reader.topics() == ["live"]
    with MessageStore.open(tmp_path, config(segments=20)) as store, reader:
        for step in range(3):
            store.append("dead1", 0, b"%d" % step)
            with MessageStore.open(tmp_path, read_only=True) as fresh:
                for one in (reader, fresh):
                    assert one.topics() == ["dead1", "live"]
                    assert [int(message.data) for message in one.read("dead1", 0, 0, max_messages=10)] == list(
                        range(step + 1)
                    )
            roll(store, 3)
        seen = [message.data for batch in reader.scan() for message in batch.messages() if message.topic == "dead1"]
        assert seen == [b"0", b"1", b"2"]


def test_a_reader_that_retention_has_overtaken_lists_a_new_subscription(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, config()) as store:
        make_dead(store)
        passed(store)
        reader = MessageStore.open(tmp_path, read_only=True)
        assert reader.subscriptions() == []  # it has looked at those of the dead
    with MessageStore.open(tmp_path, config()) as store, reader:
        passed(store)
        store.append("dead1", 0, b"new")
        store.subscribe("dead1", "other").close()
        passed(store)
        assert [(info.topic, info.name) for info in reader.subscriptions()] == [("dead1", "other")]


def test_verify_tells_of_any_damaged_footer_of_a_log_with_trims(tmp_path: Path) -> None:
    """Behind the first one not all names are known by footers, and the records are known by their frames."""
    with MessageStore.open(tmp_path, config(segments=40)) as store:
        store.append("first", 0, b"x")  # no later footer but a full one names it
        for step in range(1, 7):
            store.append_batch([(f"again{at}", 0, b"x") for at in range(5)])
            store.trim("again1", 0, step)
            roll(store, 1)
    sealed = [(path, record) for path in segment_paths(tmp_path) if (record := seal_of(path)) and record.footer_bytes]
    assert len(sealed) >= 4
    for path, record in sealed:
        flip_bit(path, record.footer_position + 30)
        assert any(path.name in damage for damage in verify_folder(tmp_path).damages)
        assert inspect_folder(tmp_path)["verdict"] != "healthy"
        flip_bit(path, record.footer_position + 30)
    assert verify_folder(tmp_path).damages == []


def test_a_full_footer_whose_seal_record_a_power_cut_took_still_says_what_is_gone(tmp_path: Path) -> None:
    """It is found behind its frames, and the footers behind it say the same."""
    with MessageStore.open(tmp_path / "a", config()) as store:
        make_dead(store)
        passed(store)
    with MessageStore.open(tmp_path / "a", config(segments=20)) as store:
        lane = store._lanes[0]
        before = last(lane)
        while not newest_full(lane).segment.sequence == last(lane) > before:
            roll(store, 1)
        store.append("dead1", 0, b"new")
        full = newest_full(lane).segment.path.relative_to(tmp_path / "a")
        crash_copy(tmp_path / "a", tmp_path / "b")
    overwrite(tmp_path / "b" / full, BLOCK_BYTES, bytes(BLOCK_BYTES))
    with MessageStore.open(tmp_path / "b", config(segments=20)) as store:
        assert store.read("dead1", 0, 0)[0].data == b"new"
        roll(store, 1)
    assert verify_folder(tmp_path / "b").damages == []


def test_damage_of_the_oldest_full_footer_keeps_them(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, config()) as store:
        make_dead(store)
        passed(store)
    with MessageStore.open(tmp_path, read_only=True) as reader:
        reader.topics()
        full = next(one for one in reader._lanes[0].view.sealed if one.record.full)
        path, at = full.segment.path, full.record.footer_position + 30
        is_newest = full is newest_full(reader._lanes[0])
    flip_bit(path, at)
    if is_newest:
        with pytest.raises(StoreCorrupt):
            MessageStore.open(tmp_path, config())
        MessageStore.open(tmp_path, config(), repair=True).close()
    with MessageStore.open(tmp_path, config()) as store:
        assert store.topics() == ["live"]
        assert store.append("dead1", 0, b"x") in (0, 3)


def test_compaction_passes_them_as_retention_does(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, config()) as store:
        roll(store, 2)
        make_dead(store)
        roll(store, 2)
    compact_store(tmp_path)
    with MessageStore.open(tmp_path, config()) as store:
        assert of_the_dead(store) == []
        assert store.append("dead1", 0, b"x") == 0
    assert verify_folder(tmp_path).damages == []


def test_a_full_footer_tells_of_messages_in_each_of_the_segments_before_it(tmp_path: Path) -> None:
    chance = random.Random(27)
    with MessageStore.open(tmp_path, config(segments=100)) as store:
        for _ in range(24):
            store.append_batch([(f"t{at}", 0, b"x") for at in range(8) if chance.random() < 0.3] + [("t9", 0, b"x")])
            roll(store, 1)
        sealed = store._lanes[0].view.sealed
        fulls = [at for at, one in enumerate(sealed) if one.record.full]
        for begin, at in itertools.pairwise(fulls):
            footer = sealed[at].footer
            numbers = np.arange(footer.stream_count)
            for before in range(1, at - begin):  # with the segment of the full one before it, that would be the oldest
                there = [any(one.first_of(int(number))[1] for one in sealed[at - before : at]) for number in numbers]
                assert _are_before(footer, before, numbers).tolist() == there


def test_messages_in_front_of_the_oldest_full_footer_keep_a_stream(tmp_path: Path) -> None:
    """The log's beginning goes through all places between two full footers, where each segment has messages of it."""
    with MessageStore.open(tmp_path, config(segments=40)) as store:
        roll(store, 4)
        for _ in range(12):
            store.append("dead", 0, b"x")
            roll(store, 1)
        store.delete_topic("dead")
        roll(store, 6)
    were_there, left = 0, False
    for _ in range(26):  # each takes one segment
        with MessageStore.open(tmp_path, config(segments=22)) as store:
            roll(store, 1)
        with MessageStore.open(tmp_path, config(segments=100)) as store:  # retention removes nothing
            lane = store._lanes[0]
            dead = store._streams.get("dead", 0)
            if dead is None:
                left = True
                gone = [number for number, stream in enumerate(lane.streams) if stream is lane.nobody]
                assert all(one.first_of(number)[1] == 0 for one in lane.view.sealed for number in gone)
            else:
                were_there += any(one.first_of(dead.number)[1] for one in lane.view.sealed)
    assert left
    assert were_there


def test_a_deleted_topic_with_delays_leaves_and_its_next_life_knows_nothing_of_them(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, config()) as store:
        with store.subscribe("dead", "worker") as worker:
            for at in range(4):
                store.append("dead", 0, b"late%d" % at, deliver_at_ms=in_ms(3_600_000))
            assert store.cancel_delayed("dead", 0, 1)
            assert len(worker.receive_batch(5)) == 0
            passed(store)  # those that wait are kept as copies
        assert store.delete_subscription("dead", "worker")
        assert store.delete_topic("dead")
        roll(store, 1)
    for _ in range(3):
        with MessageStore.open(tmp_path, config()) as store:
            assert store.topics() == ["live"]
            passed(store)
    assert list((tmp_path / "delayed").iterdir()) == []
    assert verify_folder(tmp_path).damages == []
    with MessageStore.open(tmp_path, config(segments=100)) as store:
        assert of_the_dead(store) == []
        with store.subscribe("dead", "worker") as worker:
            for at in range(3):
                assert store.append("dead", 0, b"new%d" % at, deliver_at_ms=in_ms(300)) == at
            got: list[bytes] = []
            while len(got) < 3:
                got += map(bytes, worker.receive_batch(5, wait_ms=5_000).payloads())
            assert sorted(got) == [b"new0", b"new1", b"new2"]
    with MessageStore.open(tmp_path, config(segments=100)) as store, store.subscribe("dead", "worker") as worker:
        assert len(worker.receive_batch(5)) == 3


def test_a_topic_that_is_used_again_after_its_index_went_has_one_again(tmp_path: Path) -> None:
    """Before retention has passed it: the records of the index are all taken back, and begin anew."""
    with MessageStore.open(tmp_path, config(segments=100)) as store:
        with store.subscribe("dead", "worker") as worker:
            store.append("dead", 0, b"late", deliver_at_ms=in_ms(3_600_000))
            assert len(worker.receive_batch(5)) == 0
        assert store.delete_subscription("dead", "worker")
        assert store.delete_topic("dead")
    with MessageStore.open(tmp_path, config()) as store:
        assert list((tmp_path / "delayed").iterdir()) == []
        assert store.append("dead", 0, b"new", deliver_at_ms=in_ms(1_000)) == 1
        with store.subscribe("dead", "worker") as worker:
            assert len(worker.receive_batch(5)) == 0
            passed(store)  # what was taken back is not in the log any more
    with MessageStore.open(tmp_path, config(segments=100)) as store:
        assert "dead" in store._delaying.delays.topics
        with store.subscribe("dead", "worker") as worker:
            assert list(map(bytes, worker.receive_batch(5, wait_ms=5_000).payloads())) == [b"new"]
