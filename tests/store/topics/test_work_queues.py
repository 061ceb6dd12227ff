"""Work queues: what all subscriptions have acknowledged goes, and what is left is moved forward."""

from __future__ import annotations

import random
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, Subscription, TopicFull
from stratalog.store.delayed.work_queues import LOOKED_AT, WorkQueues
from stratalog.store.format.delays import COPIES, DELAYS
from stratalog.store.format.hidden import TOPIC_KIND, hidden_topic
from stratalog.store.format.layout import BLOCK_BYTES
from stratalog.store.log.removal import Removal
from stratalog.store.log.streams import lane_of
from stratalog.store.testing import SimulatedDisk
from tests.seeds import draw_seed

from ..helpers import crash_copy, tiny, until
from ..subscriptions.test_removed_counts import RETIRE, ByHand, counts
from .keeping import SIZE, all_of, fill, leave, look_at_once, opened, places

SEGMENT = 64 << 10
MESSAGE = SIZE + 150  # on disk, about


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_once(monkeypatch)


def queue(path: Path, **more: Any) -> tuple[MessageStore, ByHand]:
    store, remove = opened(path, **more)
    store.configure_topic("t", keep="until_acknowledged")
    return store, remove


def is_within_bound(store: MessageStore, left: int) -> bool:
    """Whether the log takes at most twice the bytes of so many messages, and four segments a lane."""
    return store._upkeep.removal.held_bytes() <= bound_of(store, left * MESSAGE)


def bound_of(store: MessageStore, wanted_bytes: int) -> int:
    """How much the log may have while so much is wanted: what is moved of a segment fills whole blocks."""
    blocks = sum(len(lane.view.sealed) for lane in store._lanes)
    return 2 * (wanted_bytes + BLOCK_BYTES * blocks) + 4 * SEGMENT * len(store._lanes)


def remove_all(store: MessageStore, remove: ByHand, left: int) -> None:
    """Remove until the bound holds: a lane may want a full footer first, which its next segment gets."""

    def is_done() -> bool:
        remove()
        if not is_within_bound(store, left):
            store._upkeep.early.seal()
        return is_within_bound(store, left)

    until(is_done)


def drop_unwanted(store: MessageStore) -> None:
    for topic in list(store._delaying.delays.with_copies):
        store._delaying.delays.drop_copies(topic)


@pytest.mark.parametrize("lanes", [1, 3])
def test_what_all_have_acknowledged_goes_without_any_retention(tmp_path: Path, lanes: int) -> None:
    store, remove = queue(tmp_path, lanes=lanes)
    with store:
        slow, quick = store.subscribe("t", "slow"), store.subscribe("t", "quick")
        for queue_id in range(4):
            fill(store, 100, "t", queue_id)
        leave(quick, lambda _: False)
        remove()
        assert all(store.queue_bounds("t", queue_id)[0] == 0 for queue_id in range(4)), "one has still to get them"
        assert len(places(all_of(slow))) == 400
        slow.skip_all()
        for queue_id in range(4):  # segments that follow, else the newest full footers stay
            fill(store, 10, "t", queue_id)
        remove()
        for sub in (slow, quick):
            assert len(places(all_of(sub))) == 40
            sub.skip_all()
        assert is_within_bound(store, 40)
        assert set(counts(store).values()) == {0}


@pytest.mark.parametrize("how", ["goes on", "is opened again", "crashes"])
def test_what_is_left_in_nearly_empty_segments_is_moved_forward(tmp_path: Path, how: str) -> None:
    store, remove = queue(tmp_path / "s")
    with store:
        sub = store.subscribe("t", "a")
        expected = list[tuple[int, int]]()
        for _ in range(4):
            fill(store, 100)
            expected = sorted(leave(sub, lambda at: at % 20 == 3))
            remove()
            assert is_within_bound(store, len(expected))
        assert len(expected) == 20
        assert store.queue_bounds("t", 0)[0] > 300
        assert store._delaying.keeping.copied_messages < 100, "each was moved a few times at the most"
        if how == "goes on":
            assert sorted(places(all_of(sub))) == expected
            return
        crash_copy(tmp_path / "s", tmp_path / "crashed")
    store, remove = opened(tmp_path / ("crashed" if how == "crashes" else "s"))
    with store:
        assert store.topic_settings("t").keep == "until_acknowledged"
        sub = store.subscribe("t", "a")
        assert sub.backlog().total == len(expected)
        got = all_of(sub)
        assert sorted(places(got)) == expected
        assert sub.receive() == []
        sub.ack_batch(got)
        fill(store, 40)
        leave(sub, lambda _: False)
        drop_unwanted(store)
        remove()
        assert is_within_bound(store, 0)


