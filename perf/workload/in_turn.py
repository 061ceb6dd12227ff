"""Stores of several sizes side by side, measured in turn: so the machine's speed is the same for all.

A shared machine may run at half its speed for minutes. Figures of one store after the other would then say more of the
machine than of the stores.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import perf_counter

from ..machine.usage import cpu_seconds

LEAST_ROUNDS, MOST_ROUNDS = 3, 2_000


@dataclass(frozen=True)
class Row:
    """One figure of a store.

    Attributes:
        what: its name, the same at each size.
        measure: makes a call and returns its figure. It is called once a round.
        rounds: so many; None makes rounds for as long as the run gives a row.
        whole: the figure is the mean of all rounds, for what a part of them pays for the others; else the median.
    """

    what: str
    measure: Callable[[], float]
    rounds: int | None = None
    whole: bool = False


Rows = Generator[Row, None, None]


def timed(what: str, call: Callable[[], object], rounds: int | None = None, *, divided_by: int = 1) -> Row:
    """Microseconds of a call; of a part of it, where it has so many equal ones."""

    def measure() -> float:
        began = perf_counter()
        call()
        return (perf_counter() - began) / divided_by * 1e6

    return Row(what, measure, rounds)


def spent(what: str, call: Callable[[], float], rounds: int, *, scale: float = 1e6) -> Row:
    """Processor time of all threads while a call is made, for each unit of what it says to have done: the mean.

    The other sizes' stores are idle meanwhile. `scale`: of the unit, to the second.
    """

    def measure() -> float:
        began = cpu_seconds()
        done = call()
        return (cpu_seconds() - began) / done * scale

    return Row(what, measure, rounds, whole=True)


def known(what: str, figure: float) -> Row:
    """A figure that is measured once."""
    return Row(what, lambda: figure, rounds=1)


def in_turn(sizes: Sequence[Rows], seconds: float, seed: int = 1) -> list[dict[str, float]]:
    """The figures of each size, by name.

    The generators go on together: each is asked for its next row when all of them have measured the one before. What
    one does between two rows, such as an opening, it does while the others wait.

    Args:
        seconds: the time of a row's rounds for each size, if their number is not given.
        seed: of the order of the sizes, which is another one in each round.
    """
    rng, found = random.Random(seed), [dict[str, float]() for _ in sizes]
    with ExitStack() as stack:
        for one in sizes:
            stack.enter_context(closing(one))  # it has its store open
        for rows in zip(*sizes, strict=True):
            assert len({row.what for row in rows}) == 1, "each size has the same rows"
            for figures, row, each in zip(found, rows, _rounds(rows, seconds, rng), strict=True):
                figures[row.what] = statistics.fmean(each) if row.whole else statistics.median(each)
    return found


def _rounds(rows: Sequence[Row], seconds: float, rng: random.Random) -> list[list[float]]:
    figures: list[list[float]] = [[] for _ in rows]
    order, until = list(range(len(rows))), perf_counter() + seconds * len(rows)
    while len(figures[0]) < (rows[0].rounds or LEAST_ROUNDS) or (
        rows[0].rounds is None and perf_counter() < until and len(figures[0]) < MOST_ROUNDS
    ):
        rng.shuffle(order)
        for at in order:
            figures[at].append(rows[at].measure())
    return figures
