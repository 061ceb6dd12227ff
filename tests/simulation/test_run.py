"""Crashes at every operation of many runs, each recovered and checked; and that a seed decides everything."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
from contextlib import suppress
from unittest import mock

import pytest

from stratalog.store.log.flusher import Flusher
from stratalog.store.log.write import Write
from stratalog.store.testing import Operation
from tests.store.helpers import ROOT

from ..seeds import draw_seed
from .check import BrokenPromise
from .damage import HARMS
from .engine import deterministic, write_step
from .explore import Effort, Explorer, draw_fault, explore
from .interrupts import PLACES
from .shape import KIB, Settings, Shape, draw_shape
from .tally import Tally
from .world import World

STATES = 800  # the long form, `python -m tests.simulation`, takes a million
MOST_RUNS = 60
PARTS = 2  # so that a seed that fails is of a short test
FAULTS = 8  # that strike
STATES_BEHIND_ONE = 150

RETIRING = Settings(retention_bytes=70 * KIB, retention_ms=2_000, prewrite_bytes=130 * KIB)
# For each part of the schedule: a shape, and what its runs must count.
REACHED: dict[str, tuple[Shape, list[str]]] = {
    "retention over four lanes": (
        Shape(lanes=4, queues=9, typical_bytes=2_000, steps=300, lives=(RETIRING,) * 2),
        ["4 lanes", "segments removed", "behind removed segments", "in a removal or recycling"],
    ),
    "repair": (
        Shape(lanes=2, typical_bytes=2_000),
        ["repaired", "crashed in a repair", *(f"repaired: {harm}" for harm in HARMS)],
    ),
    "other settings, life after life": (
        Shape(lives=(Settings(), RETIRING, Settings(durability="os"), Settings(alignment="pad"), RETIRING)),
        ["opened by other settings", "generation 3", "power cut", "died at an operation"],
    ),
    "trims": (
        Shape(lanes=2, typical_bytes=2_000, steps=300, parts=frozenset({"trims"})),
        ["queues trimmed", "topics deleted", "segments removed", "behind removed segments"],
    ),
    "kills": (Shape(lives=(Settings(),) * 4), ["killed", "behind a kill"]),
    "relative paths": (Shape(relative=True), ["of a relative path", "working directory changed"]),
    "interrupts": (
        Shape(lives=(RETIRING, Settings(), RETIRING)),
        [f"{what} interrupted at {place}" for what in ("open", "close") for place in PLACES.values()],
    ),
}  # fmt: skip


def run(seed: int, shape: Shape, explorer: Explorer | None = None) -> World:
    """One run."""
    world = World(seed, shape, explorer.on_moment if explorer is not None else None)
    gc.disable()  # a collection would end what is in cycles, such as a removed segment's readers, at some moment
    try:
        with deterministic():
            world.run()
    finally:
        gc.enable()
    return world


def image(world: World) -> dict[str, bytes]:
    return {path.name: data for path, data in world.disk.files().items()}


@pytest.mark.parametrize("seed", range(4))
def test_same_seed_gives_the_same_run(seed: int) -> None:
    shape = draw_shape(random.Random(seed))
    one, other = run(seed, shape), run(seed, shape)
    assert one.operations == other.operations
    assert image(one) == image(other)


def test_exploring_does_not_change_the_run() -> None:
    shape = Shape(steps=60)
    plain = run(1, shape)
    explored = run(1, shape, Explorer(1, Effort(subsets=1), Tally()))
    assert plain.operations == explored.operations
    assert image(plain) == image(explored)


def test_a_look_that_finds_something_ends_the_run_though_the_code_around_it_goes_on() -> None:
    def look(_world: World, operation: Operation) -> None:
        if operation.kind == "write" and operation.path.suffix == ".seg":
            raise BrokenPromise("found")

    def deaf(flusher: Flusher, write: Write) -> None:
        with suppress(AssertionError):
            write_step(flusher, write)

    world = World(1, Shape(steps=60), look)
    ended = pytest.raises(BrokenPromise, match="found")
    with deterministic(), mock.patch("tests.simulation.flusher.write_step", deaf), ended:
        world.run()


def test_other_seeds_give_other_runs() -> None:
    runs: list[list[Operation]] = [run(seed, Shape(steps=60, lives=(Settings(),))).operations for seed in range(3)]
    assert runs[0] != runs[1] != runs[2] != runs[0]


def test_runs_reach_what_they_are_for() -> None:
    """Sealing, recycling, retention, batches, large messages and several lives all happen in some run."""
    kinds: set[str] = set()
    messages = 0
    for seed in range(6):
        world = run(seed, Shape(typical_bytes=2_000, steps=300, lives=(Settings(retention_bytes=70 * KIB),) * 2))
        kinds |= {operation.kind for operation in world.operations}
        messages += sum(map(len, world.ledger.rows.values()))
        assert world.ledger.life == len(world.shape.lives)
    assert kinds == {
        "make_folder", "create", "reserve", "write", "force", "force_folder", "rename", "truncate", "remove",
    }  # fmt: skip
    assert messages > 1_000


def states(first: int, many: int) -> Tally:
    """So many crash states, from run after run."""
    print("seeds from", first)
    tally = Tally()
    while tally.states < many:
        tally.add(explore(first + tally.seeds, effort=Effort(moments=0.25), limit=many - tally.states))
    print(tally)
    return tally


@pytest.mark.parametrize("part", range(PARTS))
def test_no_crash_loses_harms_or_reorders_what_was_acknowledged(part: int) -> None:
    """At many operations of every run, several survivor subsets each, and crashes inside recoveries."""
    tally = states(draw_seed() + (part << 20), STATES // PARTS)
    assert tally.in_recovery > STATES // PARTS // 20
    assert tally.again > 0


@pytest.mark.parametrize("name", REACHED)
def test_every_part_of_the_schedule_is_reached(name: str) -> None:
    """A run that is drawn for a part of the schedule counts all that the part is made of."""
    shape, expected = REACHED[name]
    tally = Tally()
    first = draw_seed()
    effort = Effort(moments=0.1, subsets=1, nested=0.1, repairs=0.5 if name == "repair" else 0.0)
    while tally.seeds < MOST_RUNS and not all(tally.parts[part] for part in expected):
        tally.add(explore(first + tally.seeds, shape, effort))
    assert {part: tally.parts[part] for part in expected if not tally.parts[part]} == {}


@pytest.mark.parametrize("part", range(PARTS))
def test_no_error_of_the_device_loses_what_was_acknowledged(part: int) -> None:
    """Each run meets an error; it ends in an error of the store's, and everything answered is there afterwards."""
    first = draw_seed() + (part << 20)
    tally, struck = Tally(), 0
    effort = Effort(moments=0.1, behind_faults=True)
    while struck < FAULTS // PARTS:  # some faults lie behind the end of their run
        seed = first + tally.seeds
        fault = draw_fault(random.Random(f"fault {seed}"))
        tally.add(explore(seed, effort=effort, limit=STATES_BEHIND_ONE, faults=[fault]))
        struck += fault.struck > 0
    print(tally)


def test_long_form_runs_in_several_processes() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "2", "--first", "1029", "--jobs", "2"]  # short runs
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violations │ 0" in " ".join(done.stdout.split())
