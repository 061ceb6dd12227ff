"""`bench endpoint` in its short form: its chapters, and what is a wrong result."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from stratalog import MessageStore
from stratalog.perf.experiments import endpoint_curves, endpoint_remote
from stratalog.perf.report.record import Report
from stratalog.perf.workload import rocketmq
from stratalog.perf.workload.checker import WrongResult
from tests.perf.short import error_of, report_of_run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_of_run(tmp_path_factory.mktemp("endpoint"), "endpoint")


def test_each_way_stands_beside_a_handler_that_does_nothing(report: Report) -> None:
    measures = report.measures()
    for kind in endpoint_curves.KINDS:
        assert measures[f"endpoint.{kind}.100.cpu_us"].value > 0
        assert (measures[f"endpoint.{kind}.reached"].reference is None) == (kind == "nothing")
    for way in endpoint_remote.WAYS:
        assert measures[f"remote.{way}.per_s"].value > 0
        assert measures[f"remote.{way}.per_s"].reference == measures["remote.trivial.per_s"].value


def test_idle_clients_are_told_with_the_times_of_another_one(report: Report) -> None:
    measures = report.measures()
    assert measures["connections.descriptors"].value >= 3.0
    for state in ("alone", "idle"):
        assert 0 < measures[f"connections.{state}.p50"].value <= measures[f"connections.{state}.p99"].value
    assert "connections.memory_kib" in measures and measures["connections.start.ms"].value > 0


def test_curves_count_from_the_moment_at_which_a_request_was_due(report: Report) -> None:
    charts = {chart.title: chart for chapter in report.chapters for chart in chapter.charts}
    for kind, (what, _) in endpoint_curves.KINDS.items():
        assert charts[f"{what[0].upper()}{what[1:]}: latency by rate"].x == (100.0,)
        assert report.measures()[f"endpoint.{kind}.100.p99.9"].value > 0
    assert "coordinated omission" in report.chapters[-1].text


def test_sends_that_are_not_there_or_are_other_ones_are_a_wrong_result(tmp_path: Path) -> None:
    rocketmq.fill(tmp_path / "store", 10, 20)
    assert rocketmq.check_sent(tmp_path / "store", 10, 20) == 10
    with pytest.raises(WrongResult, match="11 sends"):
        rocketmq.check_sent(tmp_path / "store", 11, 20)
    with MessageStore.open(tmp_path / "store") as store:
        store.append(rocketmq.TOPIC, 0, rocketmq.body_of(9, 20))  # message 9 again
    with pytest.raises(WrongResult, match="the 11 messages"):
        rocketmq.check_sent(tmp_path / "store", 11, 20)


def test_acknowledged_message_that_is_there_again_is_a_wrong_result(tmp_path: Path) -> None:
    rocketmq.fill(tmp_path / "store", 3, 20)
    with MessageStore.open(tmp_path / "store") as store, store.subscribe(rocketmq.TOPIC, rocketmq.GROUP) as sub:
        sub.ack_batch(sub.receive(2))
    with pytest.raises(WrongResult, match="1 of 3 messages were acknowledged"):
        rocketmq.check_acknowledged(tmp_path / "store", 3)


def test_send_that_never_came_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rocketmq.Client.send

    async def forgetful(self: rocketmq.Client, number: int) -> None:
        await real(self, max(number, 1))  # message 1 twice, message 0 never

    monkeypatch.setattr(rocketmq.Client, "send", forgetful)
    monkeypatch.setattr(endpoint_curves, "KINDS", {"send": endpoint_curves.KINDS["send"]})
    found = error_of(tmp_path, "endpoint", "--only", "curves")
    assert isinstance(found, WrongResult) and "40 sends were answered" in str(found)


def test_message_that_a_remote_consumer_gets_damaged_or_twice_is_a_wrong_result() -> None:
    assert endpoint_remote._compared([b"b", b"a"], [b"a", b"b"]) == 2
    for given in ([b"a"], [b"a", b"a"], [b"a", b"?"], [b"a", b"b", b"b"]):
        with pytest.raises(WrongResult, match="are not the 2 of the store"):
            endpoint_remote._compared(given, [b"a", b"b"])


def test_chapter_that_is_not_known_is_a_usage_error(tmp_path: Path) -> None:
    assert isinstance(error_of(tmp_path, "endpoint", "--only", "nothing"), SystemExit)


def test_message_that_is_received_damaged_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rocketmq.Client.receive

    async def damaging(self: rocketmq.Client, most: int) -> list[Any]:
        found = await real(self, most)
        for one in found:
            one.body = one.body[:-1] + b"?"
        return found

    monkeypatch.setattr(rocketmq.Client, "receive", damaging)
    monkeypatch.setattr(endpoint_curves, "KINDS", {"receive": endpoint_curves.KINDS["receive"]})
    found = error_of(tmp_path, "endpoint", "--only", "curves")
    assert isinstance(found, WrongResult) and "40 messages that were received are not" in str(found)


def test_heartbeat_that_fails_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path_of, before = rocketmq.path_of, resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(rocketmq, "path_of", lambda name: path_of("Nothing" if name == "Heartbeat" else name))
    found = error_of(tmp_path, "endpoint", "--only", "connections")
    assert isinstance(found, WrongResult) and "0 heartbeats were answered OK" in str(found)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
