"""Measurements compare what they read with what was written: one wrong byte, or one message less, ends them.

The endpoint's are in test_endpoint.py. Not tried: Spark's, which compare sums of hashes, and those that only count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stratalog.perf.experiments.host_store import Stores, read_parts
from stratalog.perf.report.progress import NOWHERE, Run
from stratalog.perf.workload.checker import WrongResult
from stratalog.store import Delivery, Message, MessageBatch, MessageStore, Subscription
from tests.perf.short import error_of, report_of_run

COMMANDS = [
    "memory",
    "tail_catchup",
    "subscriptions",
    "transactions",
    "latency",
    "host",
    "peers --only tail --peers sqlite",
]
RECEIVING = ["subscriptions", "transactions"]


def flipped(data: bytes) -> bytes:
    """The last bit changed."""
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.fixture
def one_wrong_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every read gives its last message with one bit changed."""
    payloads, get_range, read = MessageBatch.payloads, MessageStore.get_range, MessageStore.read

    def wrong_payloads(batch: MessageBatch) -> list[memoryview]:
        found = payloads(batch)
        return [*found[:-1], memoryview(flipped(bytes(found[-1])))] if found else found

    def wrong_range(store: MessageStore, topic: str, queue_id: int, offset: int, fetch_num: int) -> dict[int, bytes]:
        found = get_range(store, topic, queue_id, offset, fetch_num)
        return {**found, max(found): flipped(found[max(found)])} if found else found

    def wrong_read(store: MessageStore, *arguments: int, **options: int) -> list[Message]:
        found = read(store, *arguments, **options)  # type: ignore[arg-type]  # passed on as they are
        return [*found[:-1], dataclasses.replace(found[-1], data=flipped(found[-1].data))] if found else found

    monkeypatch.setattr(MessageBatch, "payloads", wrong_payloads)
    monkeypatch.setattr(MessageStore, "get_range", wrong_range)
    monkeypatch.setattr(MessageStore, "read", wrong_read)


@pytest.mark.usefixtures("one_wrong_byte")
@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_byte_ends_the_measurement(tmp_path: Path, command: str) -> None:
    assert isinstance(error_of(tmp_path, *command.split()), WrongResult)


@pytest.fixture
def one_wrong_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every receive gives its last message with one bit changed."""
    receive = Subscription.receive

    def wrong(sub: Subscription, *arguments: int, **options: int) -> Sequence[Delivery]:
        found = receive(sub, *arguments, **options)
        for one in found[-1:]:
            object.__setattr__(one.message, "data", flipped(one.message.data))
        return found

    monkeypatch.setattr(Subscription, "receive", wrong)


@pytest.mark.usefixtures("one_wrong_delivery")
@pytest.mark.parametrize("command", RECEIVING)
def test_wrong_byte_of_a_delivery_ends_the_measurement(tmp_path: Path, command: str) -> None:
    assert isinstance(error_of(tmp_path, command), WrongResult)


@pytest.mark.usefixtures("one_wrong_delivery")
def test_wrong_byte_of_a_job_ends_host(tmp_path: Path) -> None:
    stores = Stores(tmp_path, Run("host", NOWHERE), 0.0, 512, 2021)
    jobs = read_parts(stores)[-1]
    assert jobs.name == "store.jobs"
    with pytest.raises(WrongResult, match="1 of 32 messages that were received"):
        jobs.run()


def test_lost_message_ends_the_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = MessageStore.scan

    def without_the_last(store: MessageStore) -> Iterator[MessageBatch]:
        return iter(list(scan(store))[:-1])

    monkeypatch.setattr(MessageStore, "scan", without_the_last)
    assert isinstance(error_of(tmp_path, "memory"), WrongResult)


def test_result_that_a_transaction_did_not_append_ends_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = MessageStore.queue_bounds

    def one_less(store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
        first, end = bounds(store, topic, queue_id)
        return first, end - 1

    monkeypatch.setattr(MessageStore, "queue_bounds", one_less)
    assert isinstance(error_of(tmp_path, "transactions"), WrongResult)


def test_acknowledgement_that_did_nothing_ends_the_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subscription, "ack_batch", lambda _sub, _receipts: None)
    assert isinstance(error_of(tmp_path, "subscriptions"), WrongResult)


def test_hotcold_counts_a_difference_in_the_closed_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = MessageBatch.payloads
    monkeypatch.setattr(
        MessageBatch, "payloads", lambda batch: [memoryview(flipped(bytes(one))) for one in payloads(batch)]
    )
    report = report_of_run(tmp_path, "hotcold", "--size", "1MiB", "--no-reference", exit_code=1)
    assert report.verdict.startswith("lost 0 ") and "corrupted 1 " in report.verdict and not report.right
    assert "what the scan gives at offset" in report.verdict  # where
