"""Turns: calls of this code and of another checkout's, each in turn, in one process."""

from __future__ import annotations

import gc
import random
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any, ClassVar

from rich.console import Console

from ..machine.checkouts import HERE, load_store
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.stream_calls import CALLS, Kind, Side
from .experiment import Experiment, setting

NEW, OLD, CONTROL = "this code", "the other", "the other again"
WARM_PART = 20  # of the turns, one in so many comes before those that count


@dataclass(frozen=True, kw_only=True)
class Turns(Experiment):
    """The speed of this code beside another checkout's: the same calls in turn in one process, one store each.

    A second copy of the other code is the control: how far it is from 1 is what the machine's noise makes.
    """

    NAME: ClassVar[str] = "turns"
    METHOD: ClassVar[str] = (
        "one process, a copy of the code and a store a column; each turn makes the call once with each, in a random "
        "order; speed: the other code's median over this one's; `mean` leaves out the slowest tenth"
    )

    against: str = setting("", "the other checkout's folder; nothing: this one, beside itself", short="")
    turns: float = setting(1.0, "as many times the turns that a call has by itself", short=0, least=0)
    only: str = setting("", "calls whose name has this", short="")
    filled: int = setting(200_000, "messages that are there to read", short=4_000, least=2_000)

    def need_bytes(self) -> float:
        """The space of three stores: their first segments, the messages to read, and those that the calls append."""
        return 3 * ((512 << 20) + 600.0 * self.filled + (1_800 << 20) * self.turns)

    def measure(self, base: Path, run: Run) -> Figures:
        """One row for each call."""
        calls = {name: call for name, call in CALLS.items() if self.only in name}
        run.expect(len(calls))
        rows = []
        with self._stores(base, run) as stores:
            for name, call in calls.items():
                rows.append({"call": name, **self._row(call, stores, run)})
                run.one_done()
        return {"rows": rows}

    @contextmanager
    def _stores(self, base: Path, run: Run) -> Iterator[dict[str, Side]]:
        """A store of each code, with the same messages. The seed decides which code is first."""
        other = Path(self.against) if self.against else HERE
        places = [(NEW, HERE), (OLD, other), (CONTROL, other)]
        random.Random(self.seed).shuffle(places)
        with ExitStack() as stack:
            made = {
                name: stack.enter_context(Side(load_store(place), base / str(number)))
                for number, (name, place) in enumerate(places)
            }
            for side in made.values():
                side.fill(self.filled)
            gc.collect()
            gc.freeze()  # else a collection of all that is loaded falls into somebody's call
            stack.callback(gc.unfreeze)
            yield made

    def _row(self, kind: Kind, stores: dict[str, Side], run: Run) -> Figures:
        """One call with each store in turn. The results of the first calls, which do not count, are compared."""
        turns = max(2, round(kind.turns * self.turns))
        warm = turns // WARM_PART + 1
        for side in stores.values():
            side.have_ready(kind.takes * (warm + turns))
        calls = {name: kind.make(side, random.Random(self.seed)) for name, side in stores.items()}
        taken: dict[str, list[int]] = {name: [] for name in calls}
        order, dice = list(calls), random.Random(self.seed)
        for turn in range(warm + turns):
            dice.shuffle(order)
            given = {}
            for name in order:
                began = perf_counter_ns()
                given[name] = calls[name]()
                taken[name].append(perf_counter_ns() - began)
            if kind.takes and not all(map(len, given.values())):
                raise WrongResult("a subscription gave nothing, though it has messages")
            if turn < warm:
                run.checked(_compared([kind.listed(found) for found in given.values()]))
        return _figures({name: sorted(times[warm:]) for name, times in taken.items()})

    def show(self, figures: Figures, console: Console) -> None:
        """Show the table."""
        console.print(report.table("calls by turns, us, and how fast this code is", figures["rows"]))

    def verdict(self, figures: Figures) -> tuple[bool, str]:
        """The slowest call."""
        if not figures["rows"]:
            return True, f"no call has {self.only!r} in its name"
        least = min(figures["rows"], key=lambda row: row["speed"])
        far = max(abs(row["control"] - 1) for row in figures["rows"])
        return True, f"slowest beside the other: {least['call']}, {least['speed']:.3f}; the control is off by {far:.3f}"


def _compared(found: list[list[Any]]) -> int:
    """The number of compared messages of a turn. Raises WrongResult if two codes gave different ones."""
    if any(one != found[0] for one in found):
        raise WrongResult("two checkouts gave different messages for the same call")
    return len(found[0]) * (len(found) - 1)


def _figures(taken: dict[str, list[int]]) -> Figures:
    median = {name: statistics.median(times) for name, times in taken.items()}
    mean = {name: statistics.mean(times[: max(1, len(times) * 9 // 10)]) for name, times in taken.items()}
    return {
        "turns": len(taken[NEW]),
        "this": median[NEW] / 1e3,
        "other": median[OLD] / 1e3,
        "speed": median[OLD] / median[NEW],
        "control": median[OLD] / median[CONTROL],
        "speed, mean": mean[OLD] / mean[NEW],
        "control, mean": mean[OLD] / mean[CONTROL],
    }
