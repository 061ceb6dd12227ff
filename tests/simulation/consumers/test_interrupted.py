"""Interrupts and MemoryError inside the calls of consumers and of delays; the long form is the module's command."""

from __future__ import annotations

import pytest

from tests.seeds import draw_seed

from .interrupted import Tally, interrupt_calls, one

INTERRUPTS = 60


def test_no_interrupt_loses_repeats_or_hastens_a_delivery() -> None:
    tally = interrupt_calls(draw_seed(), INTERRUPTS)
    assert tally.interrupts >= INTERRUPTS
    assert set(tally.kinds) >= {"Interrupted", "MemoryError"}


@pytest.mark.parametrize("seed", [33, 34, 47, 62, 700251, 800138, 9100081])
def test_runs_that_once_broke_a_promise(seed: int) -> None:
    one(seed, Tally())


def test_same_seed_gives_the_same_run() -> None:
    seed, found = draw_seed(), list[Tally]()
    for _ in range(2):
        found.append(Tally())
        one(seed, found[-1])
    assert found[0] == found[1]
