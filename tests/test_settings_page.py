"""The page of settings: all of them, with their defaults, and what becomes of each at the next opening."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from stratalog import (
    CacheConfig,
    InvalidConfig,
    MessageStore,
    StoreConfig,
    StoreError,
    Subscription,
    SubscriptionSettings,
    TopicSettings,
)

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "settings.md"
ROW = re.compile(r"^\| `(\w+)` \| `([^`]+)` \| (for good|in the store|opening) \| .+ \|$", re.MULTILINE)
SECTIONS = {
    "The store": StoreConfig,
    "Topics": TopicSettings,
    "Subscriptions": SubscriptionSettings,
    "The cache": CacheConfig,
}
OTHER: dict[str, Any] = {  # than the defaults, and small
    "lanes": 2, "durability": "os", "flush_interval_ms": 500, "segment_bytes": 1 << 20, "publish_buffer_bytes": 1 << 20,
    "append_timeout_ms": 5_000, "max_message_bytes": 1 << 16, "retention_ms": 1 << 40, "retention_bytes": 1 << 40,
    "memory_limit_bytes": 64 << 20, "cache": CacheConfig(off_heap_bytes=1 << 20),
    "queues": 3, "keep": "unacknowledged", "ttl_ms": 1 << 40, "id_window_ms": 60_000, "id_window_count": 10,
    "types": ("fifo",),
    "mode": "ordered", "order_by": "key", "filter": "a = 'b'", "max_attempts": 3, "dead_letter_topic": "failed",
    "precision_ms": 5, "backoff_ms": [1000],
}  # fmt: skip
TOGETHER = {"max_attempts": "dead_letter_topic", "dead_letter_topic": "max_attempts", "order_by": "mode"}
KEPT_BYTES = {"keep": "unacknowledged", "retention_bytes": 1 << 20}  # this limit needs another `keep`


def rows_of(section: str) -> dict[str, tuple[str, str]]:
    """Setting -> its default and how it is kept, as the page says."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return {name: (default, kept) for name, default, kept in ROW.findall(text)}


def rows_with(section: str, *kept: str) -> list[str]:
    return [name for name, (_, how) in rows_of(section).items() if how in kept]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_listed_with_its_default(section: str) -> None:
    fields = {field.name: repr(field.default) for field in dataclasses.fields(SECTIONS[section])}
    assert {name: default for name, (default, _) in rows_of(section).items()} == fields


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(StoreConfig)])
def test_a_setting_of_the_store_is_kept_as_the_page_says(tmp_path: Path, name: str) -> None:
    given = {"segment_bytes": 1 << 20, name: OTHER[name]}
    with MessageStore.open(tmp_path / "store", StoreConfig(**given)) as store:
        assert getattr(store.config, name) == OTHER[name]
        store.append("t", 0, b"x")
    with MessageStore.open(tmp_path / "store") as store:
        found = getattr(store.config, name)
    assert (found == OTHER[name]) == (rows_of("The store")[name][1] == "for good")
    if rows_of("The store")[name][1] == "for good":
        with pytest.raises(InvalidConfig):
            MessageStore.open(tmp_path / "store", StoreConfig(**{name: OTHER[name] + 1}))


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(TopicSettings)])
def test_a_setting_of_a_topic_is_kept_and_changed_as_the_page_says(tmp_path: Path, name: str) -> None:
    assert rows_of("Topics")[name][1] == "in the store"
    given = KEPT_BYTES if name == "retention_bytes" else {name: OTHER[name]}
    with MessageStore.open(tmp_path / "store", StoreConfig(segment_bytes=1 << 20)) as store:
        store.configure_topic("t", **given)
    with MessageStore.open(tmp_path / "store", StoreConfig(segment_bytes=1 << 20)) as store:
        assert getattr(store.topic_settings("t"), name) == given[name]
        store.configure_topic("t", queues=4 if name == "queues" else None)  # it may have more queues, not fewer
        assert getattr(store.topic_settings("t"), name) != given[name]


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(SubscriptionSettings)])
def test_a_setting_of_a_subscription_is_kept_and_changed_as_the_page_says(tmp_path: Path, name: str) -> None:
    given = {one: OTHER[one] for one in (name, TOGETHER.get(name, name))}
    with MessageStore.open(tmp_path / "store", StoreConfig(segment_bytes=1 << 20)) as store:
        store.subscribe("t", "s", **given).close()
    with MessageStore.open(tmp_path / "store", StoreConfig(segment_bytes=1 << 20)) as store:
        (info,) = store.subscriptions("t")
        assert getattr(info.settings, name) != getattr(SubscriptionSettings(), name)
        if rows_of("Subscriptions")[name][1] == "for good":
            with pytest.raises(StoreError):
                store.subscribe("t", "s")  # with the default
    can_change = set(inspect.signature(Subscription.change).parameters) - {"self"}
    assert can_change == set(rows_with("Subscriptions", "in the store"))


def test_a_cache_is_of_an_opening() -> None:
    assert rows_with("The cache", "for good", "in the store") == []
