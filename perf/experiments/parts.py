"""How a measurement is declared: what runs, what of it counts, and beside what.

Each `Part` is run once a round, by turns with all others. Of each of its figures that `counts` names there is a
`Measure`, whose name is "PART.FIGURE". A figure that a part did not find (a peer is not installed) is left out of what
it gives.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...store import StoreError
from ..report.figures import counted
from ..report.progress import Run
from ..report.record import NOISE, Better, Measure
from .experiment import by_turns

OF_THE_STORE = ("store.", "setting.")  # names of measures that a slower store changes
TAILS = {"p50": 0.2, "p99": 0.5, "p99.9": 1.0}  # how much equal runs differ in these


@dataclass(frozen=True, kw_only=True)
class Count:
    """A figure that counts.

    Attributes:
        figure: its name in what the part gives.
        beside: the name ("PART.FIGURE") of any figure that it stands beside; ".FIGURE" is one of the same part. Its
            median over the same rounds is the reference.
        beside_is_store: whether that is a figure of the store, which a slower store changes; by itself where its name
            begins with one of OF_THE_STORE.
    """

    figure: str
    what: str
    unit: str
    meaning: str = ""
    better: Better = "higher"
    beside: str = ""
    beside_what: str = ""
    beside_is_store: bool = False
    noise: float = NOISE


@dataclass(frozen=True)
class Part:
    """What runs: `run()` measures once and gives its figures by name. `what` comes before the words of each count."""

    name: str
    run: Callable[[], Mapping[str, float]]
    counts: tuple[Count, ...]
    what: str = ""


def latencies(what: str, meaning: str, *marks: str) -> tuple[Count, ...]:
    """Counts of latencies in microseconds: by default the median and p99."""
    return tuple(
        Count(figure=mark, what=f"{what}, {mark}", unit="us", better="lower", noise=TAILS[mark],
              meaning=meaning if mark == "p50" else "")
        for mark in (marks or ("p50", "p99"))
    )  # fmt: skip


def measured(
    parts: Sequence[Part], repeat: int, run: Run, failed: dict[str, str] | None = None, limit_s: float = math.inf
) -> dict[str, Measure]:
    """All measures by name, after `repeat` rounds of all parts. References may be of any other part.

    With `failed`, a part that the store or the system refuses is not run again: `failed` gets its name and the reason,
    and its measures are of the rounds before. Without such rounds it has none. Without `failed` it raises what the part
    raised. `limit_s`: no round but the first begins that would end later in the run.
    """
    rounds = by_turns({part.name: _figures(part, failed) for part in parts}, repeat, run, limit_s)
    if limit_s < math.inf:
        run.rounds = len(rounds)
    values: dict[str, tuple[float, ...]] = {}
    for part in parts:
        for figure in dict.fromkeys(name for one in rounds for name in one[part.name]):
            found = (one[part.name].get(figure) for one in rounds)
            values[f"{part.name}.{figure}"] = tuple(float(value) for value in found if value is not None)
    return {
        name: _measure(part, count, values)
        for part in parts
        for count in part.counts
        if values.get(name := f"{part.name}.{count.figure}")
    }


def _figures(part: Part, failed: dict[str, str] | None) -> Callable[[], dict[str, float]]:
    def figures() -> dict[str, float]:
        if failed is None:
            return dict(part.run())
        if part.name in failed:
            return {}
        try:
            return dict(part.run())
        except (StoreError, OSError) as error:
            failed[part.name] = f"{type(error).__name__}: {error}"
            return {}

    return figures


def _measure(part: Part, count: Count, values: Mapping[str, tuple[float, ...]]) -> Measure:
    """The measure of a count. A latency says of how many calls it is: those of the round with the fewest."""
    name, meaning = f"{part.name}.{count.figure}", count.meaning
    if count.figure in TAILS and (calls := values.get(f"{part.name}.calls")):
        meaning = f"{meaning}; of {counted(int(min(calls)), 'call')}".removeprefix("; ")
    beside = f"{part.name}{count.beside}" if count.beside.startswith(".") else count.beside
    reference = values.get(beside)
    return Measure(
        name=name, what=": ".join(filter(None, (part.what, count.what))), unit=count.unit, values=values[name],
        better=count.better, meaning=meaning, noise=count.noise,
        reference=statistics.median(reference) if reference else None,
        reference_what=count.beside_what if reference else "",
        reference_is_store=bool(reference) and (count.beside_is_store or beside.startswith(OF_THE_STORE)),
    )  # fmt: skip


def of(measures: Mapping[str, Measure], *prefixes: str) -> tuple[Measure, ...]:
    """The measures whose names begin with one of these, in their order."""
    return tuple(one for name, one in measures.items() if name.startswith(prefixes))
