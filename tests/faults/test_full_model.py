"""Some runs of `full_model`."""

from __future__ import annotations

import random

from ..seeds import draw_seed
from .full_model import run_one

RUNS = 4


def test_random_calls_on_a_full_disk_lose_nothing_and_raise_errors_of_ours() -> None:
    chance = random.Random(draw_seed())
    assert sum(run_one(chance.randrange(1 << 30), steps=50).refused for _ in range(RUNS))
