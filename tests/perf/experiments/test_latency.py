"""`bench latency` in its short form, and its curves made of given figures."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from stratalog.perf.commands.app import app
from stratalog.perf.experiments.latency import KINDS, chapter, summary, sustained
from stratalog.perf.report.files import read_report
from stratalog.perf.report.markdown import markdown


def step(rate: float, reached: float | None = None, p50: float = 100.0) -> dict[str, float]:
    return {
        "per_s": rate if reached is None else reached,
        "p50": p50,
        "p99": 5 * p50,
        "p99.9": 9 * p50,
        "max": 10 * p50,
    }


def test_short_run_has_a_curve_and_every_measure_of_each_kind(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    options = ["--dir", str(tmp_path / "runs"), "--report", str(tmp_path)]
    done = CliRunner().invoke(app, ["latency", "--short", *options], env={"COLUMNS": "200"})
    assert done.exit_code == 0, (done.output, done.exception)
    report = read_report(tmp_path / "latency.json")
    assert [len(one.charts) for one in report.chapters] == [1, 1, 1]
    measures = report.measures()
    for kind in KINDS:
        assert {f"latency.{kind}.reached", f"latency.{kind}.sustained", f"latency.{kind}.500.p99.9"} <= measures.keys()
    assert "coordinated omission" in report.how and "coordinated omission" in markdown(report)
    assert done.output.splitlines()[0].startswith("Appends: ")
    assert list((tmp_path / "runs").iterdir()) == []


def test_more_steps_than_a_rate_can_double_are_a_usage_error() -> None:
    done = CliRunner().invoke(app, ["latency", "--short", "--steps", "2000"], env={"COLUMNS": "200"})
    assert done.exit_code == 2 and "--steps" in done.output


def test_rate_whose_answers_keep_up_is_sustained() -> None:
    assert sustained(1_000, step(1_000, 950)) and not sustained(1_000, step(1_000, 850))


def test_curve_ends_where_every_round_has_been_and_tells_the_most() -> None:
    rounds = [
        {1_000: step(1_000), 2_000: step(2_000, p50=200.0), 4_000: step(4_000, 2_500, p50=90_000.0)},
        {1_000: step(1_000, p50=120.0), 2_000: step(2_000, 1_500, p50=70_000.0)},
        {1_000: step(1_000, p50=140.0), 2_000: step(2_000, p50=300.0), 4_000: step(4_000, 2_700, p50=95_000.0)},
    ]
    found = chapter("append", rounds)
    measures = {one.name: one for one in found.measures}
    assert found.charts[0].x == (1_000.0, 2_000.0)
    assert found.charts[0].lines["p50"] == (120.0, 300.0)
    assert measures["latency.append.reached"].values == (2_500.0, 1_500.0, 2_700.0)
    assert measures["latency.append.sustained"].values == (2_000.0, 1_000.0, 2_000.0)
    assert measures["latency.append.1000.p50"].better == "lower"
    assert measures["latency.append.2000.p50"].better == "neither"  # one round did not sustain it
    assert "latency.append.4000.p50" not in measures
    line = summary([found, chapter("read", rounds), chapter("job", rounds)])[0]
    waits = "a caller waits p50 120 us, p99 600 us, p99.9 1,080 us."
    assert line == f"Appends: 2,500 a second at the most; at 1,000 a second {waits}"


def test_store_that_sustains_nothing_is_said_so_without_a_wait() -> None:
    rounds = [{500: step(500, 10, p50=1e6)}]
    found = chapter("job", rounds)
    assert summary([chapter("append", rounds), chapter("read", rounds), found])[2] == "Jobs: 10 a second at the most."
