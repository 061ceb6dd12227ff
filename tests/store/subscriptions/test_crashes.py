"""A power cut at any moment: nothing that was acknowledged comes again, and everything else does."""

from __future__ import annotations

import random

from ...seeds import draw_seed
from .crashes import CrashHistory

HISTORIES = 6


def test_a_crash_anywhere_loses_no_message_and_no_acknowledgement() -> None:
    seeds = random.Random(draw_seed())
    for _ in range(HISTORIES):
        history = CrashHistory(seeds.getrandbits(32))
        history.run(steps=50)
        assert history.moments
        assert history.check() == []
