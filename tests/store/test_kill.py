"""Killed at random moments, the store has every acknowledged message. `tests/store/kill.py` is the long form."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .kill import Settings, run

CYCLES = 7


@pytest.mark.parametrize(
    "settings",
    [
        Settings(8, 1, "adaptive", "force"),
        Settings(4, 2, "trim", "force"),
        Settings(3, 1, "pad", "os"),
    ],
    ids=lambda settings: f"{settings.alignment}-{settings.durability}-{settings.lanes}",
)
def test_killed_store_has_every_acknowledged_message(tmp_path: Path, settings: Settings) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    assert run(tmp_path / "store", settings, CYCLES, seed) > 0
