"""A short form of `python -m tests.store.live_kill`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..seeds import draw_seed
from .kill import Settings
from .live_kill import run


@pytest.mark.parametrize("retention_bytes", [0, 1 << 20], ids=["kept", "retention"])
def test_readers_live_through_kills_of_the_writer(tmp_path: Path, retention_bytes: int) -> None:
    settings = Settings(3, 2, "adaptive", "force", 0, retention_bytes)
    assert run(tmp_path / "store", settings, 5, draw_seed()) > 0
