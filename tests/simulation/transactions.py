"""Crash states with a transaction under way, in stores of one lane and of four.

By turns, a seed is one of these runs; a crash is tried only where some of a transaction may be on the disk, and nobody
has been answered:

* the big schedule (`world`): appends, trims, retention, kills, and readers in other processes beside it;
* consumers (`consumers`): each transaction acknowledges messages and appends a bill for them;
* message ids (`ids`): each transaction appends messages with ids, some of which are repeats.
"""

from __future__ import annotations

import random
from dataclasses import replace

from .consumers import explore as consumers
from .consumers.shape import draw_shape as draw_consumers
from .explore import Effort, explore
from .ids import run as run_ids
from .seeds import tried
from .shape import draw_shape
from .tally import Tally

LANES = (1, 4)
TURNS = 3


def try_seed(seed: int, moments: float = 1.0) -> Tally:
    """One run, with crashes at a share of the moments; a violation is in the tally, with the command to replay it."""
    chance = random.Random(f"transactions {seed}")
    lanes = LANES[seed // TURNS % len(LANES)]

    def run(tally: Tally) -> None:
        (_plainly, _with_acknowledgements, _with_ids)[seed % TURNS](seed, lanes, chance, moments, tally)

    return tried(run, seed, "tests.simulation transactions")


def _plainly(seed: int, lanes: int, chance: random.Random, moments: float, tally: Tally) -> None:
    shape = replace(draw_shape(chance), lanes=lanes, queues=9, transacts=0.4)
    explore(seed, shape, Effort(moments, subsets=4, again=0.1, transactions=True), tally=tally)


def _with_acknowledgements(seed: int, lanes: int, chance: random.Random, moments: float, tally: Tally) -> None:
    shape = replace(draw_consumers(chance), lanes=lanes, transactions=40, sends_back=False, steps=120)
    effort = consumers.Effort(moments=moments, cuts=4, calls=frozenset({"transact"}))
    consumers.explore(seed, shape, effort, tally)


def _with_ids(seed: int, lanes: int, chance: random.Random, moments: float, tally: Tally) -> None:
    world = run_ids(seed, moments, lanes=[lanes], only="transact")
    tally.seeds += 1
    tally.states += world.states
    tally.operations += len(world.operations)
    tally.kinds["transact"] += world.states
    tally.parts.update(world.reached)
