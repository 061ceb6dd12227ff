"""`metrics()`: Prometheus reads it, each figure is that of `stats()`, and its size has a bound."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from stratalog import CacheConfig, MessageStore, StoreClosed, StoreConfig, StoreError, StoreReader
from stratalog.store import described_metrics
from stratalog.store.api.named_figures import MOST_LOOKED, MOST_QUEUES
from stratalog.store.log.write_times import SHOWN_LEVELS, WriteTimes, counts_of
from stratalog.store.metrics.catalogue import ROWS, families
from stratalog.store.metrics.family import MOST_NAMED, MetricFamily, Sample
from stratalog.store.metrics.text import text_of
from stratalog.store.subscriptions.watched import MOST_LOADED, WatchedSubscriptions

from .helpers import start, tiny, until

UNITS = ("bytes", "seconds", "messages", "info", "total", "bucket", "sum", "count")


def parsed(text: str) -> dict[str, Metric]:
    """The metrics of a text by name; the parser leaves `_total` out of a counter's."""
    found = list(text_string_to_metric_families(text))
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All values, by the name of the sample and its labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parsed(text).values()
        for sample in family.samples
    }


def at(figures: Mapping[str, Any], place: str) -> Any:
    for name in place.split("."):
        figures = figures[name]
    return figures


def metrics_beside_stats(store: MessageStore) -> tuple[Any, str]:
    """Both of one moment: the background may write in between."""
    found: list[Any] = []

    def is_of_one_moment() -> bool:
        before, text, after = store.stats(), store.metrics(), store.stats()
        found[:] = before, text
        return before == after

    until(is_of_one_moment)
    return found[0], found[1]


def test_each_figure_is_that_of_the_statistics_in_the_unit_of_its_name(tmp_path: Path) -> None:
    config = StoreConfig(memory_limit_bytes=64 << 20, cache=CacheConfig(), retention_bytes=1 << 30, retention_ms=90_000)
    with MessageStore.open(tmp_path, config) as store:
        store.append_batch([("t", 0, b"x" * 1000)] * 50)
        store.append("t", 0, b"later", deliver_at_ms=4_000_000_000_000)
        store.subscribe("t", "s").receive(10)
        store.read("t", 0, 0, max_messages=50)
        store.flush()
        stats, text = metrics_beside_stats(store)
    found = values(text)
    checked = 0
    for row in ROWS:
        for label, place in row.places.items():
            if place.startswith("retention"):
                continue
            key = "stratalog_" + row.name, ((row.label, label),) if row.label else ()
            assert found[key] == pytest.approx(at(stats, place) * row.factor), row.name
            checked += 1
    assert checked > 45
    assert found["stratalog_retention_limit_bytes", ()] == 1 << 30
    assert found["stratalog_retention_age_limit_seconds", ()] == 90
    assert found["stratalog_log_bytes", ()] > 50_000
    assert found["stratalog_delayed_pending_messages", (("topic", "t"),)] == 1
    assert found["stratalog_topic_appended_messages_total", (("topic", "t"),)] == 51
    of_sub = ("subscription", "s"), ("topic", "t")
    assert found["stratalog_subscription_unacknowledged_messages", of_sub] == 51
    assert found["stratalog_subscription_in_flight_messages", of_sub] == 10
    timed = sum(stats["log"]["writes_by_time"])
    assert found["stratalog_write_duration_seconds_count", ()] == timed >= stats["log"]["writes"] > 0


