"""Requests at rising rates, up to what is sustained: a chart by rate, the sustained rate, figures at each rate."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..report.progress import Run
from ..report.record import Chart, Measure
from ..report.words import amount
from .parts import TAILS, Count

MARKS = tuple(TAILS)
WAITS = tuple(Count(figure=mark, what=mark, unit="us", better="lower", noise=TAILS[mark]) for mark in MARKS)
EXPLAINED = "(p50: half of the requests are quicker; p99: 99 of 100; p99.9: 999 of 1,000.)"
SUSTAINED = 0.9  # of the offered rate: below it the answers fall behind
Round = Mapping[int, Mapping[str, float]]  # rate -> figures


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """One kind of request, tried at one rate after the other.

    Attributes:
        name: the beginning of its measures' names: "latency.append".
        what: its requests, in words: "appends".
        step: measures at a rate and gives figures by name; "per_s" is the rate of the answers.
        counts: the figures that count at each rate.
        sustained: the part of a rate that the answers have to reach.
        given_up: below this part no higher rate is tried.
        beside: the name of the ladder whose highest rate of answers is the reference, and what that is.
    """

    name: str
    what: str
    step: Callable[[int], Mapping[str, float]]
    counts: tuple[Count, ...] = WAITS
    sustained: float = SUSTAINED
    given_up: float = SUSTAINED
    beside: tuple[str, str] | None = None

    def keeps_up(self, rate: int, figures: Mapping[str, float]) -> bool:
        """Whether the answers come at the rate of the requests."""
        return figures["per_s"] >= self.sustained * rate


def climbed(ladders: Sequence[Ladder], rates: Sequence[int], repeat: int, run: Run) -> dict[str, list[Round]]:
    """The rounds of each ladder, by its name. At each rate the ladders take turns, backwards in every second round."""
    found: dict[str, list[Round]] = {ladder.name: [] for ladder in ladders}
    run.expect(repeat * len(rates))
    for number in range(repeat):
        steps: dict[str, dict[int, Mapping[str, float]]] = {ladder.name: {} for ladder in ladders}
        climbing = list(ladders)[:: 1 if number % 2 == 0 else -1]
        for rate in rates:
            for ladder in climbing:
                steps[ladder.name][rate] = ladder.step(rate)
            climbing = [ladder for ladder in climbing if steps[ladder.name][rate]["per_s"] >= ladder.given_up * rate]
            run.one_done()
        for name, one in steps.items():
            found[name].append(one)
    return found


def rates_of(rounds: Sequence[Round]) -> list[int]:
    """The rates that every round has tried."""
    return sorted(set.intersection(*(set(one) for one in rounds)))


def measures_of(ladder: Ladder, climbs: Mapping[str, Sequence[Round]]) -> tuple[Measure, ...]:
    """The most answers a second, the highest rate that is sustained, and what counts at each rate of all rounds."""
    rounds = climbs[ladder.name]
    reference, told = ladder.beside or ("", "")
    measures = [
        Measure(
            name=f"{ladder.name}.reached",
            what=f"{ladder.what}: the most answers a second",
            unit="1/s",
            values=_reached(rounds),
            meaning="what is answered when more is asked for than can be done",
            noise=0.2,
            reference=statistics.median(_reached(climbs[reference])) if reference else None,
            reference_what=told,
        ),
        Measure(
            name=f"{ladder.name}.sustained",
            what=f"{ladder.what}: the highest rate tried that was sustained",
            unit="1/s",
            values=tuple(
                float(max((rate for rate in one if ladder.keeps_up(rate, one[rate])), default=0)) for one in rounds
            ),
            better="neither",
            meaning="the real one is between it and the next rate that was tried",
        ),
    ]
    for rate in rates_of(rounds):
        held = all(ladder.keeps_up(rate, one[rate]) for one in rounds)
        measures += [_at(ladder, count, rate, held, rounds) for count in ladder.counts]
    return tuple(measures)


def _at(ladder: Ladder, count: Count, rate: int, held: bool, rounds: Sequence[Round]) -> Measure:
    """One figure at one rate. `held`: whether each round sustained it."""
    return Measure(
        name=f"{ladder.name}.{rate}.{count.figure}",
        what=f"{ladder.what} at {rate:,} a second, {count.what}",
        unit=count.unit,
        values=tuple(float(one[rate][count.figure]) for one in rounds),
        better=count.better if held else "neither",
        noise=count.noise,
        meaning=count.meaning if held else "not sustained: the wait grows for as long as the step lasts",
    )


def _reached(rounds: Sequence[Round]) -> tuple[float, ...]:
    return tuple(float(max(figures["per_s"] for figures in one.values())) for one in rounds)


def medians_by_rate(rounds: Sequence[Round], rates: Sequence[int], figure: str) -> tuple[float | None, ...]:
    """A line of a chart: the median of a figure at each rate; None where a round has not been."""
    return tuple(
        statistics.median(one[rate][figure] for one in rounds) if all(rate in one for one in rounds) else None
        for rate in rates
    )


def waits_chart(ladder: Ladder, rounds: Sequence[Round]) -> Chart:
    """The latencies by rate."""
    rates = rates_of(rounds)
    return Chart(
        title=f"{capital(ladder.what)}: latency by rate",
        x_what=f"{ladder.what} a second, as they arrive",
        y_what="us",
        log_x=True,
        log_y=True,
        x=tuple(map(float, rates)),
        lines={mark: medians_by_rate(rounds, rates, mark) for mark in MARKS},
        meaning="Where the lines turn up, no more can be done. Below that rate a caller waits as the line says.",
    )


def waits_line(ladder: Ladder, measures: Sequence[Measure]) -> str:
    """A line of a summary: the most answers a second, and the latencies at half of the rate that is sustained."""
    by_name = {measure.name: measure for measure in measures}
    rate = int(by_name[f"{ladder.name}.sustained"].value)
    at = rate // 2 if f"{ladder.name}.{rate // 2}.{MARKS[0]}" in by_name else rate
    found = [
        f"{mark} {amount(by_name[name].value, 'us')}"
        for mark in MARKS
        if (name := f"{ladder.name}.{at}.{mark}") in by_name
    ]
    waits = f"; at {at:,} a second a caller waits {', '.join(found)}" if found else ""
    reached = amount(by_name[f"{ladder.name}.reached"].value, "a second")
    return f"{capital(ladder.what)}: {reached} at the most{waits}."


def capital(text: str) -> str:
    """The text with a capital letter."""
    return text[:1].upper() + text[1:]
