"""The base of an experiment that ends in a report: chapters, a summary, advice; on the terminal, as a page, as JSON."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from ..machine.facts import Others, facts
from ..machine.folders import there
from ..report.figures import Figures
from ..report.files import write_report
from ..report.progress import Run
from ..report.record import Advice, Chapter, Report, report_of
from ..report.terminal import show
from .experiment import Experiment, setting

BUSY = 0.1  # of the CPUs: from there on the summary says it


@dataclass(frozen=True, kw_only=True)
class Study:
    """The part of a report that an experiment makes; `Reported` adds the machine, the command the method.

    Attributes:
        summary: the first lines, the answer first.
        right: whether nothing broke a promise; the command's exit code is 1 otherwise.
        verdict: the last line; by default how many messages were compared.
    """

    summary: tuple[str, ...]
    chapters: tuple[Chapter, ...]
    advice: tuple[Advice, ...] = ()
    right: bool = True
    verdict: str = ""


def report_folder() -> Any:
    """The option --report."""
    text = "a folder that is there, for NAME.html, NAME.json and NAME.md (whole reports of a host: by default here)"
    return setting(None, text)


@dataclass(frozen=True, kw_only=True)
class Reported(Experiment):
    """A measurement whose figures are a `Report`; its JSON is the report's.

    Attributes:
        TITLE: of the report.
        WRITES_HERE: whether its files are written to the current folder if --report gives no other one.
    """

    TITLE: ClassVar[str]
    WRITES_HERE: ClassVar[bool] = False

    report: Path | None = report_folder()

    def __post_init__(self) -> None:
        folder = self._folder()
        if folder is not None and not os.access(there(folder), os.W_OK):
            raise ValueError(f"the report cannot be written to {folder}: give another folder by --report")

    def _folder(self) -> Path | None:
        return self.report or (Path.cwd() if self.WRITES_HERE else None)

    @abstractmethod
    def study(self, base: Path, run: Run) -> Study:
        """Measure, in the folder `base`. Raises WrongResult."""

    def reported(self, base: Path, run: Run) -> Report:
        """The report without its method, which is known at the end."""
        told, others = facts(base), Others()
        study = self.study(base, run)
        share, summary = others.share(), study.summary
        if share > BUSY:
            summary += (f"Others used {100 * share:.0f} % of the CPUs meanwhile: measure again when it is quiet.",)
        compared = f"{run.checked_messages:,} messages read and compared with what was written: no difference"
        verdict = study.verdict or compared
        return Report(
            name=self.NAME, title=self.TITLE, summary=summary if study.right else (f"WRONG: {verdict}", *summary),
            advice=study.advice, chapters=study.chapters,
            machine={**told, "others": others.told(), "seed": str(self.seed)},
            right=study.right, verdict=verdict, checked_messages=run.checked_messages,
        )  # fmt: skip

    def measure(self, base: Path, run: Run) -> Figures:
        """The report as a dict."""
        return self.reported(base, run).as_dict()

    def keep(self, figures: Figures) -> list[Path]:
        """Write the three files of the report where they are wanted; returns them."""
        folder = self._folder()
        return [] if folder is None else write_report(folder, report_of(figures, self.NAME))

    def show(self, figures: Figures, console: Console) -> None:
        """Show the summary, the advice, and each chapter's measures."""
        show(report_of(figures, self.NAME), console)

    def verdict(self, figures: Figures) -> tuple[bool, str]:
        """Whether all is right, and the last line."""
        return figures["right"], figures["verdict"]
