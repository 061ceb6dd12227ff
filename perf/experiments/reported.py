"""The base of an experiment that ends in a report: chapters, a summary, advice; on the terminal, as a page, as JSON."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..machine.facts import Others, facts
from ..machine.folders import there
from ..report.files import write_report
from ..report.progress import Run
from ..report.record import Advice, Chapter, Report
from .experiment import setting

BUSY = 0.1  # of the CPUs: from there on the summary says it


@dataclass(frozen=True, kw_only=True)
class Study:
    """The part of a report that an experiment makes; `Reported` adds the machine, the command the method.

    Attributes:
        summary: the first lines, the answer first.
        right: whether nothing broke a promise; the command's exit code is 1 otherwise.
        verdict: the last line; by default how many messages were compared, or only counted.
    """

    summary: tuple[str, ...]
    chapters: tuple[Chapter, ...]
    advice: tuple[Advice, ...] = ()
    right: bool = True
    verdict: str = ""


def _check_writable(folder: Path) -> None:
    """Raises ValueError before the work if its report would find no place. Rights alone do not say it."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        why = error.strerror or error
        raise ValueError(f"the report cannot be written to {folder} ({why}): give another folder by --report") from None


@dataclass(frozen=True, kw_only=True)
class Reported(ABC):
    """One measurement. Its fields are the options of its command, its docstring is the command's help; its figures are
    a `Report`, whose JSON is the command's.

    Attributes:
        NAME: of the command.
        TITLE: of the report.
        METHOD: how it measures, in a few words, for the last lines of its output.
        WRITES_HERE: whether its files are written to the current folder if --report gives no other one.
    """

    NAME: ClassVar[str]
    TITLE: ClassVar[str]
    METHOD: ClassVar[str]
    WRITES_HERE: ClassVar[bool] = False

    seed: int = setting(2021, "the same seed gives the same messages", least=0)
    report: Path | None = setting(
        None, "a folder that is there, for NAME.html, NAME.json and NAME.md (whole reports of a host: by default here)"
    )

    def __post_init__(self) -> None:
        folder = self._folder()
        if folder is not None:
            _check_writable(there(folder))

    def _folder(self) -> Path | None:
        return self.report or (Path.cwd() if self.WRITES_HERE else None)

    @abstractmethod
    def need_bytes(self) -> float:
        """Free space that the run takes at most."""

    @abstractmethod
    def study(self, base: Path, run: Run) -> Study:
        """Measure, in the folder `base`. Raises WrongResult."""

    def reported(self, base: Path, run: Run) -> Report:
        """The report without its method, which is known at the end."""
        told, others = facts(base), Others()
        study = self.study(base, run)
        share, summary = others.share(), study.summary
        if share > BUSY:
            busy = f"Other programs used {100 * share:.0f} % of the CPUs meanwhile: measure again when it is quiet."
            summary = (busy, *summary)
        verdict = study.verdict or run.verdict()
        return Report(
            name=self.NAME, title=self.TITLE, summary=summary if study.right else (f"WRONG: {verdict}", *summary),
            advice=study.advice, chapters=study.chapters,
            machine={**told, "others": others.told(), "seed": str(self.seed)},
            right=study.right, verdict=verdict, checked_messages=run.checked_messages,
        )  # fmt: skip

    def keep(self, report: Report) -> list[Path]:
        """Write the three files of the report where they are wanted; returns them. Raises OSError."""
        folder = self._folder()
        return [] if folder is None else write_report(folder, report)
