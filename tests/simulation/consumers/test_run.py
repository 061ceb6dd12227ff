"""Crashes of stores with subscriptions and delays; that a seed decides everything, and that runs reach their parts."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from stratalog.store.testing import Fault, Kind, Operation
from tests.seeds import draw_seed
from tests.store.helpers import ROOT

from ..tally import Tally
from .explore import Effort, Explorer, explore
from .inline import TRACKER, inline
from .shape import KINDS, Shape, draw_shape
from .world import World

STATES = 240  # the long form is `python -m tests.simulation.consumers`
MOST_RUNS = 60
STATES_OF_TWO = 20
OF_TWO = Shape(kinds=KINDS[:1], several=True, delayed=0.0, retention_ms=None, large_bytes=20, lives=1)
BUSY = Shape(kinds=KINDS[:2], delayed=0.8, steps=160, lives=2)
TINY_TRACKER = {"seal_entries": 2, "most_buckets": 1}  # else a merge is in one run of eight


def operations(seed: int, shape: Shape, explorer: Explorer | None = None) -> list[Operation]:
    with inline(seed) as driver:
        world = World(seed, shape, driver, None if explorer is None else explorer.on_moment)
        world.run()
    return world.operations


def test_same_seed_gives_the_same_run() -> None:
    seed = draw_seed()
    shape = draw_shape(random.Random(seed))
    assert operations(seed, shape) == operations(seed, shape)


def test_exploring_does_not_change_the_run() -> None:
    seed = draw_seed()
    plain = operations(seed, Shape())
    assert plain == operations(seed, Shape(), Explorer(seed, Effort(moments=0.05, nested=1.0), Tally()))


@pytest.mark.parametrize("part", range(2))
def test_no_crash_loses_repeats_or_hastens_a_delivery(part: int) -> None:
    """Nothing pending is lost, nothing acknowledged or cancelled comes again, nothing comes before its time."""
    first = draw_seed() + (part << 20)
    tally = Tally()
    while tally.states < STATES // 2:
        explore(first + tally.seeds, effort=Effort(moments=0.1), tally=tally)
    print(tally)
    assert tally.in_recovery


def test_no_crash_tears_an_acknowledgement_of_two_topics() -> None:
    """Consumers of two topics by one object, beside others of one of them."""
    first, tally = draw_seed(), Tally()
    while tally.states < STATES_OF_TWO or not tally.parts["acknowledged together"]:
        assert tally.seeds < MOST_RUNS
        explore(first + tally.seeds, OF_TWO, Effort(moments=0.1, nested=0.0, calls=frozenset({"ack_some"})), tally)
    print(tally)


def test_every_part_of_the_schedule_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments go, copies are made, buckets are sealed and merged, and crashes come into the calls that write.

    The rarest part is in three runs of ten. A crash is tried only in calls into which none has come yet.
    """
    for name, value in TINY_TRACKER.items():
        monkeypatch.setitem(TRACKER, name, value)
    first, tally = draw_seed(), Tally()
    wanted = {
        "given out again", "given out late", "given back for later", "acknowledged", "extended", "settings changed",
        "dead letters", "cancelled", "moved", "copies", "segments removed", "buckets sealed", "buckets merged",
        "an index is behind", "clock set back", "died at an operation", "drained",
    }  # fmt: skip
    crashed = {"append", "ack", "ack_some", "compact_cursors", "cancel", "move", "checkpoint", "upkeep"}

    def missing() -> set[str]:
        return {name for name in wanted if not tally.parts[name]} | crashed - set(tally.kinds)

    while tally.seeds < MOST_RUNS and missing():
        effort = Effort(moments=0.08, calls=frozenset(missing()))
        explore(first + tally.seeds, BUSY, effort, tally)
    assert missing() == set()


def test_no_crash_sends_a_dead_letter_twice_or_loses_it_and_what_rests_is_not_hastened() -> None:
    shape = Shape(kinds=KINDS[-1:], delayed=0.0, retention_ms=None, age_ms=150, sends_back=True, steps=40)
    first, tally = draw_seed(), Tally()
    effort = Effort(moments=0.15, nested=0.1, calls=frozenset({"send_back"}))
    while tally.seeds < MOST_RUNS and not (
        tally.parts["rests"] and tally.parts["sent back"] and tally.kinds["send_back"] > 8
    ):
        explore(first + tally.seeds, shape, effort, tally)
    assert tally.parts["rests"] and tally.parts["sent back"] and tally.kinds["send_back"] > 8


@pytest.mark.parametrize("kind", ["write", "force", "read", "create"])
def test_errors_of_the_device_lose_repeat_and_hasten_no_delivery(kind: Kind) -> None:
    """What they let fail is no promise; behind a failed write or force nothing is one until the store is opened."""
    first, tally = draw_seed(), Tally()
    wanted = {"poisoned", "raised StorePoisoned"} if kind in ("write", "force") else set[str]()
    wanted.add(f"EIO on {kind}")
    while tally.seeds < MOST_RUNS and wanted - set(tally.parts):
        seed = first + tally.seeds
        fault = Fault(kind, random.Random(seed).randrange(1, 30))
        explore(seed, Shape(kinds=KINDS[:2], steps=60), Effort(moments=0.02, nested=0.0), tally, [fault])
    assert wanted <= set(tally.parts)


def test_long_form_runs_in_several_processes() -> None:
    command = [sys.executable, "-m", "tests.simulation.consumers", "--states", "50", "--first", "7", "--jobs", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violations │ 0" in " ".join(done.stdout.split())
