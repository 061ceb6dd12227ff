"""The base of an experiment that ends in a report: chapters, a summary, advice; as a page, as JSON, as Markdown."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from ..machine.facts import Others, facts
from ..machine.folders import there
from ..report import figures as tables
from ..report.figures import Figures
from ..report.files import write_report
from ..report.progress import Run
from ..report.record import Advice, Chapter, Report, report_of
from .experiment import Experiment, setting

BUSY = 0.1  # of the CPUs: from there on the summary says it


@dataclass(frozen=True, kw_only=True)
class Study:
    """The part of a report that an experiment makes; `Reported` adds the machine, the command the method."""

    summary: tuple[str, ...]
    chapters: tuple[Chapter, ...]
    advice: tuple[Advice, ...] = ()


def report_folder() -> Any:
    """The option --report."""
    return setting(None, "a folder that is there, for NAME.html, NAME.json and NAME.md (default: here)")


@dataclass(frozen=True, kw_only=True)
class Reported(Experiment):
    """A measurement whose figures are a `Report`; its JSON is the report's.

    Attributes:
        TITLE: of the report.
    """

    TITLE: ClassVar[str]

    report: Path | None = report_folder()

    def __post_init__(self) -> None:
        folder = there(self.report or Path.cwd())
        if not os.access(folder, os.W_OK):
            raise ValueError(f"the report cannot be written to {folder}: give another folder by --report")

    @abstractmethod
    def study(self, base: Path, run: Run) -> Study:
        """Measure, in the folder `base`. Raises WrongResult."""

    def measure(self, base: Path, run: Run) -> Figures:
        """The report as a dict, without its method, which is known at the end."""
        told, others = facts(base), Others()
        study = self.study(base, run)
        share, summary = others.share(), study.summary
        if share > BUSY:
            busy = f"Other programs used {100 * share:.0f} % of the CPUs meanwhile: measure again when it is quiet."
            summary = (busy, *summary)
        machine = {**told, "others": others.told(), "seed": str(self.seed)}
        return Report(
            name=self.NAME, title=self.TITLE, summary=summary, advice=study.advice, chapters=study.chapters,
            machine=machine,
        ).as_dict()  # fmt: skip

    def keep(self, figures: Figures) -> list[Path]:
        """Write the three files of the report; returns them."""
        return write_report(self.report or Path.cwd(), report_of(figures, self.NAME))

    def show(self, figures: Figures, console: Console) -> None:
        """Show the summary and the advice; all figures are in the files, with their meaning."""
        report = report_of(figures, self.NAME)
        for line in report.summary:
            console.print(line, highlight=False)
        if report.advice:
            rows: list[Figures] = [
                {"setting": f"{one.setting}={one.value}", "why": one.why, "worth here": one.worth}
                for one in report.advice
            ]
            console.print(tables.table("what to set here", rows))
