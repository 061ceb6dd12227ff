"""When a partly filled block is padded and when it is held back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore
from stratalog.store.config import Alignment
from stratalog.store.log.alignment import TailChoice, should_pad
from stratalog.store.log.lane_machine import LaneMachine
from stratalog.store.log.write import Write

from .helpers import tiny, until

pytestmark = pytest.mark.disk

POLICIES: list[Alignment] = ["pad", "trim", "adaptive"]
BUSY = TailChoice(held=1, answered=9, empty_bytes=100)


@pytest.mark.parametrize("policy", POLICIES)
def test_full_block_is_always_written(policy: Alignment) -> None:
    assert should_pad(policy, BUSY._replace(empty_bytes=0))


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_held_when_nothing_would_push_it_out(
    policy: Alignment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One producer that waits for each message: a batch is never followed by another one."""
    plans: list[bool] = []
    plan = LaneMachine.plan

    def watched(lane: LaneMachine, *, follows: bool, **more: Any) -> list[Write]:
        writes = plan(lane, follows=follows, **more)
        if not follows:
            plans.append(lane.issued >= lane.tail)
        return writes

    monkeypatch.setattr(LaneMachine, "plan", watched)
    with MessageStore.open(tmp_path, tiny(alignment=policy)) as store:
        for number in range(9):
            store.append("t", 0, b"%d" % number * 100)
            until(lambda: store._queues[0]._under_way == 0)  # else two would seem to be under way
    assert len(plans) >= 9
    assert all(plans)


def test_pad_always_pads() -> None:
    assert should_pad("pad", BUSY._replace(empty_bytes=4095))


def test_trim_holds_whatever_it_costs() -> None:
    assert not should_pad("trim", BUSY._replace(held=100))


def test_adaptive_holds_a_nearly_empty_block_with_few_messages() -> None:
    assert not should_pad("adaptive", BUSY._replace(held=1, answered=999, empty_bytes=4000))


def test_adaptive_pads_a_nearly_full_block_with_many_messages() -> None:
    assert should_pad("adaptive", BUSY._replace(held=40, answered=10, empty_bytes=10))


def test_adaptive_pads_when_nobody_would_be_answered() -> None:
    assert should_pad("adaptive", BUSY._replace(answered=0, empty_bytes=4000))
