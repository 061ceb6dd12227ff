"""The short form of `python -m tests.store.many_segments`."""

from __future__ import annotations

import random
from pathlib import Path

from ..seeds import draw_seed
from .many_segments import BATCH, MORE, READERS, run


def test_many_segments_are_used_with_few_descriptors(tmp_path: Path) -> None:
    found = run(tmp_path / "store", segments=80, descriptors=48, chance=random.Random(draw_seed()))
    assert found["sealed"] >= 80 and found["compacted"] <= 3
    assert found["followed"] == [MORE * BATCH] * READERS