def test_a_stuck_message_does_not_keep_what_follows_it(tmp_path: Path) -> None:
    store, remove = queue(tmp_path)
    with store:
        sub = store.subscribe("t", "a")
        fill(store, 1)
        (stuck,) = sub.receive(1)
        for _ in range(8):
            fill(store, 50)
            leave(sub, lambda _: False)
            remove()
            assert is_within_bound(store, 1)
        assert sub.positions()[0].mark_delete == 0, "the mark-delete position has not moved"
        sub.nack(stuck)
        assert places(all_of(sub)) == [(0, 0)]


def test_wanted_messages_in_front_move_so_that_what_follows_can_go(tmp_path: Path) -> None:
    store, remove = queue(tmp_path)
    with store:
        sub = store.subscribe("t", "a")
        fill(store, 60)
        first = sub.receive(60)
        for _ in range(6):
            fill(store, 50)
            leave(sub, lambda _: False)
            remove()
            assert is_within_bound(store, 60)
        sub.nack_batch(first)
        assert sorted(places(all_of(sub))) == [(0, at) for at in range(60)]


@pytest.mark.parametrize("keep", ["unacknowledged", "until_acknowledged"])
def test_an_ordered_subscription_gets_what_it_has_read_ahead_before_copies_of_what_follows(
    tmp_path: Path, keep: Any
) -> None:
    store, remove = opened(tmp_path, retention_bytes=200_000)
    with store:
        store.configure_topic("t", keep=keep)
        sub = store.subscribe("t", "a", mode="ordered")
        fill(store, 10)
        got = sub.receive(2)
        fill(store, 5)
        for _ in range(4):
            fill(store, 60, "waste")
            remove()
        assert store.queue_bounds("t", 0)[0] == 15
        order = list[int]()
        while got:
            order += [one.message.offset for one in got]
            sub.ack_batch(got)
            got = sub.receive(3)
        assert order == list(range(15))


