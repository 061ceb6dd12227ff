"""Killed at random moments, the store has every acknowledged message. `tests/store/kill.py` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.kill import Settings, run

from ..seeds import draw_seed


@pytest.mark.parametrize(
    ("settings", "cycles"),
    [
        (Settings(1, 1, "adaptive", "force"), 2),
        (Settings(10, 2, "pad", "force"), 2),
        (Settings(40, 2, "trim", "force"), 2),
        (Settings(3, 1, "pad", "os"), 2),
        (Settings(10, 4, "adaptive", "force", 256 << 10, 2 << 20), 3),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, Settings) else f"{value}-cycles",
)
def test_killed_store_has_every_acknowledged_message(tmp_path: Path, settings: Settings, cycles: int) -> None:
    assert run(tmp_path / "store", settings, cycles, draw_seed()) > 0
