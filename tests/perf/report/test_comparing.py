"""What of two reports is better or worse: planted changes are found, equal runs are quiet."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from stratalog.perf.report.comparing import Comparison, Verdict, compare
from stratalog.perf.report.record import Measure, Report, report_of
from tests.seeds import draw_seed

from .reports import rate, report

FIGURES = 60


def verdict_of(before: Measure, after: Measure) -> Verdict:
    (change,) = compare(report(before), report(after)).changes
    return change.verdict


def rates(name: str, middle: float, spread: float, reference: float | None = None) -> Measure:
    values = (middle * (1 - spread), middle, middle * (1 + spread))
    return rate(name, *values, reference=reference)


def test_slow_down_of_20_percent_is_worse_and_its_reverse_better() -> None:
    assert verdict_of(rates("a", 100.0, 0.03), rates("a", 80.0, 0.03)) == "worse"
    assert verdict_of(rates("a", 80.0, 0.03), rates("a", 100.0, 0.03)) == "better"


def test_change_within_the_spread_is_the_same() -> None:
    assert verdict_of(rates("a", 100.0, 0.25), rates("a", 80.0, 0.25)) == "same"
    assert verdict_of(rates("a", 100.0, 0.01), rates("a", 93.0, 0.01)) == "same"


def test_longer_time_is_worse_where_lower_is_better() -> None:
    times = [Measure(name="t", what="t", unit="us", better="lower", values=(us, us, us)) for us in (10.0, 12.5)]
    assert verdict_of(times[0], times[1]) == "worse"
    assert verdict_of(times[1], times[0]) == "better"


def test_figure_that_is_neither_better_nor_worse_is_the_same() -> None:
    sizes = [Measure(name="n", what="n", unit="B", better="neither", values=(size,)) for size in (10.0, 90.0)]
    assert verdict_of(*sizes) == "same"


def test_slower_machine_is_told_apart_from_slower_code() -> None:
    before = rates("a", 100.0, 0.02, reference=200.0)
    assert verdict_of(before, rates("a", 70.0, 0.02, reference=141.0)) == "with the machine"
    assert verdict_of(before, rates("a", 70.0, 0.02, reference=198.0)) == "worse"
    assert verdict_of(before, rates("a", 140.0, 0.02, reference=100.0)) == "better"


def test_figure_without_a_store_moves_with_the_machine_alone() -> None:
    before, after = (replace(rates("wake", middle, 0.02), of_machine=True) for middle in (100.0, 50.0))
    assert verdict_of(before, after) == verdict_of(after, before) == "with the machine"
    assert verdict_of(before, replace(after, of_machine=False)) == "worse"


def test_reference_of_the_store_itself_excuses_nothing() -> None:
    before, after = (
        replace(rates("setting.a", middle, 0.02, reference=2 * middle), reference_is_store=True)
        for middle in (100.0, 70.0)
    )
    assert verdict_of(before, after) == "worse"


def test_report_from_before_the_marks_of_the_store_and_the_machine_is_read() -> None:
    whole = report(rate("a", reference=50.0)).as_dict()
    for name in ("reference_is_store", "of_machine"):
        del whole["chapters"][0]["measures"][0][name]
    found = report_of(whole, "old.json").measures()["a"]
    assert not found.reference_is_store and not found.of_machine


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_figure_that_was_or_became_zero_is_compared(value: float) -> None:
    verdict = verdict_of(rate("a", value), rate("a", 1 - value))
    assert verdict == ("better" if value == 0.0 else "worse")
    assert verdict_of(rate("a", value), rate("a", value)) == "same"


def test_figures_of_one_report_alone_are_named() -> None:
    compared = compare(report(rate("a"), rate("b")), report(rate("b"), rate("c")))
    assert ([one.measure.name for one in compared.changes], compared.only_before, compared.only_after) == (
        ["b"], ("a",), ("c",),
    )  # fmt: skip


def drawn(rng: random.Random, slower: str = "") -> Report:
    """A report of many figures with deviations of 1 to 4 %; one of them 20 % slower."""
    made = []
    for number in range(FIGURES):
        name, noise = f"figure.{number}", 0.01 + 0.03 * (number / FIGURES)
        middle = 1000.0 * (number + 1) * (0.8 if name == slower else 1.0)
        made.append(rate(name, *(middle * (1 + rng.gauss(0, noise)) for _ in range(3))))
    return report(*made)


def test_equal_runs_are_quiet_and_a_planted_slow_down_is_found_in_most() -> None:
    """A false alarm is rare, and by chance there may be one: two of 25 pairs at the most have some."""
    rng = random.Random(draw_seed())
    equal = [moved(compare(drawn(rng), drawn(rng))) for _ in range(5)]
    slower = [moved(compare(drawn(rng), drawn(rng, "figure.5"))) for _ in range(20)]
    assert sum(found.get("figure.5") == "worse" for found in slower) >= 15
    alarms = [found.keys() - {"figure.5"} for found in slower] + [found.keys() for found in equal]
    assert sum(bool(names) for names in alarms) <= 2, alarms


def moved(compared: Comparison) -> dict[str, Verdict]:
    """The figures that are not the same, with their verdicts."""
    return {one.measure.name: one.verdict for one in compared.changes if one.verdict != "same"}
