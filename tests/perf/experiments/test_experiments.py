"""Every measurement runs in its short form and gives the figures that its readers look for."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from stratalog.perf.commands.app import app
from stratalog.perf.experiments import hotcold_run, readers
from stratalog.perf.workload.checker import Counts
from stratalog.perf.workload.phases import ReadSide
from tests.perf.short import figures_of

HOTCOLD_KEYS = {
    "lost", "duplicated", "out_of_order", "corrupted", "wrong_offsets", "seed", "config", "total_s", "phase1",
    "phase2", "reads", "write_amplification", "forces", "mean_batch", "cpu_s", "peak_rss_mb",
    "raw_device_mb_per_s", "raw_device_ratio", "thread_floor_messages_per_s", "thread_floor_ratio",
    "thread_floor_bare_messages_per_s", "thread_floor_all_cpus_messages_per_s", "thread_floor_all_cpus_ratio",
    "prewrite_s", "prewritten_mb", "close_s", "total_s_with_prewrite_and_close", "write_amplification_with_footers",
    "write_amplification_with_prewriting", "kernel_write_mb", "stats", "how", "checked_messages",
}  # fmt: skip
PHASE_KEYS = {"seconds", "messages", "bytes", "messages_per_s", "mb_per_s", "latency_us"}


@pytest.mark.parametrize("api", ["blocking", "pipelined", "batch", "asyncio"])
def test_hotcold_loses_nothing_and_gives_every_key(tmp_path: Path, api: str) -> None:
    figures = figures_of(tmp_path, "hotcold", "--size", "3MiB", "--api", api, "--seed", "5")
    assert figures.keys() >= HOTCOLD_KEYS
    assert figures["phase1"].keys() >= PHASE_KEYS
    assert figures["phase2"].keys() >= PHASE_KEYS
    assert figures["phase1"]["latency_us"].keys() == {"p50", "p99", "p999"}
    assert figures["reads"].keys() >= {"messages", "bytes", "messages_per_s", "device_mb"}
    assert [figures[name] for name in hotcold_run.COUNT_NAMES] == [0] * 5
    raw, floor = figures["raw_device_mb_per_s"], figures["thread_floor_messages_per_s"]
    assert figures["raw_device_ratio"] == pytest.approx(figures["phase1"]["mb_per_s"] / raw)
    if floor is not None:
        assert figures["thread_floor_ratio"] == pytest.approx(figures["phase1"]["messages_per_s"] / floor)
    opened = figures["prewrite_s"] + figures["total_s"] + figures["close_s"]
    assert figures["total_s_with_prewrite_and_close"] == pytest.approx(opened)
    assert (figures["thread_floor_ratio"] is not None) == (api in ("blocking", "asyncio"))
    assert (figures["thread_floor_all_cpus_ratio"] is not None) == (api == "blocking")  # the others are on all anyway
    assert figures["config"]["drive"]["api"] == api
    written = figures["phase1"]["messages"] + figures["phase2"]["messages"]
    assert figures["phase2"]["messages"] < figures["reads"]["messages"] < written == figures["checked_messages"]


def test_hotcold_takes_medians_and_passes_settings_on(tmp_path: Path) -> None:
    figures = figures_of(
        tmp_path, "hotcold", "--size", "1MiB", "--repeat", "2", "--no-reference", "--no-prewrite",
        "--lanes", "2", "--alignment", "trim", "--durability", "os", "--sizes", "small", "--threads", "3",
        "--cpus", "1",
    )  # fmt: skip
    assert figures["config"]["cpus"] == 1
    assert len(figures["runs"]) == 2
    assert "raw_device_ratio" not in figures
    store = figures["config"]["store"]
    assert (store["lanes"], store["alignment"], store["durability"]) == (2, "trim", "os")
    assert store["prewrite_bytes"] == 0


@pytest.mark.parametrize(("counts", "code"), [(Counts(), 0), (Counts(lost=1, corrupted=2), 1)], ids=["clean", "not"])
def test_last_line_of_hotcold_has_the_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts, code: int
) -> None:
    monkeypatch.setattr(ReadSide, "finish", lambda self: counts)
    done = CliRunner().invoke(app, ["hotcold", "--short", "--size", "1MiB", "--no-reference", "--dir", str(tmp_path)])
    assert done.exit_code == code
    lost, corrupted = counts.lost, counts.corrupted
    expected = f"lost {lost}  duplicated 0  out_of_order 0  corrupted {corrupted}  wrong_offsets 0"
    assert done.output.splitlines()[-1] == expected


def test_fewer_queues_than_topics_are_no_error(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "hotcold", "--size", "1MiB", "--no-reference", "--queues", "3", "--threads", "3")
    assert figures["stats"]["streams"] == 3


def test_apis_has_a_row_a_way_to_append(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "apis")
    rows = {(row["append"].split(",")[0], row["sizes"], row["cpus"]): row for row in figures["rows"]}
    assert rows.keys() == {
        ("append", "contest", "1"), ("append", "contest", "all"), ("append", "small", "1"),
        ("append_async", "contest", "all"), ("submit", "contest", "all"), ("append_batch of 256", "contest", "all"),
    }  # fmt: skip
    for (append, _, _), row in rows.items():
        assert (row["thread_floor_ratio"] is not None) == (append in ("append", "append_async"))
        assert row["raw_device_ratio"] == pytest.approx(row["mb_per_s"] / row["raw_device_mb_per_s"])
    assert figures["checked_messages"] == sum(row["checked_messages"] for row in figures["rows"]) > 0


def test_hotcold_refuses_what_is_no_size() -> None:
    assert CliRunner().invoke(app, ["hotcold", "--size", "much"]).exit_code == 2
    assert CliRunner().invoke(app, ["hotcold", "--sizes", "odd"]).exit_code == 2


def test_alignment_compares_adaptive_with_both(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "alignment")
    assert {row["alignment"] for row in figures["rows"]} == {"pad", "trim", "adaptive"}
    assert figures["rows"][0].keys() >= {"mb_per_s", "write_amplification", "held_requests", "producers"}
    assert figures["adaptive"][0].keys() >= {"throughput_over_best", "amplification_over_trim"}
    for row in figures["rows"]:
        log, footers = row["write_amplification"], row["write_amplification_with_footers"]
        assert 1 < log <= footers < row["write_amplification_with_prewriting"]


def test_prewrite_has_device_and_store(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "prewrite", "--size", "1MiB")
    assert {row["file"] for row in figures["raw"]} == {"prewritten", "fallocated", "growing"}
    assert {row["segments"] for row in figures["store"]} == {"pre-written", "made in the run"}


def test_lanes_are_beside_as_many_writers(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "lanes", "--size", "1MiB")
    assert {row["lanes"] for row in figures["rows"]} == {1, 2, 4}
    assert all(row["raw_device_ratio"] > 0 for row in figures["rows"])


def test_memory_gives_bytes_a_message(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "memory")
    assert figures["config"]["messages"] == figures["checked_messages"] == 20_000
    metadata = figures["disk_metadata_bytes_per_message"]
    assert 10 < metadata < 100
    assert metadata == pytest.approx(
        figures["disk_frames_bytes_per_message"] + figures["disk_footers_bytes_per_message"]
    )
    # 20,000 messages are one segment that is cleanly closed: it has no footer yet.
    assert figures["disk_bytes_per_message"] == pytest.approx(metadata + figures["disk_padding_bytes_per_message"])
    assert figures["open_table_bytes_per_message"] > 0


def test_waits_gives_the_rates_the_latencies_and_the_memory_of_a_coroutine(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "waits")
    assert [row["waiting"] for row in figures["rows"]] == [0, 20]
    assert figures["rows"][0]["of_alone"] == 1
    for way in ("thread", "coroutine"):
        assert figures[way]["p50_us"] <= figures[way]["p99_us"] <= figures[way]["max_us"]
    memory = figures["memory"]
    assert 0 < memory["bytes_each"] < memory["with_task"]
    assert memory["threads"] <= 1  # the one for time-outs, if it is not there yet


def test_readers_gives_the_rates_the_latency_and_the_idle_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BESIDE", [(of, count) for of, count in readers.BESIDE if count == 1])
    monkeypatch.setattr(readers, "MOST_READERS", 1)  # those in the background start where nobody wants a processor
    figures = figures_of(tmp_path, "readers", "--seconds", "0.02", "--waits", "10", "--idle", "1")
    assert [(row["api"], row["readers"], row["of"]) for row in figures["rows"]] == [
        (api, count, of)
        for api in ("blocking", "batch", "columns")
        for count, of in ((0, None), *((1, of) for of in ("model", "store", "background")))
    ]
    for row in figures["rows"]:
        assert row["messages_per_s"] > 0 and row["writer_us"] > 0
        assert (row["of_alone"] is not None) == (row["readers"] > 0)
        assert row["readers"] > 0 or row["readers_cpu"] == 0
        assert (row["of_model"] is not None) == (row["of"] in ("store", "background"))
    assert {row["slices"] for row in figures["rows"]} == {1, 4}  # alone: before, between and behind the others
    assert figures["latency"].keys() == figures["background_latency"].keys() == {"p50_us", "p99_us", "max_us"}
    assert figures["idle"]["processes"] == 1
    assert figures["checked_messages"] > 0


def test_connections_give_memory_and_the_times_of_another_client(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "connections")
    assert [row["beside"] for row in figures["rows"]] == ["nobody", "20 idle clients", "and their heartbeats"]
    assert figures["descriptors"] >= 3.0
    assert figures["checked_messages"] == figures["answered"] == 4 + 3 * 20


def test_endpoint_gives_its_rates_beside_those_of_a_handler_that_does_nothing(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "endpoint")
    names = ["nothing", "send, os", "receive and ack, os", "send, force", "receive and ack, force"]
    assert [row["handler"] for row in figures["rows"]] == names
    assert figures["start_ms"] > 0


def test_remote_gives_rates_beside_a_trivial_handler(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "remote")
    ways = [row["way"] for row in figures["rows"]]
    assert ways[:3] == ["a trivial handler, 64 at once", "append_batch of 1,000", "submit"]
    assert all(row["per_s"] > 0 and row["messages"] > 0 for row in figures["rows"])
    assert figures["checked_messages"] == sum(row["messages"] for row in figures["rows"][1:])
