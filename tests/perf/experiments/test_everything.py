"""`bench all` in its short form: every chapter in one report, which compares with itself and with another run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stratalog import StoreFull
from stratalog.perf.commands.app import app
from stratalog.perf.experiments import endpoint as endpoint_module
from stratalog.perf.experiments.endpoint import Endpoint, NoEndpoint
from stratalog.perf.experiments.everything import All
from stratalog.perf.experiments.growth import Growth
from stratalog.perf.experiments.host import Host
from stratalog.perf.experiments.latency import Latency
from stratalog.perf.experiments.reported import Study
from stratalog.perf.report.files import read_report
from stratalog.perf.report.progress import NOWHERE, Run
from stratalog.perf.report.record import Chapter, Report
from tests.browser import DESKTOP, PHONE, complaints
from tests.perf.report.reports import rate


def known(self: Host, base: Path, run: Run) -> Study:
    """Another test runs `host`."""
    chapters = (Chapter(title="Appends", text="a", measures=(rate("store.append"),)),)
    return Study(summary=("Durable messages of 1 KiB: many.",), chapters=chapters)


def missing() -> None:
    raise NoEndpoint("it needs the extra")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a short run's report."""
    made = tmp_path_factory.mktemp("all")
    (made / "runs").mkdir()
    options = ["--dir", str(made / "runs"), "--report", str(made)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Host, "study", known)
        done = CliRunner().invoke(app, ["all", "--short", *options], env={"COLUMNS": "200"})
    assert done.exit_code == 0, (done.output, done.exception)
    assert list((made / "runs").iterdir()) == []
    yield made


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return read_report(folder / "all.json")


def test_it_has_the_chapters_of_every_part_and_no_measure_twice(report: Report) -> None:
    names = report.measures().keys()
    firsts = ("store.append", "latency.append.", "latency.job.", "endpoint.send.", "endpoint.receive.", "growth.")
    for first in firsts:
        assert any(name.startswith(first) for name in names), first
    titles = [chapter.title for chapter in report.chapters]
    assert len(titles) == len(set(titles)) and "Appends: latency by rate" in titles
    assert "Endpoint: durable sends, latency by rate" in titles
    assert any(line.startswith("Durable messages") for line in report.summary)
    assert any("costs most" in line for line in report.summary)


def test_it_compares_with_itself_and_nothing_moved(folder: Path) -> None:
    done = CliRunner().invoke(app, ["compare", *[str(folder / "all.json")] * 2], env={"COLUMNS": "200"})
    assert done.exit_code == 0 and "0 worse, 0 better, 0 with the machine" in done.output


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_page_has_no_complaint_of_the_browser(folder: Path, tmp_path: Path, size: tuple[int, int]) -> None:
    assert complaints((folder / "all.html").as_uri(), tmp_path / "home", size) == []


def test_part_that_fails_leaves_the_others_their_chapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Latency, base: Path, run: Run) -> Study:
        raise StoreFull("no space for another segment")

    monkeypatch.setattr(Host, "study", known)
    monkeypatch.setattr(Latency, "study", full)
    monkeypatch.setattr(endpoint_module, "need_endpoint", missing)
    study = All(minutes=0.001, report=tmp_path).study(tmp_path, Run("all", NOWHERE))
    assert "Missing here: the chapters of `latency` (StoreFull: no space for another segment)." in study.summary
    titles = [chapter.title for chapter in study.chapters]
    assert titles[0] == "Appends" and len(titles) > 1


def test_parts_take_less_than_the_minutes_that_are_given() -> None:
    host, latency, endpoint, growth = All(minutes=10.0).parts()
    assert isinstance(host, Host) and isinstance(latency, Latency) and isinstance(growth, Growth)
    assert isinstance(endpoint, Endpoint)
    assert host.minutes == 4.5
    assert latency.seconds * latency.steps * 3 * latency.repeat == pytest.approx(0.2 * 600)
    assert endpoint.seconds * endpoint.steps * 3 * endpoint.repeat == pytest.approx(0.1 * 600)


def test_endpoint_is_said_to_be_missing_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (Host, Latency, Growth):
        monkeypatch.setattr(part, "study", known)
    monkeypatch.setattr(endpoint_module, "need_endpoint", missing)
    study = All(minutes=0.001, report=tmp_path).study(tmp_path, Run("all", NOWHERE))
    assert "Missing here: the chapters of `endpoint` (NoEndpoint: it needs the extra)." in study.summary


def test_folder_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no folder"):
        All(pmem=Path("/nowhere"))
