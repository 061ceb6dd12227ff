"""`bench compare`: what it says of two reports, and of files that are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stratalog.console.app import app as console_app
from stratalog.perf.commands.app import app
from stratalog.perf.report.files import write_report
from stratalog.perf.report.record import Report
from tests.perf.report.reports import rate, report


def run(tmp_path: Path, before: Report, after: Report, *more: str) -> str:
    files = []
    for name, one in (("a", before), ("b", after)):
        (tmp_path / name).mkdir()
        files.append(str(write_report(tmp_path / name, one)[0]))
    done = CliRunner().invoke(app, ["compare", *files, *more], env={"COLUMNS": "200"})
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_slow_down_of_20_percent_is_named_with_both_figures(tmp_path: Path) -> None:
    old, new = (report(rate("appends", middle * 0.98, middle, middle * 1.02), rate("b")) for middle in (50_000, 40_000))
    said = run(tmp_path, old, new)
    assert "worse" in said and "appends of appends" in said
    assert "50,000 msg/s" in said and "40,000 msg/s" in said and "-20 %" in said
    assert said.splitlines()[-2] == "2 figures: 1 worse, 0 better, 0 with the machine, 1 the same within the spread"


def test_equal_reports_differ_in_nothing(tmp_path: Path) -> None:
    said = run(tmp_path, report(), report())
    assert said.splitlines() == [
        "1 figure: 0 worse, 0 better, 0 with the machine, 1 the same within the spread",
        "Changes below 15 % cannot be seen (the median over the figures; the widest 15 %: appends of append.rate).",
    ]


def test_last_line_says_how_wide_the_spread_is_and_what_one_round_is_worth(tmp_path: Path) -> None:
    one = report(rate("a", 1.0), rate("b", 2.0), rate("wide", 3.0, noise=4.0))
    said = run(tmp_path, one, one).splitlines()[-2:]
    assert said[0].startswith("Changes below 89 % cannot be seen (the median over the figures; the widest 400 %")
    assert said[0].endswith("appends of wide).")
    assert (
        said[1]
        == "A and B have one round of most figures, so their spread is a guess: measure with --repeat 3 or more."
    )


def test_reports_without_a_figure_in_common_have_no_spread(tmp_path: Path) -> None:
    assert run(tmp_path, report(rate("a")), report(rate("b"))).splitlines()[-1].startswith("0 figures: ")


def test_another_machine_code_or_kind_of_report_is_said_first(tmp_path: Path) -> None:
    old = replace(report(), machine={"CPU": "a model, 2 CPUs", "memory": "24 GiB, 8 GiB available", "commit": "abc"})
    new = replace(old, machine={"CPU": "other, 2 CPUs", "memory": "24 GiB, 1 GiB available", "commit": "abd"})
    said = run(tmp_path, old, replace(new, name="all")).splitlines()
    assert said[:3] == [
        "two kinds of reports: host, all",
        "another CPU: a model, 2 CPUs -> other, 2 CPUs", "another commit: abc -> abd",
    ]  # fmt: skip


def test_report_of_a_busy_machine_is_told(tmp_path: Path) -> None:
    quiet, busy = (
        replace(report(), machine={"others": f"others used {part} % of all CPUs; load 1"}) for part in (9, 80)
    )
    said = run(tmp_path, quiet, busy).splitlines()
    assert said[0].startswith("B was measured while others used 80 % of all CPUs")
    assert len(said) == 3


def test_report_with_a_wrong_result_is_told_first(tmp_path: Path) -> None:
    said = run(tmp_path, report(), replace(report(), right=False, verdict="lost 1")).splitlines()
    assert said[0] == "B has a wrong result, so its figures mean little: lost 1"


def test_json_has_every_figure_and_a_change_from_zero_is_null(tmp_path: Path) -> None:
    said = run(tmp_path, report(rate("a"), rate("z", 0.0), rate("x")), report(rate("a"), rate("z", 5.0)), "--json")
    found = json.loads(said)
    assert [(one["name"], one["verdict"], one["change"]) for one in found["changes"]] == [
        ("a", "same", 0.0), ("z", "better", None),
    ]  # fmt: skip
    assert (found["only_before"], found["only_after"]) == (["x"], [])


@pytest.mark.parametrize("text", ["", "{}", None], ids=["empty", "no report", "missing"])
def test_file_that_is_no_report_is_a_usage_error_that_names_it(tmp_path: Path, text: str | None) -> None:
    good = write_report(tmp_path, report())[0]
    bad = tmp_path / "bad.json"
    if text is not None:
        bad.write_text(text)
    for files in ((good, bad), (bad, good)):
        done = CliRunner().invoke(app, ["compare", *map(str, files)], env={"COLUMNS": "200"})
        assert done.exit_code == 2
        assert "bad.json" in done.output


def test_console_has_the_same_commands(tmp_path: Path) -> None:
    write_report(tmp_path, report())
    arguments = ["compare", str(tmp_path / "host.json"), str(tmp_path / "host.json")]
    ways = [(app, arguments), (console_app, ["bench", *arguments])]
    outputs = {CliRunner().invoke(way, given).output for way, given in ways}
    assert len(outputs) == 1 and "1 the same" in outputs.pop()
