"""Ladders of rates: where they end, what they say of each rate, and the curve."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from stratalog.perf.experiments.ladder import Ladder, climbed, measures_of, waits_chart, waits_line
from stratalog.perf.report.progress import NOWHERE, Run


def step(rate: float, reached: float | None = None, p50: float = 100.0) -> dict[str, float]:
    per_s = rate if reached is None else reached
    return {"per_s": per_s, "p50": p50, "p99": 5 * p50, "p99.9": 9 * p50, "max": 10 * p50}


def ladder(name: str = "x", given_up: float = 0.9, beside: tuple[str, str] | None = None) -> Ladder:
    return Ladder(name=name, what=f"{name} requests", step=step, given_up=given_up, beside=beside)


def test_ladders_take_turns_and_one_that_falls_behind_is_given_up() -> None:
    made: list[tuple[str, int]] = []

    def taken(name: str, most: float, rate: int) -> Mapping[str, float]:
        made.append((name, rate))
        return step(rate, min(rate, most))

    both = [Ladder(name=name, what=name, step=partial(taken, name, most)) for name, most in (("a", 99), ("b", 15))]
    found = climbed(both, (10, 20, 40), 2, Run("x", NOWHERE))
    first = [("a", 10), ("b", 10), ("a", 20), ("b", 20), ("a", 40)]
    second = [("b", 10), ("a", 10), ("b", 20), ("a", 20), ("a", 40)]
    assert made == first + second
    assert [list(one) for one in found["b"]] == [[10, 20]] * 2


def test_ladder_goes_on_as_long_as_it_is_not_given_up() -> None:
    slow = Ladder(name="x", what="x", step=lambda rate: step(rate, 0.5 * rate), given_up=0.2)
    assert [list(one) for one in climbed([slow], (10, 20), 1, Run("x", NOWHERE))["x"]] == [[10, 20]]
    assert not slow.keeps_up(10, step(10, 8.9)) and slow.keeps_up(10, step(10, 9.0))


ROUNDS = [
    {1_000: step(1_000), 2_000: step(2_000, p50=200.0), 4_000: step(4_000, 2_500, p50=90_000.0)},
    {1_000: step(1_000, p50=120.0), 2_000: step(2_000, 1_500, p50=70_000.0)},
    {1_000: step(1_000, p50=140.0), 2_000: step(2_000, p50=300.0), 4_000: step(4_000, 2_700, p50=95_000.0)},
]


def test_curve_ends_where_every_round_has_been_and_tells_the_most() -> None:
    one = ladder()
    measures = {measure.name: measure for measure in measures_of(one, {"x": ROUNDS})}
    curve = waits_chart(one, ROUNDS)
    assert curve.x == (1_000.0, 2_000.0)
    assert curve.lines["p50"] == (120.0, 300.0)
    assert measures["x.reached"].values == (2_500.0, 1_500.0, 2_700.0)
    assert measures["x.sustained"].values == (2_000.0, 1_000.0, 2_000.0)
    assert measures["x.1000.p50"].better == "lower"
    assert measures["x.2000.p50"].better == "neither"  # one round did not sustain it
    assert "x.4000.p50" not in measures
    waits = "a caller waits p50 120 us, p99 600 us, p99.9 1,080 us."
    assert (
        waits_line(one, list(measures.values())) == f"X requests: 2,500 a second at the most; at 1,000 a second {waits}"
    )


def test_server_that_sustains_nothing_is_said_so_without_a_wait() -> None:
    measures = measures_of(ladder(), {"x": [{500: step(500, 10, p50=1e6)}]})
    assert waits_line(ladder(), measures) == "X requests: 10 a second at the most."


def test_the_most_stands_beside_that_of_another_ladder() -> None:
    one = ladder("x", beside=("y", "nothing at all"))
    found = measures_of(one, {"x": ROUNDS, "y": [{1_000: step(1_000)}, {1_000: step(1_000), 2_000: step(2_000)}]})
    assert (found[0].reference, found[0].reference_what) == (1_500.0, "nothing at all")
