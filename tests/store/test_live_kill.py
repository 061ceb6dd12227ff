"""A short form of `python -m tests.store.live_kill`."""

from __future__ import annotations

import pytest

from ..seeds import draw_seed
from .helpers import memory_folder
from .live_kill import run


@pytest.mark.parametrize("retention_bytes", [0, 1 << 20], ids=["kept", "retention"])
def test_readers_live_through_writers_with_other_settings(retention_bytes: int) -> None:
    with memory_folder() as folder:
        assert run(folder / "store", 2, 3, 2000, 0.7, draw_seed(), retention_bytes=retention_bytes) > 0
