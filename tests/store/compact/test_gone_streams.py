"""A compaction leaves out the numbers of deleted topics and subscriptions of which no message is left."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import (
    LogOvertaken,
    Message,
    MessageBatch,
    MessageStore,
    ScanFilter,
    ScanPlan,
    ScanPlanner,
    StoreConfig,
    StoreUnusable,
    compact_store,
    plan_scan,
    read_part,
    verify_folder,
)
from stratalog.store.api import compacting as compacting_module
from stratalog.store.api.looking import look_into_folder
from stratalog.store.compact.plan import plan_lane
from stratalog.store.device.os_file import OsFile
from stratalog.store.format.footer import Footer, names_in
from stratalog.store.format.layout import GONE_TOPIC
from stratalog.store.log import early
from stratalog.store.log.streams import lane_of
from stratalog.store.segment import sealing

from ..helpers import KIB, has_settled, seal_of, segment_paths, start, tiny, until
from .looks import state, state_now, state_of

Names = list[tuple[str, int]]
LANES = 2
QUEUES = 6
STAYS = [("stays", queue_id) for queue_id in range(QUEUES)]


def config(**changes: Any) -> StoreConfig:
    return tiny(**{"lanes": LANES, "retention_bytes": 400 * KIB, **changes})


def fill(store: MessageStore, rounds: int = 5) -> None:
    """Append to each queue that stays, more than retention leaves of all."""
    for number in range(rounds):
        store.append_batch([(topic, queue_id, b"%d" % number + bytes(20_000)) for topic, queue_id in STAYS])
    until(lambda: has_settled(store))


def used(store: MessageStore, topic: str, name: str) -> None:
    """Have messages, and a subscription that acknowledges some of them."""
    with store.subscribe(topic, name, start="earliest") as subscription:
        store.append_batch([(topic, queue_id, b"%d" % at) for queue_id in range(QUEUES) for at in range(5)])
        subscription.ack_batch(subscription.receive(QUEUES * 3, wait_ms=0))


def make_gone(path: Path, *topics: str) -> None:
    """Have retention pass some deleted topics, until full footers have rows without a name in their places.

    An opening needs a full footer that tells that nothing is left, so it may take more than one.
    """
    for _ in range(20):
        with MessageStore.open(path, config()) as store:
            fill(store)
        there = {topic for lane in range(LANES) for topic, _ in newest_names(path, lane)}
        if not any(name in topic for name in topics for topic in there):  # nor their subscriptions
            return
    raise AssertionError(f"some of {topics} are still there: {there}")


def make(path: Path) -> None:
    """A closed store, of whose streams some are gone: of these the full footers have rows without a name.

    One topic is used again behind that, another one is deleted and not passed by retention.
    """
    with MessageStore.open(path, config()) as store:
        for topic in ("gone", "again", "stays", "left"):
            used(store, topic, "audit")
        used(store, "stays", "gone")
        for topic in ("gone", "again"):
            store.delete_subscription(topic, "audit")
            store.delete_topic(topic)
        store.delete_subscription("stays", "gone")
    make_gone(path, "gone", "again")
    with MessageStore.open(path, config(retention_bytes=None)) as store:
        for queue_id in range(QUEUES):
            assert store.append("again", queue_id, b"anew") == 0
        used(store, "later", "audit")
        fill(store)  # so many segments that each lane is worth the work
        store.trim("stays", 1, store.queue_bounds("stays", 1)[1] - 1)
        store.delete_topic("later")
    assert named_nobody(path) >= 2 * QUEUES


@pytest.fixture(params=["full footers", "small footers"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "small footers":
        monkeypatch.setattr(sealing, "FEW_STREAMS", 0)
        monkeypatch.setattr(sealing, "SMALL_SHARE", 0)
        monkeypatch.setattr(sealing, "GROUP_SEGMENTS", 3)
        monkeypatch.setattr(early, "PATIENCE_S", 0.0)
    make(tmp_path / "s")
    return tmp_path / "s"


def newest_names(path: Path, lane: int) -> Names:
    """The names of a lane's streams by its newest full footer."""
    for file in reversed(segment_paths(path, lane)):
        record = seal_of(file)
        if record is not None and record.full and record.footer_bytes:
            opened = OsFile(file, create=False, direct=False)
            try:
                return names_in(Footer(opened, str(file), record))
            finally:
                opened.close()
    raise AssertionError("there is no full footer")


def named_nobody(path: Path) -> int:
    """How many rows of the lanes' newest full footers have no name."""
    return sum(topic == GONE_TOPIC for lane in range(LANES) for topic, _ in newest_names(path, lane))


def test_no_row_without_a_name_is_left_and_the_others_keep_their_order(path: Path) -> None:
    before = [newest_names(path, lane) for lane in range(LANES)]
    assert compact_store(path).removed > 0
    for lane, names in enumerate(before):
        there = newest_names(path, lane)
        assert there == [name for name in names if name in there] and len(there) == len({*there})
        assert GONE_TOPIC not in [topic for topic, _ in there]
        assert {name for name in names if name[0] in ("stays", "again")} <= {*there}
        assert ("gone", 0) not in there


