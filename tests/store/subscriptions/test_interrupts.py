"""A signal's handler may raise at any place of a receive or an acknowledgement: no message is lost by that."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StaleReceipt, Subscription

from ...clocks import SteppedClock
from ...seeds import draw_seed
from ..helpers import tiny
from ..interrupts import Interrupted, interrupt_at, places
from .helpers import TOPIC, fill
from .helpers import places as places_of

FILES = (
    "dispatcher.py", "scanner.py", "in_flight.py", "state.py", "journal.py", "group_commit.py", "gathering.py",
    "subscriptions/subscription.py",
)  # fmt: skip
MESSAGES = 6
STEP = 3  # each run tries every third place, and the next run others


def receive(sub: Subscription) -> object:
    return sub.receive(4)


def receive_batch(sub: Subscription) -> object:
    return sub.receive_batch(4).deliveries()


@pytest.mark.parametrize("mode", ["shared", "ordered"])
@pytest.mark.parametrize("work", [receive, receive_batch])
def test_an_interrupted_receive_loses_no_message(
    tmp_path: Path, work: Callable[[Subscription], object], mode: str
) -> None:
    clock = SteppedClock()
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        fill(store, MESSAGES // 2, MESSAGES // 2)
        for place in islice(places(), random.Random(draw_seed()).randrange(STEP), None, STEP):
            name = f"s{place}"
            with store.subscribe(TOPIC, name, mode=mode) as sub:  # type: ignore[arg-type]  # one of the two
                if place % 2:
                    sub.nack_batch([one.receipt for one in sub.receive(1)])
                interrupted, result = interrupt_at(place, FILES, lambda sub=sub: work(sub))  # type: ignore[misc]  # the loop's
                assert isinstance(result, Interrupted if interrupted else list)
                clock.now += 31
                seen = set()
                while got := sub.receive():
                    seen |= set(places_of(got))
                    sub.ack_batch(got)
                assert len(seen) == MESSAGES
                assert sub.backlog().total == 0
            assert store.delete_subscription(TOPIC, name)
            if not interrupted:
                break


@pytest.mark.parametrize("how", ["one", "batch", "ticket"])
def test_an_interrupted_acknowledgement_holds_or_can_be_made_again(tmp_path: Path, how: str) -> None:
    clock = SteppedClock()
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        fill(store, MESSAGES)

        def ack(sub: Subscription, receipt: int) -> None:
            if how == "batch":
                sub.ack_batch([receipt])
            elif how == "one":
                sub.ack(receipt)
            else:
                sub.submit_ack(receipt).result()

        for place in places():
            with store.subscribe(TOPIC, f"s{place}") as sub:
                first, *rest = sub.receive()
                interrupted, result = interrupt_at(place, FILES, lambda: ack(sub, first.receipt))  # noqa: B023  # called at once
                assert isinstance(result, Interrupted if interrupted else type(None))
                try:
                    sub.ack(first)
                    again = True
                except StaleReceipt:
                    again = False
                assert interrupted or not again
                clock.now += 31
                left = {at for _, at in places_of(sub.receive())}
                assert left == {one.message.offset for one in rest}
            if not interrupted:
                break
