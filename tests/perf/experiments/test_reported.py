"""What a measurement declares, what becomes of it in a report, and the verdict at its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from stratalog import StoreFull
from stratalog.perf.commands.app import command_of
from stratalog.perf.experiments.parts import Count, Part, measured
from stratalog.perf.experiments.reported import Reported, Study
from stratalog.perf.report.files import read_report
from stratalog.perf.report.progress import Run
from stratalog.perf.report.record import Chapter
from tests.perf.report.reports import rate


@dataclass(frozen=True, kw_only=True)
class Tried(Reported):
    """A report of one figure."""

    NAME: ClassVar[str] = "tried"
    TITLE: ClassVar[str] = "Tried"
    METHOD: ClassVar[str] = "not at all"

    def need_bytes(self) -> float:
        """Nothing."""
        return 0

    def study(self, base: Path, run: Run) -> Study:
        """One figure; two messages compared."""
        run.checked(2)
        return Study(summary=("The answer.",), chapters=(Chapter(title="c", text="t", measures=(rate("a"),)),))


class Wrong(Tried):
    """A message is lost."""

    def study(self, base: Path, run: Run) -> Study:
        """One message less."""
        return Study(summary=("The answer.",), chapters=(), right=False, verdict="lost 1")


class Here(Tried):
    """Written to the current folder."""

    WRITES_HERE: ClassVar[bool] = True


def called(kind: type[Tried], tmp_path: Path, *arguments: str, code: int = 0) -> str:
    tried = typer.Typer()
    tried.command("tried")(command_of(kind))
    (tmp_path / "runs").mkdir()
    done = CliRunner().invoke(tried, [*arguments, "--dir", str(tmp_path / "runs")], env={"COLUMNS": "200"})
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def test_summary_is_first_the_figures_follow_and_the_last_line_says_what_was_compared(tmp_path: Path) -> None:
    said = called(Tried, tmp_path).splitlines()
    assert said[0] == "The answer."
    assert said[-1] == "2 messages read and compared with what was written: no difference"
    assert any("appends of a" in line for line in said) and any(line.startswith("measured by `") for line in said)


def test_wrong_result_is_said_first_and_last_and_ends_with_exit_code_1(tmp_path: Path) -> None:
    said = called(Wrong, tmp_path, "--report", str(tmp_path), code=1).splitlines()
    assert (said[0], said[1], said[-1]) == ("WRONG: lost 1", "The answer.", "lost 1")
    kept = read_report(tmp_path / "tried.json")
    assert (kept.right, kept.verdict, kept.summary[0]) == (False, "lost 1", "WRONG: lost 1")
    for name in ("tried.html", "tried.md"):
        assert (tmp_path / name).read_text().count("lost 1") == 2


def test_json_is_that_of_the_report(tmp_path: Path) -> None:
    found = json.loads(called(Tried, tmp_path, "--json=-", "--report", str(tmp_path)))
    assert found == json.loads((tmp_path / "tried.json").read_text())
    assert (found["right"], found["checked_messages"]) == (True, 2)
    assert found["how"].startswith("measured by `")


@pytest.mark.parametrize(("kind", "written"), [(Tried, 0), (Here, 3)])
def test_files_are_written_here_by_whole_reports_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Tried], written: int
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    called(kind, tmp_path)
    assert len(list((tmp_path / "here").iterdir())) == written


def test_folder_of_a_report_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no folder"):
        Tried(report=tmp_path / "missing")


# -- parts --------------------------------------------------------------------------------------------------


def quiet() -> Run:
    return Run("x", Console(quiet=True))


def rounds(*figures: Mapping[str, float]) -> Callable[[], Mapping[str, float]]:
    left = list(figures)
    return lambda: left.pop(0)


def test_figure_stands_beside_one_of_its_own_part_that_is_no_measure() -> None:
    beside = Count(figure="rate", what="rate", unit="msg/s", beside=".device", beside_what="the device")
    part = Part("a.1", rounds({"rate": 5, "device": 8}, {"rate": 5, "device": 12}), (beside,), what="one thread")
    (found,) = measured([part], 2, quiet()).values()
    assert (found.name, found.what, found.share, found.reference) == ("a.1.rate", "one thread: rate", 0.5, 10)
    assert not found.reference_is_store


def test_figure_that_a_part_did_not_find_has_no_measure_and_is_no_reference() -> None:
    own = Count(figure="rate", what="rate", unit="msg/s", beside="peer.rate", beside_what="a peer")
    parts = [
        Part("us", rounds({"rate": 5}), (own,)),
        Part("peer", rounds({}), (Count(figure="rate", what="r", unit=""),)),
    ]
    found = measured(parts, 1, quiet())
    assert list(found) == ["us.rate"]
    assert (found["us.rate"].reference, found["us.rate"].reference_what) == (None, "")


def test_part_that_is_refused_ends_the_measurement_unless_failures_are_kept() -> None:
    def full() -> Mapping[str, float]:
        raise StoreFull("no space")

    part = Part("a", full, (Count(figure="rate", what="r", unit=""),))
    with pytest.raises(StoreFull):
        measured([part], 2, quiet())
    failed: dict[str, str] = {}
    assert measured([part], 2, quiet(), failed) == {}
    assert failed == {"a": "StoreFull: no space"}


def test_two_parts_of_one_name_are_refused_before_anything_runs() -> None:
    parts = [Part("a", rounds(), ()), Part("b", rounds(), ()), Part("a", rounds(), ())]
    with pytest.raises(ValueError, match="two parts have the name a"):
        measured(parts, 1, quiet())


def test_verdict_tells_what_was_only_counted_apart() -> None:
    run = Run("toy")
    run.counted(3)
    assert run.verdict() == "3 messages counted, and not compared: none is missing"
    run.checked(1)
    assert run.verdict() == (
        "1 message read and compared with what was written: no difference; "
        "3 messages counted, and not compared: none is missing"
    )
