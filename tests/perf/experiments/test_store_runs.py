"""The measurements of the store run in their short form, and give the measures that their readers look for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stratalog.perf.commands.app import app
from stratalog.perf.experiments import readers
from stratalog.perf.experiments.hotcold import HotCold
from stratalog.perf.report.record import Measure, Report
from stratalog.perf.workload.checker import Counts
from stratalog.perf.workload.phases import ReadSide
from stratalog.perf.workload.reader_processes import processes
from stratalog.store.testing import TunedCacheConfig, TunedConfig
from tests.perf.short import report_of_run

CLEAN = "lost 0  duplicated 0  out_of_order 0  corrupted 0  wrong_offsets 0"


def named(report: Report, *names: str) -> list[Measure]:
    """These measures; a report without one of them fails."""
    measures = report.measures()
    assert [name for name in names if name not in measures] == []
    return [measures[name] for name in names]


def values(report: Report) -> Mapping[str, float]:
    return {name: one.value for name, one in report.measures().items()}


@pytest.mark.parametrize("api", ["blocking", "pipelined", "batch", "asyncio"])
def test_hotcold_loses_nothing_and_stands_beside_the_device_and_no_engine(tmp_path: Path, api: str) -> None:
    report = report_of_run(tmp_path, "hotcold", "--size", "3MiB", "--api", api, "--seed", "5")
    assert (report.right, report.verdict) == (True, CLEAN)
    rate, payload, amplification = named(
        report, "hotcold.phase1.per_s", "hotcold.phase1.mb_per_s", "hotcold.write_amplification"
    )
    named(report, "hotcold.phase2.p99.9", "hotcold.reads.per_s", "hotcold.whole_s", "hotcold.kernel_write_mb")
    device = report.measures()["hotcold.device.mb_per_s"].value
    assert payload.share == pytest.approx(payload.value / device)
    assert (rate.share is not None) == (api in ("blocking", "asyncio"))  # one producer waits for nobody
    assert ("hotcold.no_engine_all_cpus.per_s" in report.measures()) == (api == "blocking")  # others: on all anyway
    assert amplification.value > 1
    whole, phases, opened, closed = named(
        report, "hotcold.whole_s", "hotcold.total_s", "hotcold.open_s", "hotcold.close_s"
    )
    assert whole.value == pytest.approx(phases.value + opened.value + closed.value)
    assert report.checked_messages > 100
    assert f"--api {api}" in report.how


def test_hotcold_keeps_each_round_and_sums_what_was_compared(tmp_path: Path) -> None:
    once = report_of_run(tmp_path, "hotcold", "--size", "1MiB", "--no-reference", "--threads", "3", "--repeat", "1")
    twice = report_of_run(tmp_path, "hotcold", "--size", "1MiB", "--no-reference", "--threads", "3", "--repeat", "2")
    assert {len(one.values) for one in twice.measures().values()} == {2}
    assert twice.checked_messages == 2 * once.checked_messages
    assert not any(one.share for one in twice.measures().values())


def test_hotcold_passes_its_settings_on() -> None:
    given = HotCold(lanes=2, alignment="trim", durability="os", sizes="small", cpus=1, prewrite=False,
                    contest_memory=True).options()  # fmt: skip
    config = given.config(Path())
    assert isinstance(config, TunedConfig)
    assert (config.lanes, config.alignment, config.durability, config.prewrite_bytes) == (2, "trim", "os", 0)
    assert isinstance(config.cache, TunedCacheConfig)
    assert config.cache.readers == "once"
    assert (given.cpus, HotCold().options().cpus, HotCold(api="batch").options().cpus) == (1, 1, None)


def test_hotcold_tells_which_layer_served_and_what_the_cache_holds(tmp_path: Path) -> None:
    report = report_of_run(
        tmp_path, "hotcold", "--size", "3MiB", "--no-reference", "--contest-memory", "--pmem-dir", str(tmp_path),
    )  # fmt: skip
    found = values(report)
    shares = {name: value for name, value in found.items() if name.endswith(".percent")}
    assert shares.keys() >= {f"hotcold.served.{name}.percent" for name in ("ring", "persistent", "read cache")}
    assert sum(shares.values()) == pytest.approx(100)
    counted = ("filled_messages", "not_admitted_messages", "refused_messages", "missed_messages")
    assert 0 < sum(found[f"hotcold.cache.{name}"] for name in counted) < report.checked_messages
    assert found["hotcold.served.unsound_messages"] == 0


@pytest.mark.parametrize(("counts", "code"), [(Counts(), 0), (Counts(lost=1, corrupted=2), 1)], ids=["clean", "not"])
def test_last_line_of_hotcold_has_the_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts, code: int
) -> None:
    monkeypatch.setattr(ReadSide, "finish", lambda self: counts)
    done = CliRunner().invoke(app, ["hotcold", "--short", "--size", "1MiB", "--no-reference", "--dir", str(tmp_path)])
    assert done.exit_code == code
    expected = f"lost {counts.lost}  duplicated 0  out_of_order 0  corrupted {counts.corrupted}  wrong_offsets 0"
    assert done.output.splitlines()[-1] == expected


def test_hotcold_with_fewer_queues_than_topics_is_no_error(tmp_path: Path) -> None:
    assert report_of_run(
        tmp_path, "hotcold", "--size", "1MiB", "--no-reference", "--queues", "3", "--threads", "3"
    ).right


def test_hotcold_refuses_what_is_no_size() -> None:
    assert CliRunner().invoke(app, ["hotcold", "--size", "much"]).exit_code == 2
    assert CliRunner().invoke(app, ["hotcold", "--sizes", "odd"]).exit_code == 2


def test_memory_gives_bytes_a_message(tmp_path: Path) -> None:
    report = report_of_run(tmp_path, "memory")
    found = values(report)
    assert report.checked_messages == 20_000
    assert 10 < found["memory.disk.metadata"] < 100
    assert found["memory.disk.metadata"] == pytest.approx(found["memory.disk.frames"] + found["memory.disk.footers"])
    # 20,000 messages are one segment that is cleanly closed: it has no footer yet.
    assert found["memory.disk.all"] == pytest.approx(found["memory.disk.metadata"] + found["memory.disk.padding"])
    assert found["memory.open_table"] > 0 and "memory.sealed_table" not in found


def test_tail_is_served_by_the_ring_and_catching_up_reads_the_backlog(tmp_path: Path) -> None:
    report = report_of_run(tmp_path, "tail_catchup")
    found = values(report)
    assert (found["tail.served.ring.percent"], found["tail.served.device_reads"]) == (100, 0)
    assert found["catchup.cold.served.device_reads"] > 0 and found["catchup.cold.served.read cache.percent"] == 0
    assert "catchup.alone.read_per_s" not in found and found["catchup.read_ahead.read_per_s"] > 0
    alone, cold, ahead = named(report, *(f"catchup.{name}.written_per_s" for name in ("alone", "cold", "read_ahead")))
    assert alone.share is None
    assert cold.share == pytest.approx(cold.value / alone.value) and ahead.share is not None
    assert found["catchup.alone.p50"] <= found["catchup.alone.p99"]


def test_readers_give_the_writers_rates_the_latencies_and_the_idle_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MOST_READERS", 1)
    # In the background they would start only where nobody wants a processor.
    monkeypatch.setattr(readers, "processes", lambda count, in_background=False: processes(count))
    few = {name: way._replace(readers=1) for name, way in readers.WAYS.items() if name != "four"}
    monkeypatch.setattr(readers, "WAYS", few)
    report = report_of_run(tmp_path, "readers", "--seconds", "0.02", "--waits", "10", "--idle", "1")
    found = report.measures()
    for api in readers.APIS:
        for way in few:
            assert (found[f"{api}.{way}.per_s"].share or 0) > 0
            assert found[f"{api}.{way}.writer_us"].value > 0 and found[f"{api}.{way}.readers_cpu"].value >= 0
        assert found[f"{api}.alone.per_s"].value > 0
    for whom in ("thread", "coroutine", "process", "background"):
        name = f"wait.{whom}"
        assert found[f"{name}.p50"].value <= found[f"{name}.p99"].value <= found[f"{name}.max"].value
    assert found["idle.percent"].value >= 0
    assert report.checked_messages == 0 and report.verdict.endswith(" counted, and not compared: none is missing")


def test_subscriptions_have_a_rate_a_way_and_the_times_of_many(tmp_path: Path) -> None:
    report = report_of_run(tmp_path, "subscriptions")
    ways = ("batches", "random_order", "submit_ack", "threads", "coroutines")
    assert min(one.value for one in named(report, *(f"{way}.per_s" for way in ways))) > 0
    assert min(one.value for one in named(report, "many.subscribe_ms", "many.receive_and_ack_ms")) > 0
    assert report.checked_messages > 12_000


def test_transactions_stand_beside_an_append_by_as_many_threads(tmp_path: Path) -> None:
    report = report_of_run(tmp_path, "transactions")
    for threads in ("one", "many"):
        for figure in ("per_s", "p50", "processor_us"):
            append, transaction = named(report, f"append.{threads}.{figure}", f"transaction.{threads}.{figure}")
            assert (append.share, transaction.reference) == (None, append.value)
    jobs, results = 20 + 4 * 5, 1 + 3
    assert report.checked_messages == (2 + results) * jobs


def test_transactions_of_one_thread_stay_apart_from_those_of_many(tmp_path: Path) -> None:
    report = report_of_run(tmp_path, "transactions", "--threads", "1", "--calls", "3", "--calls-each", "2")
    assert report.checked_messages == (2 + 1 + 3) * (3 + 2)
    named(report, "transaction.one.p50", "transaction.many.p50")
