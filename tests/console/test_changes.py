"""`stratalog repair`, `trim`, `delete-topic`, `seek`, `delete-subscription`: what they change, and what they refuse."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreConfig, StoreReader, verify_folder

from ..clocks import WallClock
from ..store.helpers import flip_bit, place_of, segment_path, take_snapshot, tiny
from .command import run

HOUR_MS = 3_600_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store: two queues with messages of two hours ago and of now, and a subscription that had two of them."""
    now = time.time_ns() // 1_000_000
    times = [now - 2 * HOUR_MS]
    with MessageStore.open(tmp_path / "store", StoreConfig(lanes=2), clock=WallClock(lambda: times[0])) as store:
        for time_ms in (now - 2 * HOUR_MS, now):
            times[0] = time_ms
            for at in range(4):
                store.append("orders", at % 2, b"%d" % at)
        store.append("other", 0, b"x")
        with store.subscribe("orders", "billing", mode="ordered", order_by="key", filter={"tag": {"a"}}):
            pass
        with store.subscribe("orders", "plain", max_attempts=3, dead_letter_topic="dead") as sub:
            sub.ack_batch(sub.receive(2))
    return tmp_path / "store"


def bounds(folder: Path, topic: str = "orders") -> list[tuple[int, int]]:
    """(first, next) offset of each queue of a topic."""
    with StoreReader.open(folder) as store:
        return [store.queue_bounds(topic, queue) for queue in store.queues(topic)]


def left(folder: Path, name: str = "plain") -> int:
    """The unacknowledged messages of a subscription."""
    with StoreReader.open(folder) as store:
        (info,) = [info for info in store.subscriptions("orders") if info.name == name]
        return info.backlog.total


# -- trim, delete-topic -------------------------------------------------------------------------------


def test_a_queue_is_trimmed_before_an_offset(folder: Path) -> None:
    shown = run("trim", folder, "orders", 1, "--before", 3)
    assert shown.output == "orders/1: 3 messages removed, the first is 3\n"
    assert bounds(folder) == [(0, 4), (3, 4)]
    assert run("trim", folder, "orders", 1, "--before", 3).output == "orders/1: 0 messages removed, the first is 3\n"


def test_a_topic_is_trimmed_before_a_time_or_an_offset(folder: Path) -> None:
    shown = run("trim", folder, "orders", "--until", "-1h", "--json")
    assert shown.rows == [
        {"queues": [{"topic": "orders", "queue": queue, "removed": 2, "first": 2} for queue in (0, 1)]}
    ]
    assert bounds(folder) == [(2, 4), (2, 4)]
    run("trim", folder, "orders", "--before", 1_000)
    assert bounds(folder) == [(4, 4), (4, 4)]
    assert bounds(folder, "other") == [(0, 1)]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["orders"], 2), (["orders", "--before", 1, "--until", "now"], 2), (["orders", 0, "--before", 5], 2),
     (["orders", "--until", "soon"], 2), (["nope", "--before", 1], 4), (["orders", 7, "--before", 1], 4)],
    ids=str,
)  # fmt: skip
def test_a_wrong_trim_changes_nothing(folder: Path, arguments: list[object], code: int) -> None:
    run("trim", folder, *arguments, code=code)
    assert bounds(folder) == [(0, 4), (0, 4)]


def test_a_topic_is_deleted(folder: Path) -> None:
    assert run("delete-topic", folder, "orders").output == "orders: 2 queues with 8 messages removed\n"
    assert run("topics", folder).output.startswith("other: ")
    assert "no topic 'orders'" in run("delete-topic", folder, "orders", code=4).errors


# -- subscriptions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "count"), [("earliest", 8), ("latest", 0), ("-1h", 4), ("0:3,1:4", 1), ("now", 0), ("0", 8)]
)
def test_a_subscription_is_set_to_a_position(folder: Path, to: str, count: int) -> None:
    assert left(folder) == 6
    shown = run("seek", folder, "orders", "plain", "--to", to)
    assert shown.output.startswith(f"orders plain: {count} message")
    assert left(folder) == count


