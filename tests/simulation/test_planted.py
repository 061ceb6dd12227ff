"""Each planted bug is found, and the same runs are clean without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.store import StoreError

from ..seeds import draw_seed
from .check import BrokenPromise
from .explore import explore
from .planted import PLANTED

SEEDS = 100


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found(name: str) -> None:
    planted = PLANTED[name]
    with planted.plant():
        for seed in range(planted.seed, planted.seed + SEEDS):
            try:
                explore(seed, planted.shape, planted.effort, faults=planted.faults(seed))
            except (BrokenPromise, StoreError) as error:
                print(f"found by seed {seed}: {error}")
                return
    pytest.fail(f"not found by {SEEDS} runs from seed {planted.seed}")


@pytest.mark.parametrize("name", {(planted.shape, planted.faults): name for name, planted in PLANTED.items()}.values())
def test_same_runs_are_clean_without_the_bug(name: str) -> None:
    """One run of each kind: some bugs have theirs in common."""
    planted = PLANTED[name]
    seed = draw_seed()
    explore(seed, planted.shape, replace(planted.effort, moments=0.1), faults=planted.faults(seed))
