"""What retention and age have taken from subscriptions is told to other processes."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stratalog.console.app import app
from stratalog.store import MessageStore, StoreReader, StoreUnreadable
from stratalog.store.subscriptions.told_counts import COUNTS_FILE
from stratalog.store.testing import VirtualClock

from ..helpers import tiny, until

HOUR_MS = 3_600_000


def told(reader: StoreReader) -> dict[tuple[str, str], tuple[int, int]]:
    while True:
        with suppress(StoreUnreadable):  # retention has just removed a segment
            found = reader.subscriptions()
            break
    return {(one.topic, one.name): (one.expired, one.removed_unacknowledged) for one in found}


def use(store: MessageStore, clock: VirtualClock) -> None:
    """Three messages expire, and retention takes many."""
    store.configure_topic("t", ttl_ms=HOUR_MS)
    sub = store.subscribe("t", "s")
    store.subscribe("u", "idle").close()
    store.append_batch([("t", 0, b"x")] * 3)
    clock.advance(ms=2 * HOUR_MS)
    assert sub.receive(10) == []
    sub.close()
    store.subscribe("u", "slow").close()
    store.append_batch([("u", 0, bytes(5_000))] * 100)
    removal = store._upkeep.removal
    until(lambda: told(store)["u", "slow"][1] > 0 and removal.held_bytes() <= 200_000)


def test_a_reader_sees_what_the_writer_has_counted_and_the_last_counts_of_one_that_has_closed(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path, tiny(retention_bytes=200_000), clock=clock) as store:
        use(store, clock)
        with StoreReader.open(tmp_path) as reader:
            until(lambda: told(reader) == told(store))
            assert told(reader)["t", "s"] == (3, 0)
        last = told(store)
    with StoreReader.open(tmp_path) as reader:
        assert told(reader) == last
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        assert set(told(store).values()) == {(0, 0)}, "it counts since the opening"
        with StoreReader.open(tmp_path) as reader:
            assert told(reader) == told(store)


def test_a_subscription_that_was_made_again_begins_with_0(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path, tiny(retention_bytes=200_000), clock=clock) as store:
        use(store, clock)
        with StoreReader.open(tmp_path) as reader:
            until(lambda: told(reader)["t", "s"] == (3, 0))
            store.delete_subscription("t", "s")
            store.subscribe("t", "s").close()
            assert told(reader)["t", "s"] == (0, 0)


def test_a_store_that_has_lost_nothing_has_no_file(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.subscribe("t", "s").close()
        store.append("t", 0, b"x")
    assert not list(tmp_path.glob(COUNTS_FILE + "*"))


@pytest.mark.parametrize(
    "content", [b"", b"[[", b"\xff\x00", b"7", b'[["t"]]', b'[["t", "s", 1, "x", 2]]', b"null", b"[7]"]
)
def test_a_damaged_file_says_nothing_and_stops_nobody(tmp_path: Path, content: bytes) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.subscribe("t", "s").close()
        store.append("t", 0, b"x")
    (tmp_path / COUNTS_FILE).write_bytes(content)
    with StoreReader.open(tmp_path) as reader:
        assert told(reader) == {("t", "s"): (0, 0)}
    with MessageStore.open(tmp_path, tiny()):
        assert not (tmp_path / COUNTS_FILE).exists()


def test_the_console_shows_them(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "s", tiny(retention_bytes=200_000), clock=clock) as store:
        use(store, clock)
    found = CliRunner().invoke(app, ["subscriptions", str(tmp_path / "s"), "--json", str(tmp_path / "out")])
    assert found.exit_code == 0
    assert "3 expired" in found.output
    assert "removed before they were acknowledged" in found.output
    rows = {(row["topic"], row["name"]): row for row in json.loads((tmp_path / "out").read_text())["subscriptions"]}
    assert rows["t", "s"]["expired"] == 3
    assert rows["u", "slow"]["removed_unacknowledged"] > 0
