"""How a measurement is declared: what runs, what of it counts, and beside what.

Each `Part` is run once a round, by turns with all others. Of each of its figures that `counts` names there is a
`Measure`, whose name is "PART.FIGURE". A figure that a part did not find (a peer is not installed) is left out of what
it gives.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...store import StoreError
from ..report.figures import counted
from ..report.progress import Run
from ..report.record import NOISE, Better, Measure

Round = Mapping[str, float | None]  # the figures of a part, by name
OF_THE_STORE = ("store.", "setting.")  # names of measures that a slower store changes
TAILS = {"p50": 0.2, "p99": 0.5, "p99.9": 1.0}  # how much equal runs differ in these


@dataclass(frozen=True, kw_only=True)
class Count:
    """A figure that counts.

    Attributes:
        figure: its name in what the part gives.
        beside: the name ("PART.FIGURE") of any figure that it stands beside; ".FIGURE" is one of the same part. Its
            median over the same rounds is the reference. None is its own.
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
    """What runs: `run()` measures once and gives its figures by name. `what` comes before the words of each count.

    `of_machine`: no store runs in it, nor any other code of this project that may become slower. `must`: its error ends
    the run, also where those of other parts leave the rest its figures.
    """

    name: str
    run: Callable[[], Round]
    counts: tuple[Count, ...]
    what: str = ""
    of_machine: bool = False
    must: bool = False


def latencies(what: str, meaning: str, *marks: str, prefix: str = "") -> tuple[Count, ...]:
    """Counts of latencies in microseconds: by default the median and p99. `prefix`: of the figures' names."""
    return tuple(
        Count(figure=f"{prefix}{mark}", what=f"{what}, {mark}", unit="us", better="lower", noise=TAILS[mark],
              meaning=meaning if mark == "p50" else "")
        for mark in (marks or ("p50", "p99"))
    )  # fmt: skip


def measured(parts: Sequence[Part], repeat: int, run: Run, failed: dict[str, str] | None = None) -> dict[str, Measure]:
    """All measures by name, after `repeat` rounds of all parts. References may be of any other part.

    With `failed`, a part that the store or the system refuses is not run again: `failed` gets its name and the reason,
    and its measures are of the rounds before. Without such rounds it has none. Without `failed`, or if the part must
    run, it raises what the part raised. Raises ValueError if two parts have one name.
    """
    names = [part.name for part in parts]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two parts have the name {', '.join(sorted(twice))}")
    rounds = _by_turns({part.name: _figures(part, failed) for part in parts}, repeat, run)
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


def _by_turns(ways: Mapping[str, Callable[[], Round]], repeat: int, run: Run) -> list[dict[str, Round]]:
    """Run each way once a round. Every second round goes backwards, so that no way always follows the same one."""
    run.expect(repeat * len(ways))
    rounds: list[dict[str, Round]] = []
    for number in range(repeat):
        found = {}
        for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
            found[name] = ways[name]()
            run.one_done()
        rounds.append(found)
    return rounds


def _figures(part: Part, failed: dict[str, str] | None) -> Callable[[], Round]:
    def figures() -> Round:
        if failed is None or part.must:
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
    mark = next((mark for mark in TAILS if name.endswith(f".{mark}")), None)
    if mark is not None and (calls := values.get(f"{name.removesuffix(mark)}calls")):
        meaning = f"{meaning}; of {counted(int(min(calls)), 'call')}".removeprefix("; ")
    beside = f"{part.name}{count.beside}" if count.beside.startswith(".") else count.beside
    reference = values.get(beside) if beside != name else None
    return Measure(
        name=name, what=": ".join(filter(None, (part.what, count.what))), unit=count.unit, values=values[name],
        better=count.better, meaning=meaning, noise=count.noise, of_machine=part.of_machine,
        reference=statistics.median(reference) if reference else None,
        reference_what=count.beside_what if reference else "",
        reference_is_store=bool(reference) and (count.beside_is_store or beside.startswith(OF_THE_STORE)),
    )  # fmt: skip


def of(measures: Mapping[str, Measure], *prefixes: str) -> tuple[Measure, ...]:
    """The measures whose names begin with one of these, in their order."""
    return tuple(one for name, one in measures.items() if name.startswith(prefixes))
