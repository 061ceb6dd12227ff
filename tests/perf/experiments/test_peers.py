"""`bench peers` in its short form, its parts made of given figures, and what ends it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from typer.testing import CliRunner

from stratalog.perf.commands.app import app
from stratalog.perf.experiments import peers_jobs, peers_reads, peers_recovery
from stratalog.perf.experiments.parts import Count, measured
from stratalog.perf.experiments.peers import Peers
from stratalog.perf.experiments.peers_jobs import check_jobs
from stratalog.perf.experiments.peers_recovery import Crashed
from stratalog.perf.experiments.peers_told import TEXTS, Subject, beside_the_best, chapter
from stratalog.perf.experiments.peers_work import Filled, Work, parts_of, run_ready
from stratalog.perf.peers.found import Found, found
from stratalog.perf.peers.messages import Messages
from stratalog.perf.peers.peer import APPEND, GROUPED, JOBS
from stratalog.perf.peers.sqlite import Sqlite
from stratalog.perf.peers.store import Store
from stratalog.perf.report.files import read_report
from stratalog.perf.report.progress import NOWHERE, Run
from stratalog.perf.report.record import Chapter
from stratalog.perf.workload.checker import WrongResult
from stratalog.perf.workload.contest import Sizes
from stratalog.store import StoreFull
from tests.perf.short import error_of

FEW = "lmdb,sqlite"


def test_short_run_has_every_chapter_and_the_measures_of_each_peer_beside_the_stores(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    options = ["--short", "--peers", FEW, "--dir", str(tmp_path / "runs"), "--report", str(tmp_path)]
    done = CliRunner().invoke(app, ["peers", *options])
    assert done.exit_code == 0, (done.output, done.exception)
    report = read_report(tmp_path / "peers.json")
    assert [one.title for one in report.chapters[1:]] == [title for title, _ in TEXTS.values()]
    assert "synchronous=FULL" in report.chapters[0].text and "stratalog" in report.chapters[0].text
    measures = report.measures()
    for one in ("append.small.1", "append.small.2", "pipelined.small", "batch.small", "tail.small", "ranges"):
        for peer in ("lmdb", "sqlite"):
            beside = measures[f"{peer}.{one}.per_s"]
            assert beside.reference == measures[f"store.{one}.per_s"].value and beside.reference_is_store
    assert measures["lmdb.grouped.small.2.per_s"].reference == measures["store.append.small.2.per_s"].value
    assert measures["store.scan.mb_per_s"].reference == measures["raw.scan.mb_per_s"].value
    assert measures["store.queues.scan.mb_per_s"].value > 0 and measures["store.columns.batch.small.per_s"].value > 0
    assert 0 < measures["store.recovery.first_ms"].value <= measures["store.recovery.all_ms"].value
    assert measures["sqlite.jobs.2.per_s"].reference == measures["store.jobs.2.per_s"].value
    assert not any(name.startswith("lmdb.jobs") for name in measures)
    assert "Without LMDB" in report.chapters[-1].text
    assert set(report.chapters[1].charts[0].lines) >= {"this store", "LMDB with a group-commit thread"}
    assert any(line.startswith("Appends, one at a time: small, 1 producer ") for line in report.summary[:2])
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("wrong", [["--only", "tails"], ["--peers", "lmdb,mongo"], ["--sizes", "2KiB"]])
def test_name_that_is_none_is_a_usage_error_that_lists_them(tmp_path: Path, wrong: list[str]) -> None:
    done = CliRunner().invoke(app, ["peers", *wrong, "--short", "--dir", str(tmp_path)])
    assert done.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_peer_that_loses_a_message_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Store.append
    monkeypatch.setattr(Store, "append", lambda self, row: None if row[1] == 3 else append(self, row))
    ended = error_of(tmp_path, "peers", "--only", "append", "--peers", "lmdb", "--seconds", "0.2")
    assert isinstance(ended, WrongResult)


RATE = Count(figure="per_s", what="", unit="msg/s")
LATENCY = Count(figure="ms", what="until then", unit="ms", better="lower")


def test_error_of_the_store_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Store, row: object) -> None:
        raise StoreFull("no space")

    monkeypatch.setattr(Store, "append", refused)
    ended = error_of(tmp_path, "peers", "--only", "append", "--peers", "lmdb", "--seconds", "0.01")
    assert isinstance(ended, StoreFull)


@pytest.mark.parametrize("option", ["tail_bytes", "scan_bytes", "recovery_bytes"])
def test_space_that_is_asked_for_grows_with_every_kind_of_messages(option: str) -> None:
    little: dict[str, Any] = {"tail_bytes": 1 << 20, "scan_bytes": 1 << 20, "recovery_bytes": 1 << 20}
    needed = Peers(**(little | {option: 1 << 34})).need_bytes()
    assert needed - Peers(**little).need_bytes() > 4 << 34


def told(rates: dict[str, dict[str, float] | Exception]) -> tuple[str, Chapter]:
    """The line and the chapter of two works whose figures are given, by the name of a part."""
    here, _ = found(["rocksdb", "lmdb", "huey"], {})

    def run(name: str, one: Found) -> dict[str, float]:
        given = rates.get(f"{one.kind.NAME}.{name}", {"per_s": 1.0, "ms": 900.0})
        if isinstance(given, Exception):
            raise given
        return given

    alone = Work("alone", APPEND, "alone", partial(run, "alone"), (RATE, LATENCY))
    grouped = Work("grouped", GROUPED, "alone", partial(run, "grouped"), (RATE,), of_store="alone", how=" grouped")
    jobs = Work("jobs", JOBS, "jobs", partial(run, "jobs"), (RATE,))
    subject = Subject("Subject", "What was done.", (alone, grouped, jobs))
    failed: dict[str, str] = {}
    measures = measured(parts_of(subject.works, here), 1, Run("peers", NOWHERE), failed)
    return beside_the_best(subject, here, measures), chapter(subject, here, measures, failed)


def test_summary_compares_with_the_best_peer_also_with_a_group_commit_thread() -> None:
    line, _ = told({
        "store.alone": {"per_s": 30.0, "ms": 4.0}, "rocksdb.alone": {"per_s": 10.0, "ms": 8.0},
        "lmdb.grouped": {"per_s": 20.0},
    })  # fmt: skip
    assert line == "Subject: alone 30 msg/s, 1.50 x LMDB grouped; alone, until then 4 ms, 2.00 x RocksDB."


def test_summary_says_where_the_store_is_behind() -> None:
    line, _ = told({"store.alone": {"per_s": 5.0, "ms": 4.0}, "rocksdb.alone": {"per_s": 10.0, "ms": 2.0}})
    assert line == "Subject: alone 5 msg/s, 0.50 x RocksDB; alone, until then 4 ms, 0.50 x RocksDB."


def test_peer_that_promises_less_is_no_measure_for_the_others() -> None:
    line, one = told({"huey.jobs": {"per_s": 1000.0}})
    assert "jobs" not in line
    assert "huey.jobs.per_s" in {measure.name for measure in one.measures}


def test_peers_own_error_leaves_the_others_their_figures() -> None:
    _, one = told({"rocksdb.alone": RuntimeError("its own")})
    assert "Failed: rocksdb.alone: PeerFailed: RocksDB: RuntimeError: its own." in one.text
    names = {measure.name for measure in one.measures}
    assert {"store.alone.per_s", "lmdb.alone.per_s"} <= names and "rocksdb.alone.per_s" not in names


class Counted(Store):
    """A store that counts the threads that it was made ready in; the one of `bad` raises."""

    bad = 0

    def __init__(self, folder: Path, prepare_bytes: int = 0) -> None:
        super().__init__(folder, prepare_bytes)
        self.threads: list[int] = []

    def ready(self) -> None:
        self.threads.append(threading.get_ident())
        if len(self.threads) == self.bad:
            raise RuntimeError("no connection")


def test_jobs_start_when_every_thread_is_ready_and_end_so_many_seconds_after_that(tmp_path: Path) -> None:
    with closing(Counted(tmp_path)) as peer:
        seen: list[tuple[int, bool, float]] = []

        def job(end: float) -> None:
            seen.append((len(peer.threads), threading.get_ident() in peer.threads, end))

        assert run_ready(peer, 1000.0, [job, job, job]) > 0
        assert [one[:2] for one in seen] == [(3, True)] * 3
        assert len({end for *_, end in seen}) == 1 and seen[0][2] > perf_counter() + 500


def test_thread_that_does_not_get_ready_ends_the_others_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counted, "bad", 2)
    ran: list[float] = []
    with closing(Counted(tmp_path)) as peer, pytest.raises(RuntimeError, match="no connection"):
        run_ready(peer, 1.0, [ran.append] * 3)
    assert not ran


@pytest.mark.parametrize("chapter", ["scan", "recovery"])
def test_clock_of_the_raw_device_starts_after_the_bytes_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chapter: str
) -> None:
    module, seen = peers_reads if chapter == "scan" else peers_recovery, list[str]()
    messages, store = Messages(5, Sizes.parse("small")), Found(Store, "", Store)
    bytes_of = Messages.bytes_of

    def counted(self: Messages, written: dict[int, int]) -> int:
        seen.append("bytes")
        return bytes_of(self, written)

    def clock() -> float:
        seen.append("clock")
        return float(len(seen))

    monkeypatch.setattr(Messages, "bytes_of", counted)
    monkeypatch.setattr(module, "perf_counter", clock)
    filled, crashed = Filled(tmp_path, messages, 1000), Crashed(tmp_path, messages, 1000)
    part = peers_reads.raw_part(filled, store) if chapter == "scan" else crashed.raw_part(store)
    assert all(value is not None and value > 0 for value in part.run().values())
    assert seen == ["bytes", "clock", "clock"]


def test_raw_device_that_gives_too_few_bytes_is_a_wrong_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed = Crashed(tmp_path, Messages(5, Sizes.parse("small")), 1000)
    monkeypatch.setattr(peers_recovery, "read_sequential", lambda paths, limit, direct: limit - 1)
    with pytest.raises(WrongResult, match="bytes of its messages"):
        crashed.raw_part(Found(Store, "", Store)).run()


@pytest.mark.parametrize("work", ["jobs.1", "jobs.batches"])
def test_job_that_is_lost_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    monkeypatch.setattr(peers_jobs, "LOST_NS", 10_000_000)
    put, ready = Sqlite.put, threading.Event()

    def lossy(self: Sqlite, datas: Sequence[bytes]) -> None:
        put(self, datas if not ready.is_set() else datas[1:])
        ready.set()

    monkeypatch.setattr(Sqlite, "put", lossy)
    works = peers_jobs.job_works(tmp_path, Run("peers", NOWHERE), 0.01, Messages(5, Sizes.parse("small")), (1,))
    (one,) = (one for one in works if one.name == work)
    with pytest.raises(WrongResult, match="no job came in"):
        one.run(Found(Sqlite, "", Sqlite))


@pytest.mark.parametrize(
    ("submitted", "said"), [([2], "came twice"), ([4], "1 of 4"), ([1, 2], "of 3")], ids=["twice", "lost", "another's"]
)
def test_jobs_that_do_not_come_once_each_are_a_wrong_result(submitted: list[int], said: str) -> None:
    messages = Messages(5, Sizes.parse("small"))
    jobs = [messages.make(0, number) for number in range(3)]
    assert check_jobs(messages, [3], jobs) == 3
    with pytest.raises(WrongResult, match=said):
        check_jobs(messages, submitted, [*jobs, jobs[0]] if submitted == [2] else jobs)
