"""Crash states with a transaction under way: the short form, and that each kind of run sees one that is torn."""

from __future__ import annotations

import pytest

from ..seeds import draw_seed
from .planted_transactions import forget_the_cut_of_a_round
from .tally import Tally
from .transactions import LANES, TURNS, try_seed

KINDS = ("", " with acknowledgements", " with ids")
MOST_SEEDS = 40
MOMENTS = 0.15  # of those of the long form, `python -m tests.simulation transactions`
SEEDS = TURNS * len(LANES)


def test_a_crash_leaves_all_of_a_transaction_or_nothing() -> None:
    """In stores of one lane or of four, as the seed says."""
    drawn = draw_seed()
    index, total = drawn % len(LANES), Tally()
    seed = drawn // SEEDS * SEEDS + index * TURNS
    wanted = {f"a transaction{kind} is under way, {LANES[index]} lanes" for kind in KINDS}
    while not wanted <= {name for name, count in total.parts.items() if count} and total.seeds < MOST_SEEDS:
        total.add(try_seed(seed, MOMENTS))
        seed += 1 if seed % TURNS < TURNS - 1 else SEEDS - TURNS + 1
        assert total.violations == []
    assert wanted <= total.parts.keys()
    counted = sum(count for name, count in total.parts.items() if "is under way" in name)
    assert counted == total.states, "there are no others"


@pytest.mark.parametrize("turn", range(TURNS))
def test_a_torn_round_is_seen_by_each_kind_of_run(turn: int) -> None:
    seed = draw_seed() // SEEDS * SEEDS + TURNS + turn  # of four lanes
    with forget_the_cut_of_a_round():
        for _ in range(MOST_SEEDS):
            if try_seed(seed).violations:
                return
            seed += SEEDS
    pytest.fail("not seen")
