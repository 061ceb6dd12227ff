"""`bench latency` in its short form."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from stratalog.perf.commands.app import app
from stratalog.perf.experiments.latency import KINDS
from stratalog.perf.report.files import read_report
from stratalog.perf.report.markdown import markdown


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
    assert any(line.startswith("Appends: ") for line in done.output.splitlines()[:2])
    assert list((tmp_path / "runs").iterdir()) == []


def test_more_steps_than_a_rate_can_double_are_a_usage_error() -> None:
    done = CliRunner().invoke(app, ["latency", "--short", "--steps", "2000"], env={"COLUMNS": "200"})
    assert done.exit_code == 2 and "--steps" in done.output
