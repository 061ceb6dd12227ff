"""Two reports beside each other: what got better or worse beyond the spread.

A figure has moved if its medians differ by more than equal runs do. That is, for each of the two: the standard error of
its median, from the range of its rounds, but no less than what is usual in its report, as the range of few rounds may
be small by chance. Both together count `SURE` times; and it is never less than the measure's own `noise`.

A figure that stands beside a reference without a store has moved only if its share of the reference has moved as well:
else the machine was faster or slower, and not what was measured. A reference that is a figure of the store excuses
nothing: the store itself may be what became slower. A figure without a store moves with the machine alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .record import Measure, Report

SURE = 5.0
# The expected range of n values of a normal distribution, in standard deviations.
RANGE_OF = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534, 7: 2.704, 8: 2.847, 9: 2.970, 10: 3.078}
MEDIAN_ERROR = 1.2533  # of a median, over that of a mean
ALONE = 0.1  # the deviation of a round where no figure of a report has two
Verdict = Literal["better", "worse", "same", "with the machine"]


@dataclass(frozen=True)
class Change:
    """One figure of both reports. `change` is the relative one, `beyond` what equal runs may differ by."""

    measure: Measure
    before: float
    after: float
    change: float
    beyond: float
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    """All figures that both have, and the names that one has alone."""

    changes: tuple[Change, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]

    def of(self, verdict: Verdict) -> list[Change]:
        """Those with this verdict, the largest change first."""
        found = [change for change in self.changes if change.verdict == verdict]
        return sorted(found, key=lambda one: -abs(_log(1 + one.change)))


def compare(before: Report, after: Report) -> Comparison:
    """What moved from one report to the other."""
    old, new = before.measures(), after.measures()
    usual = usual_deviation(old), usual_deviation(new)
    return Comparison(
        tuple(_change(one, new[name], usual) for name, one in old.items() if name in new),
        tuple(name for name in old if name not in new),
        tuple(name for name in new if name not in old),
    )


def usual_deviation(measures: Mapping[str, Measure]) -> float:
    """The median of the relative deviations of a report's figures."""
    known = [found for one in measures.values() if (found := deviation(one)) is not None]
    return statistics.median(known) if known else ALONE


def deviation(measure: Measure) -> float | None:
    """The relative standard deviation of a round, by the range of all; None for a single one."""
    rounds = len(measure.values)
    if rounds < 2 or not measure.value:
        return None
    return (measure.high - measure.low) / abs(measure.value) / RANGE_OF.get(rounds, RANGE_OF[10])


def _change(before: Measure, after: Measure, usual: Sequence[float]) -> Change:
    change = math.inf if not before.value else after.value / before.value - 1
    if before.value == after.value:
        change = 0.0
    errors = [_error(one, floor) for one, floor in zip((before, after), usual, strict=True)]
    beyond = max(SURE * math.hypot(*errors), before.noise, after.noise)
    return Change(after, before.value, after.value, change, beyond, _verdict(before, after, change, beyond))


def _error(measure: Measure, usual: float) -> float:
    own = deviation(measure)
    return MEDIAN_ERROR * max(usual, own or 0.0) / math.sqrt(len(measure.values))


def _verdict(before: Measure, after: Measure, change: float, beyond: float) -> Verdict:
    moved = _log(1 + change)
    if after.better == "neither" or abs(moved) <= math.log1p(beyond):
        return "same"
    if before.of_machine and after.of_machine:
        return "with the machine"
    if before.share and after.share and not (before.reference_is_store or after.reference_is_store):
        beside = _log(after.share / before.share)
        if abs(beside) <= math.log1p(beyond) or (beside > 0) != (moved > 0):
            return "with the machine"
    return "better" if (moved > 0) == (after.better == "higher") else "worse"


def _log(ratio: float) -> float:
    return math.log(ratio) if 0 < ratio < math.inf else math.inf if ratio > 0 else -math.inf