def test_reads_bounds_topics_and_subscriptions_are_as_before(path: Path) -> None:
    before = state_of(path)
    assert sorted({topic for topic, _ in before}) == ["again", "left", "stays"]
    assert before["stays", 1][1] - before["stays", 1][0] == 1
    compact_store(path)
    assert state_of(path) == before
    assert verify_folder(path).damages == []
    with MessageStore.open(path, config(retention_bytes=None)) as store:
        assert store.losses == [] and state(store) == before
        assert {info.topic for info in store.subscriptions()} == {"later", "left", "stays"}
        with store.subscribe("stays", "audit") as subscription:
            first = {one.message.queue_id: one.message.offset for one in reversed(subscription.receive(1_000, 0))}
        assert first == {queue_id: before["stays", queue_id][0] for queue_id in range(QUEUES)}


def test_queues_go_on_and_new_ones_begin_behind_a_compaction(path: Path) -> None:
    before = state_of(path)
    compact_store(path)
    for _ in range(2):
        with MessageStore.open(path, config()) as store:
            for (topic, queue_id), (_, end, _) in before.items():
                assert store.append(topic, queue_id, b"next") >= end
            used(store, "gone", "audit")
            used(store, "new", "audit")
            assert store.read("gone", 0, 0)[0].data == b"0"
        assert verify_folder(path).damages == []
    with MessageStore.open(path, config()) as store:
        for name, (_, end, _) in before.items():
            assert [one.data for one in store.read(*name, end, max_messages=9)] == [b"next"] * 2
        assert store.queue_bounds("gone", 0) == store.queue_bounds("new", 0) == (0, 10)


def test_a_second_compaction_leaves_out_what_went_since(path: Path) -> None:
    compact_store(path)
    with MessageStore.open(path, config()) as store:
        store.delete_topic("again")
        store.delete_subscription("left", "audit")
        store.delete_topic("left")
    make_gone(path, "again", "left")
    with MessageStore.open(path, config(retention_bytes=None)) as store:
        fill(store)
    before = state_of(path)
    assert named_nobody(path) >= QUEUES
    compact_store(path)
    assert named_nobody(path) == 0
    assert {topic for lane in range(LANES) for topic, _ in newest_names(path, lane)}.isdisjoint({"again", "left"})
    assert state_of(path) == before and verify_folder(path).damages == []


def test_a_stream_that_is_gone_and_has_messages_is_refused(path: Path) -> None:
    """No store is like that: its messages would be nobody's, and nobody would miss them."""
    with look_into_folder(path) as looked:
        lane = looked._running.flushers[0].lane
        streams = [stream for stream in lane.streams if (stream.topic, stream.queue_id) in state(looked)]
        lane.streams[streams[-1].number] = lane.nobody
        with pytest.raises(StoreUnusable, match="has messages of a queue that is gone"):
            plan_lane(lane, looked._store_id, 1 << 30)


# -- readers in other processes -------------------------------------------------------------------------


def test_a_reader_that_is_open_meanwhile_finds_each_queue_by_its_new_number(path: Path) -> None:
    with MessageStore.open(path, read_only=True) as reader:
        before = state(reader)
        compact_store(path)
        until(lambda: state_now(reader) == before)
        with MessageStore.open(path, config()) as store:
            for topic, queue_id in [*before, ("new", 0), ("gone", 1)]:
                store.append(topic, queue_id, b"behind it")
            until(lambda: reader.queue_bounds("gone", 1)[1] == 1)
            until(lambda: state_now(reader) == state(store))  # retention goes on
            assert state(store) != before
            fill(store)
            until(lambda: state_now(reader) == state(store))
        assert state(reader) == state_of(path)


def test_a_reader_that_was_behind_when_the_log_was_written_anew_catches_up(path: Path) -> None:
    """It finds by the page of the next writer where the log begins, and never sees the folder in between."""
    with MessageStore.open(path, read_only=True) as reader:
        compact_store(path)
        with MessageStore.open(path, config()) as store:
            fill(store)
            store.append("new", 0, b"x")
            until(lambda: reader.queue_bounds("new", 0)[1] == 1)
            assert state(reader) == state(store)


def test_a_deleted_topic_that_is_gone_is_unknown_to_a_reader_that_knew_it(path: Path) -> None:
    with MessageStore.open(path, config()) as store:
        used(store, "short", "audit")
        with MessageStore.open(path, read_only=True) as reader:
            assert reader.queue_bounds("short", 0) == (0, 5)
            store.delete_subscription("short", "audit")
            store.delete_topic("short")
            store.close()
            make_gone(path, "short")
            compact_store(path)
            expected = state_of(path)
            until(lambda: state_now(reader) == expected)  # without a writer nobody tells it at once
            assert reader.queue_bounds("short", 0) == (0, 0) and "short" not in reader.topics()
            assert reader._streams.get("short", 0) is None


