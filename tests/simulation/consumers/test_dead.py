"""Dead letters that retention writes and removes, while nobody uses their subscription: they were not lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .dead import DEAD
from .inline import inline
from .ledger import Kind
from .producing import DELAYS_MS
from .shape import TOPIC, Shape
from .world import World

AGAIN = Kind("again", {"max_attempts": 1, "dead_letter_topic": DEAD})
SHAPE = Shape(kinds=(AGAIN,), queues=1, delayed=1.0, retention_ms=200)
LONG_MS = 1_000  # after it all segments are too old
MOST_MS = 20 * LONG_MS


@pytest.fixture
def world() -> Iterator[World]:
    """Delayed messages, which outlive their segments, were given out for the last time; their consumer has closed."""
    with inline() as driver:
        made = World(0, SHAPE, driver)
        made._open()
        for name in ("subscribe", "append"):
            made._call(name)
        made.clock.go(max(DELAYS_MS))
        for name in ("receive", "close_one"):
            made._call(name)
        assert made.reached["given out"] == len(made.ledger.sent)
        yield made
        made._end()


def remove(world: World, topic: str) -> None:
    """Have retention take all that a topic has."""
    store = world._callers.store
    while store.queue_bounds(topic, 0)[0] < store.queue_bounds(topic, 0)[1]:
        assert world.clock.passed_ms < MOST_MS
        world._call("fill")
        world.clock.go(LONG_MS)
        world._call("upkeep")


def test_a_dead_letter_that_retention_has_written_and_removed_is_no_lost_message(world: World) -> None:
    remove(world, TOPIC)
    assert world._callers.store.queue_bounds(DEAD, 0) == (0, len(world.ledger.sent))
    remove(world, DEAD)
    world._drain()
    assert (world.reached["dead letters"], world.reached["drained"]) == (len(world.ledger.sent), 1)


def test_a_dead_letter_counts_once(world: World) -> None:
    """What comes again after a seek has to come, or to be buried, once more."""
    store, letters = world._callers.store, world.ledger.dead
    store.append(DEAD, 0, b"first")
    assert (letters.new(store), letters.note(store), letters.new(store)) == ({b"first"}, {b"first"}, set())
    store.append(DEAD, 1, b"second")
    assert letters.note(store) == {b"second"}
