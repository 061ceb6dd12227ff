"""Message ids and crashes: what was acknowledged is refused, what is there is refused, and nothing else is."""

from __future__ import annotations

from collections import Counter

from tests.seeds import draw_seed

from .ids import run

STATES = 60


def test_a_crash_leaves_an_id_with_its_message_or_neither() -> None:
    seed, states = draw_seed(), 0
    reached: Counter[str] = Counter()
    while states < STATES:
        world = run(seed)
        states += world.states
        reached += world.reached
        seed += 1
    print(states, reached)
    assert {"refused", "free", "repeats", "died at an operation"} <= reached.keys()


def test_the_same_seed_gives_the_same_run() -> None:
    seed = draw_seed()
    assert run(seed, 0, lives=1).operations == run(seed, 0.05, lives=1).operations
