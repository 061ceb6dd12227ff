"""What a power cut may do to the bank, at any write: nothing."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import NamedTuple

import pytest
from bank import Bank

from stratalog import MessageStore, OffsetOutOfRange
from stratalog.testing import Operation, SimulatedDisk, TunedConfig

SMALL = TunedConfig(segment_bytes=1 << 20, recent_bytes=0, max_message_bytes=1 << 16)
PEOPLE = ("ann", "bob", "cy")
STEPS = 6
SEEDS = range(int(os.environ.get("SEEDS", "1")))  # each one decides who pays, and what the power cuts leave


class Cut(NamedTuple):
    """A disk whose power was cut, and what had been paid by then: surely, and with the payment under way."""

    disk: SimulatedDisk
    surely: dict[str, int]
    maybe: dict[str, int]


def power_cuts(kind: type[Bank], path: Path, seed: int) -> list[Cut]:
    """Let a bank work, and cut the power before each write and each force: all of these are one run."""
    cuts: list[Cut] = []
    surely: dict[str, int] = {}
    maybe: dict[str, int] = {}
    disk, chance = SimulatedDisk(), random.Random(seed)

    def cut(_: Operation) -> None:
        left = disk.crash(random.Random(f"{seed} {len(cuts)}"))
        cuts.append(Cut(left, surely, maybe))

    disk.on_operation = cut
    with MessageStore.open(path, SMALL, disk=disk) as store:
        bank = kind(store)
        for step in range(STEPS):
            source, target = chance.sample(PEOPLE, 2)
            maybe = after(surely, source, target, cents=step + 1)
            bank.pay(source, target, step + 1)
            surely = maybe
            if step % 3 == 2:
                bank.checkpoint()
    return cuts


def after(balances: dict[str, int], source: str, target: str, cents: int) -> dict[str, int]:
    """The balances after a payment, by a way of their own: the tests' own idea of a bank."""
    return balances | {source: balances.get(source, 0) - cents, target: balances.get(target, 0) + cents}


def check(kind: type[Bank], path: Path, cut: Cut) -> None:
    """Switch the power on again: all that was surely paid is there, and the bank goes on."""
    with MessageStore.open(path, SMALL, disk=cut.disk) as store:
        found = kind(store).balances
        assert found in (cut.surely, cut.maybe)
        bank = kind(store)
        bank.pay("ann", "bob", 100)
        bank.checkpoint()
        assert kind(store).balances == after(found, "ann", "bob", 100)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_power_cut_loses_or_makes_money(tmp_path: Path, seed: int) -> None:
    cuts = power_cuts(Bank, tmp_path, seed)
    assert len(cuts) > 30
    for cut in cuts:
        check(Bank, tmp_path, cut)


class PaysInTwoSteps(Bank):
    """A bug: a power cut between the two appends takes the money of one, and gives it to nobody."""

    def pay(self, source: str, target: str, cents: int) -> None:
        for entry in ((source, -cents), (target, cents)):
            self._store.append("entries", 0, json.dumps(entry).encode())
            self._apply(*entry)


class ForgetsFirst(Bank):
    """A bug: a power cut between the two steps finds neither the entries nor the checkpoint that has them in it."""

    def checkpoint(self) -> None:
        _, end = self._store.queue_bounds("entries", 0)
        self._store.trim("entries", 0, end)
        self._store.append("checkpoints", 0, json.dumps([end, self.balances]).encode())


@pytest.mark.parametrize("kind", [PaysInTwoSteps, ForgetsFirst])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_planted_bug_is_found(tmp_path: Path, seed: int, kind: type[Bank]) -> None:
    cuts = power_cuts(kind, tmp_path, seed)
    with pytest.raises((AssertionError, OffsetOutOfRange)):
        for cut in cuts:
            check(kind, tmp_path, cut)