def test_a_reader_that_waits_across_a_compaction_gets_what_comes(path: Path) -> None:
    end = state_of(path)["stays", 2][1]
    with MessageStore.open(path, read_only=True) as reader:
        found: list[Message] = []
        waiting = start(lambda: found.extend(reader.read("stays", 2, end, wait_ms=60_000)))
        until(lambda: len(reader._fetcher.waiting) == 1)
        compact_store(path)
        with MessageStore.open(path, config()) as store:
            assert store.append("stays", 2, b"behind it") == end
            waiting.join()
        assert [(one.offset, one.data) for one in found] == [(end, b"behind it")]


def test_a_scan_that_has_begun_gives_the_names_of_the_log_that_it_reads(path: Path) -> None:
    with MessageStore.open(path, read_only=True) as reader:
        wanted = rows_of(list(reader.scan()))
        scan = reader.scan()
        got = [next(scan)]
        compact_store(path)
        assert state(reader) == state_of(path)
        got += list(scan)
        assert rows_of(got) == wanted
        assert sorted(rows_of(list(reader.scan()))) == sorted(wanted)


def rows_of(batches: list[MessageBatch]) -> list[tuple[str, int, int]]:
    return [
        (*batch.stream_names[number], offset)
        for batch in batches
        for number, offset in zip(batch.stream_index.tolist(), batch.offsets.tolist(), strict=True)
    ]


def test_reads_of_threads_are_right_at_each_moment_of_a_compaction(path: Path) -> None:
    """No read takes a queue's number of the one log to the other one."""
    before, over = state_of(path), threading.Event()

    def read(reader: MessageStore) -> int:
        count = 0
        while not over.is_set() or not count:
            for (topic, queue_id), (first, end, rows) in before.items():
                assert reader.queue_bounds(topic, queue_id) == (first, end)
                messages = reader.read(topic, queue_id, first, max_messages=1_000, max_bytes=1 << 30)
                assert [(one.offset, one.data) for one in messages] == [row[:2] for row in rows]
                count += 1
        return count

    with MessageStore.open(path, read_only=True) as reader:
        readers = [start(read, reader) for _ in range(3)]
        compact_store(path)
        MessageStore.open(path, config(retention_bytes=None)).close()
        over.set()
        for one in readers:
            one.join()
        assert state(reader) == before


def test_a_planner_that_is_open_meanwhile_plans_by_the_names_of_the_new_log(path: Path) -> None:
    """Also where the new log has as many streams as the old one had: it keeps the table of the names."""
    wanted = ScanFilter(topics=("filler",))  # which the old log does not know
    with ScanPlanner(path) as planner:
        begin = planner.begin()
        planner.plan(wanted)
        before = [len(lane.streams) for lane in planner._store._lanes]
        compact_store(path)
        with MessageStore.open(path, config(retention_bytes=None)) as store:
            fillers = 0
            while any(len(lane.streams) < count for lane, count in zip(store._lanes, before, strict=True)):
                index = lane_of("filler", fillers, LANES)
                if len(store._lanes[index].streams) < before[index]:
                    store.append("filler", fillers, b"x")
                fillers += 1
        with ScanPlanner(path) as fresh:
            until(lambda: planner.end() == fresh.end())
        assert planned(planner.plan(wanted)) == planned(plan_scan(path, wanted)) != []
        assert [len(lane.streams) for lane in planner._store._lanes] == before
        with pytest.raises(LogOvertaken, match="was compacted since"):
            planner.plan(wanted, start=begin)


def planned(plan: ScanPlan) -> list[tuple[str, int, int]]:
    """The messages of a plan, by topic, queue and offset."""
    batches = [batch for part in plan.parts for batch in read_part(part)]
    return sorted(
        (topic, queue, offset)
        for batch in batches
        for topic, queue, offset in zip(
            [batch.streams.topics[at] for at in batch.topic_index.tolist()], batch.queue_ids.tolist(),
            batch.offsets.tolist(), strict=True,
        )
    )  # fmt: skip


def test_a_read_behind_a_compaction_does_not_rely_on_the_page_of_the_old_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader looks at the folder now and then alone; in between the page that it has says that nothing is new."""
    before, replace = state_of(path), compacting_module._replace
    with MessageStore.open(path, read_only=True) as reader:
        follower = reader._fetcher.follower  # type: ignore[attr-defined]

        def followed(*given: Any) -> None:
            for _ in range(3):  # the first looks find the page and a mirror
                follower.follow()
            follower._look_at = follower._check_at = float("inf")
            assert follower.is_fresh
            replace(*given)

        monkeypatch.setattr(compacting_module, "_replace", followed)
        compact_store(path)
        assert follower.is_fresh
        assert state(reader) == before