def test_a_seek_keeps_the_settings(folder: Path) -> None:
    with StoreReader.open(folder) as store:
        before = {info.name: info.settings for info in store.subscriptions("orders")}
    for name in ("billing", "plain"):
        run("seek", folder, "orders", name, "--to", "latest")
    with StoreReader.open(folder) as store:
        assert {info.name: info.settings for info in store.subscriptions("orders")} == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["orders", "nope", "--to", "latest"], 4), (["nope", "plain", "--to", "latest"], 4), (["orders", "plain"], 2),
     (["orders", "plain", "--to", "x"], 2), (["orders", "plain", "--to", "0:9"], 2),
     (["orders", "plain", "--to", "0:"], 2)],
    ids=str,
)  # fmt: skip
def test_a_wrong_seek_changes_nothing_and_makes_no_subscription(folder: Path, arguments: list[str], code: int) -> None:
    before = run("subscriptions", folder).output
    shown = run("seek", folder, *arguments, code=code)
    assert code == 2 or len(shown.errors.splitlines()) == 1
    assert run("subscriptions", folder).output == before


def test_a_subscription_is_deleted_and_none_is_said(folder: Path) -> None:
    shown = run("delete-subscription", folder, "orders", "plain")
    assert shown.output == "orders plain: removed; 6 messages had not been acknowledged\n"
    run("delete-subscription", folder, "orders", "plain", code=4)
    run("delete-subscription", folder, "orders", "billing")
    assert run("subscriptions", folder).output == "no subscriptions\n"
    assert run("subscriptions", folder, "--json").output == '{\n  "subscriptions": []\n}\n'
    assert bounds(folder) == [(0, 4), (0, 4)]


# -- repair -------------------------------------------------------------------------------------------


def test_a_damaged_store_is_repaired_and_each_loss_is_a_line(tmp_path: Path) -> None:
    home = tmp_path / "store"
    with MessageStore.open(home, tiny()) as store:
        for at in range(100):
            store.append("t", 0, b"%d;" % at + bytes(3000))
        flip_bit(*place_of(store, ("t", 0), 0))
    segment_path(home, 2).unlink()
    assert run("inspect", home, code=1).output.startswith("needs repair: ")
    assert len(run("trim", home, "t", "--before", 1, code=1).errors.splitlines()) == 1
    shown = run("repair", home)
    assert str(segment_path(home, 2)) in shown.output or "000000000002.seg" in shown.output
    assert " lost" in shown.output
    with MessageStore.open(home):
        pass
    assert run("repair", home, "--json").rows == [{"losses": []}]


def test_a_sound_store_is_not_changed_by_a_repair(folder: Path) -> None:
    assert run("repair", folder).output == "nothing was damaged that an opening refuses\n"
    assert verify_folder(folder).ok
    assert bounds(folder) == [(0, 4), (0, 4)]


# -- all of them --------------------------------------------------------------------------------------

ALL = [
    ["repair"], ["trim", "orders", "--before", "1"], ["delete-topic", "orders"],
    ["seek", "orders", "plain", "--to", "latest"], ["delete-subscription", "orders", "plain"],
]  # fmt: skip


@pytest.mark.parametrize("command", ALL, ids=lambda command: command[0])
def test_none_makes_a_store_of_a_folder(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        shown = run(command[0], tmp_path / name, *command[1:], code=4)
        assert len(shown.errors.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("command", ALL, ids=lambda command: command[0])
def test_a_store_that_a_program_has_open_is_5(folder: Path, command: list[str]) -> None:
    with MessageStore.open(folder) as store:
        before = take_snapshot(folder)
        shown = run(command[0], folder, *command[1:], code=5)
        assert take_snapshot(folder) == before
        assert store.queue_bounds("orders", 0) == (0, 4)
    assert len(shown.errors.splitlines()) == 1
