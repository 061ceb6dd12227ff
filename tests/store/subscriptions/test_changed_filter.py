"""A filter that changes: what goes by the old one, and what by the new one."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import InvalidMessage, MessageStore, PublishBufferFull, SubscriptionClosed, verify_folder
from stratalog.store.subscriptions import scanner
from stratalog.store.subscriptions.settings import Settings
from stratalog.tools import compact_store, rebuild_store

from ...clocks import SteppedClock
from ..helpers import small, tiny, until
from .helpers import TOPIC, BothClocks, fill_buffer, places
from .test_attempts import crashed

SQL = "tag = 'b' AND n BETWEEN 0 AND 100"


def fill_with(store: MessageStore, tags: str) -> None:
    for at, tag in enumerate(tags):
        store.append(TOPIC, 0, b"%d" % at, key=tag.encode(), properties={"tag": tag, "n": str(at)})


def offsets(deliveries: Any) -> list[int]:
    return [one.message.offset for one in deliveries]


@pytest.mark.parametrize(
    ("first", "left_out", "then", "wanted"),
    [
        ({"tag": {"a"}}, [1, 3], SQL, [7]),
        (SQL, [0, 2], {"tag": ["a"]}, [6, 8]),
        ("tag = 'a'", [1, 3], None, [4, 5, 6, 7, 8]),
        (None, [], "key = 'a' AND n <> 0", [8]),
        ({"tag": {"a"}}, [1, 3], {"tag": {"a", "b"}}, [6, 7, 8]),
    ],
)
def test_what_was_left_out_stays_so_and_all_else_goes_by_the_new_filter(
    store: MessageStore, first: Any, left_out: list[int], then: Any, wanted: list[int]
) -> None:
    fill_with(store, "abab")
    sub = store.subscribe(TOPIC, "a", filter=first)
    got = sub.receive()
    assert sorted(offsets(got) + left_out) == [0, 1, 2, 3]
    sub.ack_batch(got)
    store.append_batch([(TOPIC, 0, b"no properties")] * 2)
    fill_with(store, "aba")
    sub.change(filter=then)
    assert offsets(sub.receive()) == wanted


def test_messages_that_were_read_ahead_go_by_the_new_filter(store: MessageStore) -> None:
    fill_with(store, "abbabb")
    sub = store.subscribe(TOPIC, "a")
    assert offsets(sub.receive(1)) == [0]
    assert sub._dispatcher._scanner.held_bytes, "the others were read ahead"
    sub.change(filter="tag = 'a'")
    assert offsets(sub.receive()) == [3]
    assert sub.backlog() == (0, 2, 0)


def test_what_consumers_have_stays_theirs_and_comes_again(store: MessageStore, clock: SteppedClock) -> None:
    fill_with(store, "abab")
    sub = store.subscribe(TOPIC, "a")
    _, second, _, last = sub.receive(visibility_timeout_ms=1000)
    sub.change(filter={"tag": {"a"}})
    sub.ack(second)
    sub.nack(last)
    assert offsets(sub.receive()) == [3], "it was given back"
    clock.now += 2
    assert offsets(sub.receive()) == [0, 2], "they timed out"
    sub.close()
    with store.subscribe(TOPIC, "a", filter={"tag": {"a"}}) as again:
        assert offsets(again.receive()) == [0, 2], "from a new beginning on the filter holds for all"


def test_lines_go_by_the_new_filter_and_stay_in_order(store: MessageStore) -> None:
    fill_with(store, "abcabc")
    sub = store.subscribe(TOPIC, "a", mode="ordered")
    first = sub.receive(1)
    assert offsets(first) == [0]
    sub.change(filter="tag IN ('b', 'c')")
    assert sub.receive() == [], "the line still waits for its first message"
    sub.ack_batch(first)
    assert offsets(sub.receive()) == [1, 2, 4, 5]


def test_lines_of_keys_go_by_the_new_filter(store: MessageStore) -> None:
    fill_with(store, "abababab")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by="key")
    held = sub.receive(1)
    sub.receive(1)
    sub.change(filter="n > 4")
    assert sub.receive() == []
    sub.ack_batch(held)
    assert offsets(sub.receive()) == [6]


def test_delayed_messages_go_by_the_filter_of_the_moment_at_which_they_come(tmp_path: Path) -> None:
    clock = BothClocks()
    with MessageStore.open(tmp_path / "s", tiny(), clock=clock) as store:
        sub = store.subscribe(TOPIC, "a")
        for tag in "ab":
            store.append(TOPIC, 0, b"-", properties={"tag": tag}, deliver_at_ms=clock.wall + 1000)
        assert sub.receive() == []
        sub.change(filter="tag = 'b'")
        clock.go(2000)
        assert offsets(sub.receive(wait_ms=5000)) == [1]
        assert sub.backlog() == (0, 1, 0)


def test_all_objects_of_a_name_and_readers_see_the_change(store: MessageStore) -> None:
    fill_with(store, "ab")
    one, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    one.change(filter=SQL)
    assert offsets(other.receive()) == [1]
    assert store.subscriptions()[0].settings.filter == SQL
    with MessageStore.open(store.path, read_only=True) as reader:
        assert reader.subscriptions()[0].settings.filter == SQL
        one.change(filter=None)
        until(lambda: reader.subscriptions()[0].settings.filter is None)


def test_an_opening_gives_the_new_filter_and_the_old_one_is_refused(store: MessageStore, clock: SteppedClock) -> None:
    sub = store.subscribe(TOPIC, "a", filter={"tag": {"a"}})
    sub.change(filter=SQL)
    store.subscribe(TOPIC, "a", filter=SQL).close()
    for old in ({"tag": {"a"}}, None, SQL + " "):
        with pytest.raises(InvalidMessage, match="give it the same, or call `change` of an open one"):
            store.subscribe(TOPIC, "a", filter=old)
    with crashed(store, clock) as again:
        again.subscribe(TOPIC, "a", filter=SQL)
        with pytest.raises(InvalidMessage, match="filter="):
            again.subscribe(TOPIC, "a", filter={"tag": {"a"}})


def test_what_was_left_out_before_a_change_is_durable_with_it(store: MessageStore, clock: SteppedClock) -> None:
    fill_with(store, "abab")
    sub = store.subscribe(TOPIC, "a", filter="tag = 'a'")
    sub.ack_batch(sub.receive())
    sub.change(filter=None)
    with crashed(store, clock) as again:
        assert again.subscriptions()[0].backlog == (0, 0, 0)
        assert again.subscribe(TOPIC, "a").receive() == []


def test_the_other_settings_stay_and_are_changed_beside_the_filter(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a", filter=SQL, precision_ms=3, max_attempts=2, dead_letter_topic="d")
    sub.change(precision_ms=4)
    assert store.subscriptions()[0].settings.filter == SQL
    sub.change(filter=None, max_attempts=5)
    found = store.subscriptions()[0].settings
    assert (found.filter, found.precision_ms, found.max_attempts, found.dead_letter_topic) == (None, 4, 5, "d")


@pytest.mark.parametrize("bad", ["tag = ", {}, {"tag": "a"}, 7, b"tag = 'a'", ""])
def test_a_filter_that_is_not_valid_changes_nothing(store: MessageStore, bad: Any) -> None:
    sub = store.subscribe(TOPIC, "a", filter=SQL)
    with pytest.raises(InvalidMessage):
        sub.change(filter=bad, precision_ms=9)
    assert (store.subscriptions()[0].settings.filter, store.subscriptions()[0].settings.precision_ms) == (SQL, 0)
    sub.close()
    with pytest.raises(SubscriptionClosed):
        sub.change(filter=None)


def test_a_change_that_the_log_refuses_changes_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", small(append_timeout_ms=20)) as store:
        fill_with(store, "abab")
        sub = store.subscribe(TOPIC, "a", filter="tag = 'a'")
        held = sub.receive()
        queue = fill_buffer(sub)
        with pytest.raises(PublishBufferFull):
            sub.change(filter=None)
        queue.release(queue.cap_bytes, 0)
        sub.nack_batch(held)
        assert offsets(sub.receive()) == [0, 2]
        assert store.subscriptions()[0].settings.filter == "tag = 'a'"


def test_consumers_that_wait_get_what_the_new_filter_wants(store: MessageStore) -> None:
    fill_with(store, "ab")
    sub = store.subscribe(TOPIC, "a", filter="tag = 'z'", start="latest")
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.extend(offsets(sub.receive(1, wait_ms=60_000))))
    waiting.start()
    until(lambda: sub._state.calling.is_waited_for)
    fill_with(store, "a")  # left out, or not: the change comes in between
    sub.change(filter="tag = 'b'")
    fill_with(store, "b")
    waiting.join(60)
    assert got == [3]


def test_a_coroutine_changes_the_filter(store: MessageStore) -> None:
    fill_with(store, "ab")

    async def consume() -> list[int]:
        sub = store.subscribe(TOPIC, "a", filter="tag = 'z'", start="latest")
        receiving = asyncio.create_task(sub.receive_async(1, wait_ms=60_000))
        await asyncio.sleep(0.05)
        await sub.change_async(filter="tag = 'b'", precision_ms=3)
        assert store.subscriptions()[0].settings.precision_ms == 3
        fill_with(store, "ab")
        with pytest.raises(InvalidMessage):
            await sub.change_async(filter="tag")
        return offsets(await receiving)

    assert asyncio.run(consume()) == [3]


def test_a_subscription_with_sql_outlives_snapshots_repair_compaction_and_lost_footers(
    store: MessageStore, clock: SteppedClock
) -> None:
    store.append_batch([("other", 0, bytes(2000))] * 200)  # some segments
    fill_with(store, "abab")
    sub = store.subscribe(TOPIC, "a", filter="tag = 'x'")
    sub.change(filter=SQL)
    sub.ack_batch(sub.receive())
    with sub._state.changing:
        sub._state.compact()
    fill_with(store, "ab")
    store.delete_topic("other")
    store.close()
    assert not verify_folder(store.path).damages
    for step in (lambda: None, lambda: compact_store(store.path), lambda: rebuild_store(store.path)):
        step()
        with MessageStore.open(store.path, tiny(), clock=clock, repair=True) as again:
            assert again.subscriptions()[0].settings.filter == SQL
            with again.subscribe(TOPIC, "a", filter=SQL) as same:
                assert offsets(same.receive()) == [5]


def test_retention_keeps_the_filter_that_was_changed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny(retention_bytes=6 * tiny().segment_bytes)) as store:
        sub = store.subscribe(TOPIC, "a", filter="tag = 'x'")
        sub.change(filter=SQL)
        until(
            lambda: (
                store.append_batch([(TOPIC, 0, bytes(2000))] * 50) is not None and store.queue_bounds(TOPIC, 0)[0] > 400
            )
        )
        assert store.subscriptions()[0].settings.filter == SQL
        store.close()
        with MessageStore.open(store.path, tiny()) as again:
            assert again.subscriptions()[0].settings.filter == SQL


def test_settings_of_earlier_versions_are_read_and_written_as_they_were() -> None:
    old = (
        b'{"mode":"shared","order_by":"queue","filter":{"tag":["a","b"]},"max_attempts":null,'
        b'"dead_letter_topic":null,"precision_ms":0}'
    )
    assert Settings.unpack(old) == Settings(filter={"tag": ("a", "b")})
    assert Settings.unpack(old).pack() == old
    plain = old.replace(b'{"tag":["a","b"]}', b"null")
    assert (Settings.unpack(plain), Settings.unpack(plain).pack()) == (Settings(), plain)
    assert Settings.unpack(b"{}") == Settings()
    odd = Settings(filter="tag = '\ud800 \N{SNOWMAN} it''s'")
    assert Settings.unpack(odd.pack()) == odd


def test_many_changes_while_others_receive_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "AHEAD_MESSAGES", 3)
    count, filters = 300, ("tag = 'a' OR TRUE", None, "tag IS NOT NULL", {"tag": {"a", "b"}})
    got: list[int] = []
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        fill_with(store, "ab" * (count // 2))
        sub = store.subscribe(TOPIC, "a")

        def consume() -> None:
            while len(got) < count:
                for one in sub.receive(7, wait_ms=20):
                    got.append(one.message.offset)
                    sub.ack(one)

        threads = [threading.Thread(target=consume) for _ in range(3)]
        for thread in threads:
            thread.start()
        for at in range(40):
            sub.change(filter=filters[at % 4])
        for thread in threads:
            thread.join(60)
        assert sorted(got) == list(range(count)), "each filter wants all: each message comes once"
        assert places(sub.receive()) == []