@pytest.mark.parametrize("limits", [{"retention_bytes": 200_000}, {"retention_ms": 1}])
def test_a_work_queue_without_a_subscription_keeps_all_whatever_age_and_size_want(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    store, remove = queue(tmp_path, **limits)
    with store:
        for _ in range(4):
            fill(store, 20)
            fill(store, 60, "waste")
            remove()
        assert store.queue_bounds("waste", 0)[0] > 100
        assert store.stats()["delayed"]["t"]["copies"] > 20
        drop_unwanted(store)
        late = store.subscribe("t", "late")
        assert late.backlog().total == 80
        assert sorted(places(all_of(late))) == [(0, at) for at in range(80)]
    store, remove = opened(tmp_path, **limits)
    with store:
        assert store.delete_subscription("t", "late")
        drop_unwanted(store)
        remove()
        assert sorted(places(all_of(store.subscribe("t", "later")))) == [(0, at) for at in range(80)]


def test_a_later_subscription_begins_at_what_is_left(tmp_path: Path) -> None:
    store, remove = queue(tmp_path)
    with store:
        first = store.subscribe("t", "a")
        fill(store, 300)
        left = leave(first, lambda at: at % 30 == 0)
        remove()
        earliest = store.queue_bounds("t", 0)[0]
        assert earliest > 200
        here = set(range(earliest, 300))
        assert {at for _, at in places(all_of(store.subscribe("t", "b")))} == here | {at for _, at in left}
        assert store.subscribe("t", "c", "latest").receive() == []
        assert set(counts(store).values()) == {0}


def test_a_message_of_another_topic_stops_what_follows_it_until_it_is_removed(tmp_path: Path) -> None:
    store, remove = queue(tmp_path)
    with store:
        sub = store.subscribe("t", "a")
        fill(store, 60)
        fill(store, 1, "u")
        fill(store, 200)
        leave(sub, lambda _: False)
        remove()
        assert 40 < store.queue_bounds("t", 0)[0] <= 60
        assert store.queue_bounds("u", 0) == (0, 1)
        store.trim("u", 0, 1)
        remove()
        assert store.queue_bounds("t", 0)[0] > 200


def test_a_topic_that_is_a_work_queue_no_more_is_left_to_retention(tmp_path: Path) -> None:
    store, remove = queue(tmp_path)
    with store:
        sub = store.subscribe("t", "a")
        fill(store, 100)
        remove()
        store.configure_topic("t", keep="unacknowledged")
        fill(store, 100)
        leave(sub, lambda _: False)
        remove()
        assert store.queue_bounds("t", 0)[0] == 0
        store.configure_topic("t", keep="until_acknowledged")
        remove()
        assert store.queue_bounds("t", 0)[0] > 100


def test_dead_letters_in_a_work_queue_are_moved_forward_and_go_back(tmp_path: Path) -> None:
    store, remove = queue(tmp_path)
    with store:
        store.configure_topic("dead", keep="until_acknowledged")
        sub = store.subscribe("t", "a", max_attempts=1, dead_letter_topic="dead")
        for _ in range(6):
            fill(store, 60)
            got = all_of(sub)
            sub.nack_batch(got[:2])
            sub.ack_batch(got[2:])
            sub.receive(1)
            remove()
            drop_unwanted(store)
        assert is_within_bound(store, 12)
        assert store.queue_bounds("dead", 0)[0] > 0, "a reader finds them no more"
        assert store.redrive("dead") == 12
        assert len(all_of(sub)) == 12


def test_a_full_work_queue_takes_no_message_until_it_is_consumed(tmp_path: Path) -> None:
    store, remove = queue(tmp_path)
    with store:
        store.configure_topic("t", keep="until_acknowledged", retention_bytes=300_000)
        sub = store.subscribe("t", "a")
        fill(store, 60)
        remove()
        fill(store, 60)
        remove()
        with pytest.raises(TopicFull, match="'a' has 120 messages"):
            store.append("t", 0, b"x")
    store, remove = opened(tmp_path)
    with store:
        sub = store.subscribe("t", "a")
        with pytest.raises(TopicFull):
            store.append("t", 0, b"x")
        sub.ack_batch(sub.receive(100))
        remove()
        store.append("t", 0, b"x")


def test_a_look_of_another_thread_may_have_seen_newer_segments(tmp_path: Path) -> None:
    """Retention has taken a view; a change of a cap looks at a newer one; then retention asks about its own."""
    store, remove = queue(tmp_path)
    with store:
        sub = store.subscribe("t", "a")
        fill(store, 60)
        remove()
        keeping, lane = store._delaying.keeping, store._lanes[0]
        older = lane.view.sealed
        fill(store, 60)
        until(lambda: len(lane.view.sealed) > len(older) + 2)
        store.configure_topic("t", keep="until_acknowledged", retention_bytes=1 << 30)
        for one in all_of(sub)[:3]:
            sub.ack(one)
            assert not keeping.is_done(lane, older, 0)
        remove()
        assert store._upkeep.last_error is None


def test_a_seek_brings_back_what_is_there_and_loses_nothing_of_it(tmp_path: Path) -> None:
    store, remove = queue(tmp_path)
    with store:
        sub = store.subscribe("t", "a")
        fill(store, 200)
        leave(sub, lambda at: at % 25 == 0)
        remove()
        earliest = store.queue_bounds("t", 0)[0]
        sub.seek("earliest")
        fill(store, 100)
        remove()
        assert {at for _, at in places(all_of(sub))} == {*range(0, earliest, 25), *range(earliest, 300)}
        assert counts(store) == {("t", "a"): 0}


def test_with_durability_os_a_power_cut_takes_no_copy_of_a_message_that_was_forced(
    tmp_path: Path,
) -> None:
    """Nor the settings and the subscription, which were written again."""
    disk, config = SimulatedDisk(), tiny(durability="os", flush_interval_ms=3_600_000)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        remove = ByHand(store)
        store.configure_topic("t", keep="until_acknowledged")
        sub = store.subscribe("t", "a")
        fill(store, 300)
        left = leave(sub, lambda at: at % 30 == 0)
        store.flush()
        remove()
        assert store.queue_bounds("t", 0)[0] > 200
        cut = disk.crash(random.Random(draw_seed()), "none")
    with MessageStore.open(tmp_path, config, disk=cut) as store:
        assert store.topic_settings("t").keep == "until_acknowledged"
        assert [one.name for one in store.subscriptions("t")] == ["a"]
        assert sorted(places(all_of(store.subscribe("t", "a")))) == left


def test_with_durability_os_a_power_cut_takes_no_settings_that_were_written_again_before(tmp_path: Path) -> None:
    """Those from before go with their segment, in which nothing has to be moved."""
    disk, config = SimulatedDisk(), tiny(durability="os", flush_interval_ms=3_600_000, retention_bytes=100_000)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        remove = ByHand(store)
        store.configure_topic("t", ttl_ms=1_000_000)
        fill(store, 300)
        store.flush()
        store.configure_topic("t", ttl_ms=2_000_000)
        remove()
        assert store.queue_bounds("t", 0)[0] > 200
        cut = disk.crash(random.Random(draw_seed()), "none")
    with MessageStore.open(tmp_path, config, disk=cut) as store:
        assert store.topic_settings("t").ttl_ms == 2_000_000


# -- what it costs ------------------------------------------------------------------------------------


@pytest.fixture
def few_removals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that goes on and on fails the test."""
    real, left = Removal._remove, iter(range(60))

    def remove(self: Removal, lane: Any, sealed: Any) -> None:
        assert next(left, None) is not None, "it removes what it has just written"
        real(self, lane, sealed)

    monkeypatch.setattr(Removal, "_remove", remove)


@pytest.mark.usefixtures("few_removals")
def test_an_idle_store_with_many_subscriptions_writes_and_removes_nothing(tmp_path: Path) -> None:
    """The records of its subscriptions fill more segments than the bound has: writing them again would free nothing."""
    store, remove = queue(tmp_path)
    with store:
        subs = [store.subscribe("t", f"s{number}") for number in range(60)]
        for _ in range(3):
            fill(store, 20)
            for sub in subs:
                sub.skip_all()
        remove()
        remove()
        before = store.stats()["log"]["removed_segments"], store._lanes[0].tail
        for _ in range(20):
            remove()
        assert (store.stats()["log"]["removed_segments"], store._lanes[0].tail) == before


@pytest.mark.usefixtures("few_removals")
def test_an_idle_store_with_many_work_queues_writes_and_removes_nothing(tmp_path: Path) -> None:
    """Each has a message, in a block of its own, as its copy has. Their records are in another lane."""
    store, remove = queue(tmp_path, lanes=2)
    with store:
        topics = list(islice(filter(_are_apart, (f"t{number}" for number in count())), 60))
        for topic in topics:
            store.configure_topic(topic, keep="until_acknowledged")
            store.append(topic, 0, b"x")
        sub = store.subscribe(topics[0], "a")
        for _ in range(4):  # else the newest full footer holds the oldest segment
            store.append_batch([(topics[0], 0, bytes(SIZE))] * 20)
            sub.skip_all()
            remove()
        before = store.stats()["log"]["removed_segments"], [lane.tail for lane in store._lanes]
        for _ in range(20):
            remove()
        assert (store.stats()["log"]["removed_segments"], [lane.tail for lane in store._lanes]) == before


def _are_apart(topic: str) -> bool:
    """Whether of two lanes one has a queue and its copies, and the other the records of the topic."""
    records = [lane_of(hidden_topic(kind, topic), 0, 2) for kind in (TOPIC_KIND, DELAYS)]
    return records == [1, 1] and lane_of(topic, 0, 2) == lane_of(hidden_topic(COPIES, topic), 0, 2) == 0


def begin_a_segment(store: MessageStore) -> None:
    """What is appended next fills none: how much has room in one goes by how many messages share a frame."""
    lane = store._lanes[0]
    before = lane.segment
    while lane.segment is before:
        fill(store, 1)


@pytest.mark.parametrize("way", ["ack", "ack_batch", "skip_all"])
@pytest.mark.parametrize("segments", [10, 40])
def test_looks_go_by_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segments: int, way: str) -> None:
    looked = list[int]()
    real = WorkQueues._share

    def share(self: WorkQueues, lane: Any, sealed: Any, before: Any) -> Any:
        looked.append(sealed.segment.sequence)
        return real(self, lane, sealed, before)

    monkeypatch.setattr(WorkQueues, "_share", share)
    monkeypatch.setattr("stratalog.store.delayed.work_queues.LOOKED_AT", 4)
    assert LOOKED_AT > 4
    store, remove = queue(tmp_path)
    with store:
        sub = store.subscribe("t", "a")
        other = store.subscribe("other", "a")
        fill(store, 15 * segments)
        begin_a_segment(store)
        for _ in range(segments):
            remove()
        assert len(set(looked)) == len(store._lanes[0].view.sealed) > segments // 2
        looked.clear()
        store.append("other", 0, b"x")
        other.skip_all()
        RETIRE(store._upkeep.removal)
        assert looked == [], "nothing of it has changed"
        got = sub.receive(2)
        {"ack": lambda: sub.ack(got[0]), "ack_batch": lambda: sub.ack_batch(got), "skip_all": sub.skip_all}[way]()
        RETIRE(store._upkeep.removal)
        assert 1 <= len(looked) <= 12


# -- a model ------------------------------------------------------------------------------------------


class Model:
    """What was appended, and what each subscription has not acknowledged. Subscriptions come, go and skip; consumers
    acknowledge and forget.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ends = dict.fromkeys(range(3), 0)
        self.left: dict[str, set[tuple[int, int]]] = {}

    def produce(self, store: MessageStore) -> None:
        for _ in range(self.rng.randrange(4)):
            queue_id, count = self.rng.randrange(3), self.rng.randrange(1, 20)
            fill(store, count, "t", queue_id)
            begin = self.ends[queue_id]
            self.ends[queue_id] += count
            for mine in self.left.values():
                mine.update((queue_id, at) for at in range(begin, begin + count))

    def consume(self, store: MessageStore) -> None:
        rng, name = self.rng, self.rng.choice("ab")
        if name not in self.left:
            store.subscribe("t", name, "latest")
            self.left[name] = set()
        elif rng.random() < 0.05 and len(self.left) > 1:
            store.delete_subscription("t", name)
            del self.left[name]
        elif rng.random() < 0.05:
            store.subscribe("t", name).skip_all()
            self.left[name].clear()
        else:
            self._take(store.subscribe("t", name))

    def _take(self, sub: Subscription) -> None:
        got = sub.receive(self.rng.randrange(1, 60), visibility_timeout_ms=100_000)
        assert set(places(got)) <= self.left[sub.name], "it was acknowledged"
        share = self.rng.choice((0.5, 0.95, 1.0))
        chosen = [one for one in got if self.rng.random() < share]
        sub.ack_batch(chosen)
        self.left[sub.name] -= set(places(chosen))
        sub.close()  # what it has comes again

    @property
    def wanted(self) -> int:
        """How many messages are to be kept: all of them without a subscription."""
        return len(set[tuple[int, int]]().union(*self.left.values())) if self.left else sum(self.ends.values())


@pytest.mark.parametrize("keep", ["unacknowledged", "until_acknowledged"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_no_message_goes_that_a_subscription_has_not_acknowledged_by_a_model(
    tmp_path: Path, keep: Any, lanes: int
) -> None:
    rng = random.Random(draw_seed())
    model, config = Model(rng), dict[str, Any](lanes=lanes)
    if keep == "unacknowledged":
        config["retention_bytes"] = 200_000
    store, remove = opened(tmp_path, **config)
    store.configure_topic("t", keep=keep)
    for _ in range(3):
        for _ in range(15):
            model.produce(store)
            model.consume(store)
            if rng.random() < 0.4:
                remove()
                drop_unwanted(store)
                assert keep == "unacknowledged" or is_within_bound(store, model.wanted)
            for one in store.subscriptions("t"):
                assert one.backlog.total == len(model.left[one.name])
        if rng.random() < 0.6:
            store.close()
            store, remove = opened(tmp_path, **config)
    for name, mine in model.left.items():
        assert set(places(all_of(store.subscribe("t", name)))) == mine
    assert store.stats()["subscriptions"]["removed_unacknowledged"] == 0
    assert sum(store.queue_bounds("t", queue_id)[0] for queue_id in store.queues("t")) > 50
    store.close()


def test_lone_jobs_that_fill_more_than_half_a_block_are_not_moved_while_nothing_is_acknowledged(tmp_path: Path) -> None:
    """Their padding is not worth it: reads by offset would find few of them."""
    store, remove = queue(tmp_path)
    with store:
        sub = store.subscribe("t", "s")
        for _ in range(200):
            store.append("t", 0, bytes(2_200))
        remove()
        assert store._delaying.keeping.copied_messages == 0
        assert store.queue_bounds("t", 0) == (0, 200)
        assert store._upkeep.removal.held_bytes() <= 2 * 200 * 2_300 + 4 * SEGMENT
        assert len(sub.receive(1000)) == 200


@pytest.mark.parametrize("size", [600, 2_200])
def test_for_each_byte_that_is_moved_a_byte_of_the_log_goes_and_the_bound_holds(tmp_path: Path, size: int) -> None:
    chosen = random.Random(draw_seed())
    store, remove = queue(tmp_path)
    with store:
        sub, held = store.subscribe("t", "s"), list[Any]()
        for at in range(1_200):
            store.append("t", 0, bytes(size))
            held += sub.receive(10, visibility_timeout_ms=10**9)
            if len(held) > 250:
                sub.ack(held.pop(chosen.randrange(len(held))))
            if at % 25 == 24:
                drop_unwanted(store)
                remove()
                assert store._upkeep.removal.held_bytes() <= bound_of(store, len(held) * (size + 150))
        log, keeping = store.stats()["log"], store._delaying.keeping
        copied_bytes = keeping.copied_messages * (size + 100)
        gone_bytes = log["written_bytes"] - store._upkeep.removal.held_bytes()
        assert 0 < copied_bytes <= gone_bytes
