"""A power cut at any moment: no pending message is lost, none is early, and no cancelled one is delivered."""

from __future__ import annotations

import random

from tests.seeds import draw_seed

from .crashes import CrashHistory

HISTORIES = 5


def test_a_crash_anywhere_loses_no_delayed_message_and_no_change_of_one() -> None:
    seeds = random.Random(draw_seed())
    for _ in range(HISTORIES):
        history = CrashHistory(seeds.getrandbits(32))
        history.run(steps=60)
        assert history.moments
        assert history.check() == []
