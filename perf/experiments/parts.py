"""How a measurement is declared: what runs, what of it counts, and beside what.

Each `Part` is run once a round, by turns with all others. Of each of its figures that `counts` names there is a
`Measure`, whose name is "PART.FIGURE".
"""

from __future__ import annotations

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
        beside: the name of the measure that it stands beside: its value in the same rounds is the reference.
    """

    figure: str
    what: str
    unit: str
    meaning: str = ""
    better: Better = "higher"
    beside: str = ""
    beside_what: str = ""
    noise: float = NOISE


@dataclass(frozen=True)
class Part:
    """What runs: `run()` measures once and gives its figures by name."""

    name: str
    run: Callable[[], Mapping[str, float]]
    counts: tuple[Count, ...]


def latencies(what: str, meaning: str, *marks: str) -> tuple[Count, ...]:
    """Counts of latencies in microseconds: by default the median and p99."""
    return tuple(
        Count(figure=mark, what=f"{what}, {mark}", unit="us", better="lower", noise=TAILS[mark],
              meaning=meaning if mark == "p50" else "")
        for mark in (marks or ("p50", "p99"))
    )  # fmt: skip


def measured(parts: Sequence[Part], repeat: int, run: Run, failed: dict[str, str]) -> dict[str, Measure]:
    """All measures by name, after `repeat` rounds of all parts. References may be of any other part.

    A part that the store or the system refuses is not run again: `failed` gets its name and the reason, and its
    measures are of the rounds before. Without such rounds it has none.
    """
    rounds = by_turns({part.name: _figures(part, failed) for part in parts}, repeat, run)
    values = {
        f"{part.name}.{count.figure}": found
        for part in parts
        for count in part.counts
        if (found := tuple(float(one[part.name][count.figure]) for one in rounds if one[part.name]))
    }
    calls = {
        part.name: min(known)
        for part in parts
        if (known := [int(one[part.name]["calls"]) for one in rounds if "calls" in one[part.name]])
    }
    return {
        name: _measure(name, count, values, calls.get(part.name))
        for part in parts
        for count in part.counts
        if (name := f"{part.name}.{count.figure}") in values
    }


def _figures(part: Part, failed: dict[str, str]) -> Callable[[], dict[str, float]]:
    def figures() -> dict[str, float]:
        if part.name in failed:
            return {}
        try:
            return dict(part.run())
        except (StoreError, OSError) as error:
            failed[part.name] = f"{type(error).__name__}: {error}"
            return {}

    return figures


def _measure(name: str, count: Count, values: Mapping[str, tuple[float, ...]], calls: int | None) -> Measure:
    """The measure of a count. `calls`: of the round with the fewest, which a latency says."""
    meaning = count.meaning
    if calls is not None and count.figure in TAILS:
        meaning = f"{meaning}; of {counted(calls, 'call')}".removeprefix("; ")
    reference = values.get(count.beside)
    return Measure(
        name=name, what=count.what, unit=count.unit, values=values[name], better=count.better, meaning=meaning,
        noise=count.noise, reference=None if reference is None else statistics.median(reference),
        reference_what=count.beside_what if reference is not None else "",
        reference_is_store=reference is not None and count.beside.startswith(OF_THE_STORE),
    )  # fmt: skip


def of(measures: Mapping[str, Measure], *prefixes: str) -> tuple[Measure, ...]:
    """The measures whose names begin with one of these, in their order."""
    return tuple(one for name, one in measures.items() if name.startswith(prefixes))