def test_names_and_kinds_are_those_of_the_conventions(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
        text = store.metrics()
    described = {one.name: one for one in described_metrics()}
    assert len(described) == len(described_metrics())
    for name, family in described.items():
        assert re.fullmatch("stratalog_[a-z_]+", name)
        assert name.endswith("_total") == (family.kind == "counter")
        assert not re.search("_(ms|us|ns|kib|mib)(_|$)", name)  # base units alone
        assert re.fullmatch(r"[A-Z0-9].*\.", family.help)
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert described[name].kind == kind
    blocks = re.findall(r"^# HELP (\S+) .*\n# TYPE (\S+) ", text, re.MULTILINE)
    assert len(blocks) == text.count("# TYPE") and all(first == second for first, second in blocks)
    assert text.endswith("\n")


def test_names_of_topics_are_escaped_and_come_back(tmp_path: Path) -> None:
    hard = 'a"b\\c{d}=,é ☃'
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append(hard, 0, b"x")
        store.subscribe(hard, hard)
        found = values(store.metrics())
    assert found["stratalog_topic_appended_messages_total", (("topic", hard),)] == 1
    assert found["stratalog_subscription_unacknowledged_messages", (("subscription", hard), ("topic", hard))] == 1
    line = text_of([MetricFamily("stratalog_x", "gauge", "a\\b\nc", [Sample(1, (("topic", "a\nb"),))])])
    assert parsed(line)["stratalog_x"].samples[0].labels == {"topic": "a\nb"}


def test_the_first_hundred_names_have_values_and_the_others_are_counted(tmp_path: Path) -> None:
    topics = [f"t{number:03}" for number in range(MOST_NAMED + 7)]
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append_batch([(topic, 0, b"x") for topic in topics])
        tickets = [store.submit(topic, 0, b"later", deliver_at_ms=4_000_000_000_000) for topic in topics]
        assert [ticket.result() for ticket in tickets] == [1] * len(topics)
        for topic in topics:
            store.subscribe(topic, "s").receive(1)  # makes the index of delays
        found = values(store.metrics())
    for name in ("topic_appended_messages_total", "subscription_unacknowledged_messages", "delayed_pending_messages"):
        shown = [dict(labels)["topic"] for one, labels in found if one == "stratalog_" + name]
        assert sorted(shown) == topics[:MOST_NAMED]
    left = {dict(labels)["kind"]: value for (one, labels), value in found.items() if one == "stratalog_left_out"}
    assert left == {"topics": 7, "subscriptions": 7, "delayed": 7}


def test_queues_are_counted_as_the_statistics_do_after_trims_deletions_and_an_opening(tmp_path: Path) -> None:
    def check(store: MessageStore) -> None:
        assert values(store.metrics())["stratalog_streams", ()] == store.stats()["streams"]

    with MessageStore.open(tmp_path, tiny()) as store:
        for topic in "ab":
            store.append(topic, 0, b"x")
            check(store)
        store.subscribe("a", "s")
        check(store)
        store.trim("b", 0, 1)
        check(store)
        store.delete_topic("b")
        check(store)
        store.append("b", 1, b"x")
        check(store)
    with MessageStore.open(tmp_path, tiny()) as store:
        check(store)
        store.append("c", 0, b"x")
        store.delete_topic("c")
        check(store)


def shown_topics(store: MessageStore) -> tuple[list[str], float]:
    """The topics that have values, sorted, and how many were left out."""
    found = values(store.metrics())
    names = sorted(dict(labels)["topic"] for name, labels in found if name == "stratalog_topic_queues")
    return names, found["stratalog_left_out", (("kind", "topics"),)]


def test_a_deleted_topic_gives_its_place_to_another_and_is_not_left_out(tmp_path: Path) -> None:
    topics = [f"t{number:03}" for number in range(3 * MOST_NAMED)]
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append_batch([(topic, 0, b"x") for topic in topics])
        assert shown_topics(store) == (topics[:MOST_NAMED], 2 * MOST_NAMED)
        for topic in topics[10:-20]:
            store.delete_topic(topic)
        store.append("fresh", 0, b"x")
        for _ in range(len(topics) // MOST_LOOKED + 2):
            found = shown_topics(store)
        assert found == (["fresh", *topics[:10], *topics[-20:]], 0)
        store.append(topics[50], 0, b"x")  # it is there again
        for _ in range(len(topics) // MOST_LOOKED + 1):
            found = shown_topics(store)
        assert topics[50] in found[0] and found[1] == 0


def test_a_topic_of_too_many_queues_is_left_out_and_the_others_stay(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append_batch([("wide", queue, b"x") for queue in range(MOST_QUEUES + 1)])
        store.append("narrow", 0, b"x")
        for topic in ("wide", "narrow"):
            store.subscribe(topic, "s")
        found = values(store.metrics())
    for name in ("stratalog_topic_queues", "stratalog_subscription_unacknowledged_messages"):
        assert [dict(labels)["topic"] for one, labels in found if one == name] == ["narrow"]
    assert found["stratalog_left_out", (("kind", "topics"),)] == 1
    assert found["stratalog_left_out", (("kind", "subscriptions"),)] == 1


def test_a_backlog_counts_what_is_not_acknowledged_whatever_the_order_and_after_retention(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append_batch([("t", queue, b"x") for queue in range(3) for _ in range(10)])
        sub = store.subscribe("t", "s")
        given = sub.receive(30)
        for delivery in given[1::2]:
            sub.ack(delivery)

        def backlog() -> tuple[float, float]:
            found, key = values(store.metrics()), (("subscription", "s"), ("topic", "t"))
            names = "unacknowledged", "in_flight"
            both = [found[f"stratalog_subscription_{name}_messages", key] for name in names]
            return both[0], both[1]

        assert backlog() == (15, 15) == (sub.backlog().total, sub.backlog().in_flight)
        store.trim("t", 0, before_offset=10)
        assert backlog()[0] == sub.backlog().total == 10
        sub.seek("latest")
        assert backlog() == (0, 0)
        store.delete_subscription("t", "s")
        assert ("stratalog_subscription_in_flight_messages", (("subscription", "s"), ("topic", "t"))) not in values(
            store.metrics()
        )
        store.delete_topic("t")
        assert "topic_appended" not in store.metrics()


def test_subscriptions_that_nobody_has_used_since_the_opening_are_loaded_some_a_look(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(2 * MOST_LOADED + 1)]
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
        for name in names:
            store.subscribe("t", name)
    with MessageStore.open(tmp_path, tiny()) as store:
        for looks in range(1, 4):
            assert store.metrics().count("stratalog_subscription_unacknowledged_messages{") == min(
                len(names), MOST_LOADED * looks
            )


def test_damaged_subscriptions_take_the_loads_of_one_look_alone(tmp_path: Path) -> None:
    found: list[tuple[str, str]] = [("t", f"s{number}") for number in range(MOST_LOADED + 2)]
    tried: list[str] = []

    def load(topic: str, name: str) -> Any:
        tried.append(name)
        raise StoreError("damaged")

    with MessageStore.open(tmp_path, tiny()) as store:
        subscribed = store._subscribed
        assert subscribed is not None
        watched = WatchedSubscriptions(subscribed._parts, lambda most: found[:most], lambda topic, name: None, load)
        assert watched.rows(MOST_NAMED, MOST_QUEUES) == watched.rows(MOST_NAMED, MOST_QUEUES) == []
    assert set(tried[:-2]) == {name for _, name in found}


def test_writes_are_counted_by_powers_of_two_of_their_time() -> None:
    times = WriteTimes()
    for took_us in (0, 1, 2, 3, 4, 1000, 1 << 26, 1 << 40):
        times.add(took_us * 1000 + 999)
    counts = times.counts()
    assert (len(counts), sum(counts), counts[:4]) == (SHOWN_LEVELS, 8, [1, 1, 2, 1])
    assert counts[10] == 1 and counts[-1] == 2
    assert counts_of([times, times]) == [2 * count for count in counts]
    (family,) = families({"log": {"writes_by_time": counts, "write_ms": 7.5}})
    metric = parsed(text_of([family]))[family.name]
    buckets = [(float(one.labels["le"]), one.value) for one in metric.samples if one.name.endswith("_bucket")]
    assert buckets[0] == (1e-06, 1) and buckets[2] == (4e-06, 4) and buckets[-1] == (float("inf"), 8)
    assert buckets == sorted(buckets)
    assert [one.value for one in metric.samples[-2:]] == [0.0075, 8]


def test_a_failed_store_says_that_it_is_poisoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        assert values(store.metrics())["stratalog_poisoned", ()] == 0
        monkeypatch.setattr(store._running, "poison", StoreClosed("as if"))
        assert values(store.metrics())["stratalog_poisoned", ()] == 1


def test_a_reader_has_metrics_of_its_own_and_a_closed_store_has_none(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
        with StoreReader.open(tmp_path) as reader:
            reader.read("t", 0)
            found = values(reader.metrics())
            assert found["stratalog_streams", ()] == 1
            assert sum(value for (name, _), value in found.items() if name == "stratalog_read_messages_total") == 1
        with pytest.raises(StoreClosed):
            reader.metrics()
    with pytest.raises(StoreClosed):
        store.metrics()


def test_metrics_are_read_while_the_store_is_used(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:

        def use(prefix: str) -> None:
            for number in range(40):
                topic = f"{prefix}{number % 10}"
                store.append(topic, number % 3, bytes(50))
                sub = store.subscribe(topic, "s")
                for delivery in sub.receive(5):
                    sub.ack(delivery)
                sub.close()
                if number % 7 == 0:
                    store.delete_subscription(topic, "s")
                if number % 11 == 0:
                    store.delete_topic(topic)

        users = [start(use, prefix) for prefix in "ab"]
        parsed(store.metrics())
        while any(user.thread.is_alive() for user in users):  # each has 40 turns
            parsed(store.metrics())
        for user in users:
            user.join()
