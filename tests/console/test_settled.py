"""`stratalog redrive` and `configure`: what they change, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stratalog.console.settled import REDRIVE
from stratalog.store import MessageStore, StoreReader
from stratalog.store.api import redriving

from ..store.helpers import take_snapshot
from .command import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store: three dead letters of two queues, and one that was put there by hand."""
    with MessageStore.open(tmp_path / "store") as store:
        for at in range(3):
            store.append("orders", at % 2, b"%d" % at)
        with store.subscribe("orders", "billing", max_attempts=1, dead_letter_topic="failed") as sub:
            sub.nack_batch(sub.receive(), reason="broken")
            assert sub.receive() == []
        store.append("failed", 1, b"by hand")
    return tmp_path / "store"


def counts(folder: Path) -> list[int]:
    """The messages of each queue of the orders."""
    with StoreReader.open(folder) as store:
        return [store.queue_bounds("orders", queue)[1] for queue in store.queues("orders")]


def settings(folder: Path, topic: str = "orders") -> int | None:
    """How many queues a topic has."""
    with StoreReader.open(folder) as store:
        return store.topic_settings(topic).queues


# -- redrive ------------------------------------------------------------------------------------------


def test_dead_letters_are_sent_back_once(folder: Path) -> None:
    assert run("redrive", folder, "failed").output.endswith("failed: 3 messages sent back, 1 not sent back\n")
    assert counts(folder) == [4, 2]
    assert run("redrive", folder, "failed").output.endswith("failed: 0 messages sent back, 1 not sent back\n")


def test_some_of_them_are_sent_back(folder: Path) -> None:
    shown = run("redrive", folder, "failed", 0, "--count", 1, "--json")
    assert json.loads(shown.output) == {"topic": "failed", "sent": 1, "left": 3}
    assert counts(folder) == [3, 1]
    assert run("redrive", folder, "failed", 0).output.startswith("failed: 1 message sent back")


def test_a_redrive_of_nothing_makes_no_subscription(folder: Path) -> None:
    for arguments in (["nothing"], ["failed", 7]):
        run("redrive", folder, *arguments, code=4)
    with StoreReader.open(folder) as store:
        assert [info.name for info in store.subscriptions()] == ["billing"]


def test_the_subscription_that_counts_has_one_name() -> None:
    assert REDRIVE == redriving.REDRIVE


# -- configure ----------------------------------------------------------------------------------------


def test_settings_are_shown_changed_and_taken_back(folder: Path) -> None:
    before = take_snapshot(folder)
    assert run("configure", folder, "orders").output == "orders: any queue\n"
    assert take_snapshot(folder) == before
    assert run("configure", folder, "orders", "--queues", 8).output == "orders: 8 queues, 0 to 7\n"
    given = json.loads(run("configure", folder, "orders", "--json").output)
    defaults = {"keep": "retention", "retention_bytes": None, "retention_ms": None, "ttl_ms": None}
    window = {"id_window_ms": 600_000, "id_window_count": 100_000, "types": None}
    assert given == {"topic": "orders", "queues": 8, **defaults, **window}
    assert settings(folder) == 8
    assert run("configure", folder, "orders", "--queues", 0).output == "orders: any queue\n"
    assert settings(folder) is None


def test_a_change_leaves_the_other_settings_as_they_are(folder: Path) -> None:
    with MessageStore.open(folder) as store:
        store.configure_topic("orders", keep="unacknowledged", retention_bytes=1 << 30)
    shown = run("configure", folder, "orders", "--queues", 4)
    assert shown.output == "orders: 4 queues, 0 to 3; keeps what is unacknowledged; at most 1.00 GiB of it\n"
    with StoreReader.open(folder) as reader:
        settings = reader.topic_settings("orders")
    assert (settings.queues, settings.keep, settings.retention_bytes) == (4, "unacknowledged", 1 << 30)


def test_times_are_given_with_units_and_taken_back_by_0(folder: Path) -> None:
    shown = run("configure", folder, "orders", "--retention", "2d", "--ttl", "90s")
    assert shown.output == (
        "orders: any queue; removed after 172,800,000 ms; no subscription gets it after 90,000 ms\n"
    )
    assert (
        run("configure", folder, "orders", "--ttl", "0s").output == "orders: any queue; removed after 172,800,000 ms\n"
    )
    assert run("configure", folder, "orders", "--retention", "soon", code=2).exit_code == 2
    assert run("configure", folder, "orders").output == "orders: any queue; removed after 172,800,000 ms\n"


def test_types_of_messages_are_given_by_their_names_and_taken_back_by_all(folder: Path) -> None:
    shown = "orders: any queue; takes only fifo, delay of RocketMQ's clients\n"
    assert run("configure", folder, "orders", "--types", "delay,fifo").output == shown
    assert run("configure", folder, "orders").output == shown
    assert json.loads(run("configure", folder, "orders", "--json").output)["types"] == ["fifo", "delay"]
    assert run("configure", folder, "orders", "--queues", 0).output == shown
    assert "'normal', 'fifo'" in run("configure", folder, "orders", "--types", "lite", code=2).output
    assert run("configure", folder, "orders", "--types", "all").output == "orders: any queue\n"


def test_an_id_window_that_is_not_the_default_is_shown(folder: Path) -> None:
    with MessageStore.open(folder) as store:
        store.configure_topic("orders", id_window_ms=60_000, id_window_count=5000)
    shown = run("configure", folder, "orders").output
    assert shown == "orders: any queue; knows a message id for 60,000 ms and 5,000 later ids\n"


def test_a_change_makes_the_topic_and_a_look_does_not(folder: Path) -> None:
    run("configure", folder, "new", code=4)
    run("configure", folder, "new", "--queues", 1)
    assert run("configure", folder, "new").output == "new: 1 queue, 0 to 0\n"


@pytest.mark.parametrize(("queues", "code"), [(1, None), (-1, 2), ("x", 2), ((1 << 31) + 1, 2)])
def test_wrong_settings_change_nothing(folder: Path, queues: object, code: int | None) -> None:
    shown = run("configure", folder, "orders", "--queues", queues, code=code)
    assert shown.exit_code != 0 and "Traceback" not in shown.output
    assert settings(folder) is None


# -- both ---------------------------------------------------------------------------------------------

BOTH = [["redrive", "failed"], ["configure", "orders", "--queues", "9"]]


@pytest.mark.parametrize("command", BOTH, ids=lambda command: command[0])
def test_none_makes_a_store_of_a_folder(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        run(command[0], tmp_path / name, *command[1:], code=4)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("command", BOTH, ids=lambda command: command[0])
def test_a_store_that_a_program_has_open_is_5_and_its_settings_are_shown(folder: Path, command: list[str]) -> None:
    with MessageStore.open(folder) as store:
        run(command[0], folder, *command[1:], code=5)
        assert store.configure_topic("orders", queues=3).queues == 3
        assert run("configure", folder, "orders").output == "orders: 3 queues, 0 to 2\n"
