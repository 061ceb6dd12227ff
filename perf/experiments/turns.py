"""Turns: calls of this code and of another checkout's, each in turn, in one process."""

from __future__ import annotations

import gc
import random
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, ClassVar

from ..machine.checkouts import HERE, load_store
from ..report.progress import Run
from ..report.record import Chapter
from ..workload.checker import WrongResult
from ..workload.stream_calls import CALLS, Kind, Side
from .experiment import setting
from .parts import Count, Part, measured
from .reported import Reported, Study

NEW, OLD, CONTROL = "this code", "the other", "the other again"
WARM_PART = 20  # of the turns, one in so many comes before those that count
CONTROLLED: dict[str, Any] = {"beside_what": "the other code beside itself", "beside_is_store": True}
COUNTS = (
    Count(figure="speed", what="", unit="x", beside=".control", **CONTROLLED,
          meaning="the other code's median over this one's: above 1 this code is faster"),
    Count(figure="mean_speed", what="", unit="x", beside=".mean_control", **CONTROLLED),
    Count(figure="us", what="", unit="us", better="lower", beside=".other_us", beside_what="the other code",
          beside_is_store=True),
)  # fmt: skip
CHAPTERS = {
    "speed": (
        "Speed, by medians",
        "The other code over this one; the other code beside itself is the noise.",
    ),
    "mean_speed": ("Speed, by means", "The same of means without the slowest tenth."),
    "us": ("Medians", "Times of this code, beside the other."),
}


@dataclass(frozen=True, kw_only=True)
class Turns(Reported):
    """The speed of this code beside another checkout's: the same calls in turn in one process, one store each.

    A second copy of the other code is the control: how far it is from 1 is what the machine's noise makes.
    """

    NAME: ClassVar[str] = "turns"
    TITLE: ClassVar[str] = "This code beside another checkout's"
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

    def study(self, base: Path, run: Run) -> Study:
        """A measure for each call, beside the other code, and one that says what the noise is."""
        calls = {name: call for name, call in CALLS.items() if self.only in name}
        if not calls:
            return Study(summary=(f"No call has {self.only!r} in its name.",), chapters=())
        with self._stores(base, run) as stores:
            parts = [Part(name, partial(self._turns, call, stores, run), COUNTS, name) for name, call in calls.items()]
            found = measured(parts, 1, run)
        speeds = {name: found[f"{name}.speed"] for name in calls}
        slowest = min(speeds.values(), key=lambda one: one.value)
        off = max(abs((one.reference or 1) - 1) for one in speeds.values())
        line = f"Slowest: {slowest.what}, {slowest.value:.3f} x; the control is off by {off:.3f} at the most."
        chapters = tuple(
            Chapter(title=title, text=text, measures=tuple(found[f"{name}.{figure}"] for name in calls))
            for figure, (title, text) in CHAPTERS.items()
        )
        return Study(summary=(line,), chapters=chapters)

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

    def _turns(self, kind: Kind, stores: dict[str, Side], run: Run) -> dict[str, float]:
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


def _compared(found: list[list[Any]]) -> int:
    """The number of compared messages of a turn. Raises WrongResult if two codes gave different ones."""
    if any(one != found[0] for one in found):
        raise WrongResult("two checkouts gave different messages for the same call")
    return len(found[0]) * (len(found) - 1)


def _figures(taken: dict[str, list[int]]) -> dict[str, float]:
    """The figures of COUNTS, by times in ascending order."""
    median = {name: statistics.median(times) for name, times in taken.items()}
    mean = {name: statistics.mean(times[: max(1, len(times) * 9 // 10)]) for name, times in taken.items()}
    return {
        "turns": len(taken[NEW]),
        "us": median[NEW] / 1e3,
        "other_us": median[OLD] / 1e3,
        "speed": median[OLD] / median[NEW],
        "control": median[OLD] / median[CONTROL],
        "mean_speed": mean[OLD] / mean[NEW],
        "mean_control": mean[OLD] / mean[CONTROL],
    }
