"""An error beside what a receive gives out is kept, and the next one raises it: when that breaks a promise of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from stratalog.store import StoreFull
from stratalog.store.subscriptions.dispatcher import Dispatcher

from ..check import BrokenPromise
from .inline import inline
from .shape import KINDS, Shape
from .world import World

NAME = KINDS[0].name


@pytest.fixture
def world() -> Iterator[World]:
    with inline() as driver:
        made = World(0, Shape(kinds=KINDS[:1], delayed=0.0, retention_ms=None), driver)
        made._open()
        made._call("subscribe")
        for _ in range(3):
            made._call("append")
        yield made
        made._end()


def keep(world: World) -> None:
    """As a receive does that gives something out, and meets a fault beside it."""
    world._callers._subscriptions[NAME][0]._dispatcher._failed = StoreFull("made up")


def test_an_error_that_was_kept_may_be_raised_without_a_fault_once(world: World) -> None:
    keep(world)
    world._call("receive")
    assert (world.reached["raised what was kept"], world.reached["given out"]) == (1, 0)
    world._call("receive")
    assert world.reached["given out"]


def test_a_drain_gives_all_out_behind_an_error_that_was_kept(world: World) -> None:
    keep(world)
    world._drain()
    assert (world.reached["raised what was kept"], world.reached["drained"]) == (1, 1)


@pytest.mark.parametrize("raised", [None, "another"], ids=["nothing", "another error"])
def test_a_receive_that_does_not_raise_what_was_kept_breaks_a_promise(world: World, raised: str | None) -> None:
    keep(world)
    found = patch.object(Dispatcher, "_raise_failed", side_effect=raised and StoreFull(raised))
    with found, pytest.raises(BrokenPromise, match="without a fault" if raised else "was kept"):
        world._call("receive")


def test_a_call_that_keeps_an_error_without_a_fault_breaks_a_promise(world: World) -> None:
    take = Dispatcher.take

    def keeping(dispatcher: Dispatcher, *given: Any) -> Any:
        found = take(dispatcher, *given)
        dispatcher._failed = StoreFull("made up")
        return found

    with (
        patch.object(Dispatcher, "take", keeping),
        patch.object(Dispatcher, "take_few", return_value=None),
        pytest.raises(BrokenPromise, match="receive keeps StoreFull without a fault"),
    ):
        world._call("receive")
