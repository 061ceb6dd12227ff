"""`stratalog subscriptions`: what is listed, of a closed store and beside a writer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stratalog.console.app import app
from stratalog.store import MessageStore


def lines(*arguments: object) -> list[str]:
    shown = CliRunner().invoke(app, ["subscriptions", *map(str, arguments)])
    assert shown.exit_code == 0, shown.output
    return shown.output.splitlines()


@pytest.mark.parametrize("beside", [False, True], ids=["closed", "beside a writer"])
def test_subscriptions_are_listed_with_what_they_have_left(tmp_path: Path, beside: bool) -> None:
    store = MessageStore.open(tmp_path / "store")
    store.append_batch([("orders", 0, b"x") for _ in range(4)])
    sub = store.subscribe("orders", "billing")
    sub.ack(sub.receive(max_messages=1)[0])
    store.subscribe(
        "orders", "odd\u200b", mode="ordered", order_by="key", filter={"tag": {"a", "b"}}, max_attempts=3,
        dead_letter_topic="dead",
    )  # fmt: skip
    store.subscribe("other", "billing")
    store.subscribe("other", "sql", filter="tag = 'a'\nOR price > 5")
    if not beside:
        store.close()
    assert lines(store.path) == [
        "orders billing: 3 messages not acknowledged",
        "orders odd\\u200b: 4 messages not acknowledged; ordered by key; tag in a, b; 3 attempts, then dead",
        "other billing: 0 messages not acknowledged",
        "other sql: 0 messages not acknowledged; tag = 'a'\\nOR price > 5",
    ]
    assert lines(store.path, "orders")[0] == "orders billing: 3 messages not acknowledged"
    row, sql = json.loads("".join(lines(store.path, "other", "--json", "-")))["subscriptions"]
    assert (row["topic"], row["name"], row["unacknowledged"]) == ("other", "billing", 0)
    assert (row["filter"], sql["filter"]) == (None, "tag = 'a'\nOR price > 5")
    store.close()


def test_a_store_without_any_has_nothing_to_list(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store").close()
    assert lines(tmp_path / "store") == ["no subscriptions"]


def test_topic_that_is_not_there_is_said_with_4(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.append("orders", 0, b"x")
    assert lines(store.path, "orders") == ["no subscriptions"]
    shown = CliRunner().invoke(app, ["subscriptions", str(store.path), "nope"])
    assert (shown.exit_code, "topic 'nope'" in shown.output) == (4, True)


def test_inspect_shows_subscriptions_and_what_is_delayed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.subscribe("orders", "billing", mode="ordered")
        store.append_batch([("orders", 0, b"x") for _ in range(4)])
        offset = store.append("orders", 0, b"later", deliver_at_ms=1 << 50)
        store.append("orders", 0, b"later", deliver_at_ms=1 << 50)
        assert store.cancel_delayed("orders", 0, offset)
    shown = CliRunner().invoke(app, ["inspect", str(store.path)], env={"COLUMNS": "200"}).output
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert ["orders", "billing", "ordered", "4", "unknown", "1"] in cells
    assert ["orders", "1"] in cells
    assert lines(store.path) == ["orders billing: 5 messages not acknowledged; 1 of them delayed; ordered by queue"]
