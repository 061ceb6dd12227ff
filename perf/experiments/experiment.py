"""The base of an experiment: its options as fields, one method that measures, one that shows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from ..report.figures import Figures, median_of
from ..report.progress import Run


def setting(
    default: Any, help: str, *, short: Any = None, least: float | None = None, option: str | None = None
) -> Any:
    """An option of an experiment. `short`: its value in a --short run, if the caller gives none.

    A field whose name ends in `_bytes` takes a human size ("64MiB"); its option has no `_bytes`. `option` is the
    option's name where it is another than the field's.
    """
    return field(default=default, metadata={"help": help, "short": short, "least": least, "option": option})


def repeats(default: int = 3) -> Any:
    """The option --repeat."""
    return setting(default, "rounds; the figures are their medians", short=1, least=1)


def time_limit(default: int = 90) -> Any:
    """The option --limit of experiments with rounds that take long on a busy machine."""
    return setting(default, "seconds; but for the first, no round begins that would end later", least=1, option="limit")


def queues(default: int = 20_000, short: int = 200) -> Any:
    """The option --queues; the default is the contest's."""
    return setting(default, "queues, unevenly filled", short=short, least=1)


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """One measurement. Its fields are the options of its command, its docstring is the command's help.

    Attributes:
        NAME: of the command.
        METHOD: how it measures, in a few words, for the last lines of its output.
    """

    NAME: ClassVar[str]
    METHOD: ClassVar[str]

    seed: int = setting(2021, "the same seed gives the same messages", least=0)

    @abstractmethod
    def need_bytes(self) -> float:
        """Free space that the run takes at most."""

    @abstractmethod
    def measure(self, base: Path, run: Run) -> Figures:
        """All figures, ready for JSON. Raises WrongResult if a read gave other bytes than those written."""

    @abstractmethod
    def show(self, figures: Figures, console: Console) -> None:
        """Show the figures as tables."""

    def keep(self, figures: Figures) -> list[Path]:
        """Write the files that the options ask for, after the figures are shown; returns them. Raises OSError."""
        return []

    def verdict(self, figures: Figures) -> tuple[bool, str]:
        """Whether all is right, and the last line of the output, which says what was compared."""
        return True, f"{figures['checked_messages']:,} messages read and compared with what was written: no difference"


def by_turns(
    ways: Mapping[str, Callable[[], Figures]], repeat: int, run: Run, limit_s: float = math.inf
) -> list[dict[str, Figures]]:
    """Run each way once a round. Every second round goes backwards, so that no way always follows the same one.

    `limit_s`, of the run's time: a round that is as long as the one before and would end later is not begun.
    """
    run.expect(repeat * len(ways))
    rounds: list[dict[str, Figures]] = []
    for number in range(repeat):
        found, began_s = {}, run.seconds
        for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
            found[name] = ways[name]()
            run.one_done()
        rounds.append({name: found[name] for name in ways})
        if 2 * run.seconds - began_s > limit_s and number + 1 < repeat:
            run.expect((number + 1 - repeat) * len(ways))
            break
    return rounds


def medians(
    ways: Mapping[str, Callable[[], Figures]], repeat: int, run: Run, limit_s: float = math.inf
) -> dict[str, Figures]:
    """The medians of each way over the rounds of `by_turns`."""
    rounds = by_turns(ways, repeat, run, limit_s)
    if limit_s < math.inf:
        run.rounds = len(rounds)
    found: dict[str, Figures] = median_of(rounds)
    return found
