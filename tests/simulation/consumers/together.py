"""A consumer of a run's topic and of another one by one object, and what is certain of the other topic's messages.

It competes with the run's other consumers: what it gets of their topic is judged as theirs is. What it gets of the
other topic it acknowledges together with theirs, which is one record in one lane: all of it, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from stratalog.store import (
    Delivery,
    MessageStore,
    PublishBufferFull,
    StaleReceipt,
    StoreError,
    StoreFull,
)

from ..check import BrokenPromise
from .ledger import Kind
from .shape import TOPIC
from .side import SIDE, Joint, Place, Side


def may_be_together(kind: Kind) -> bool:
    """Whether a subscription may be of both topics: one whose messages come at once, all of them."""
    return not kind.is_ordered and kind.dead_letters is None and "filter" not in kind.settings


class Together:
    """An object of both topics, as a run uses those of one. What it has not itself is the other object's."""

    def __init__(self, store: MessageStore, kind: Kind, side: Side, lanes: int) -> None:
        self.sub = store.subscribe([TOPIC, SIDE], kind.name, **kind.fixed)
        self._one = self.sub._members.by_topic[TOPIC]
        self._side = side
        self._lanes = lanes
        self._held: list[Delivery] = []
        self._count = 0
        side.made.add(kind.name)
        for known in (side.acked, side.unsure):
            known.setdefault(kind.name, set())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._one, name)

    @property
    def failed(self) -> StoreError | None:
        """What the next receive raises."""
        return self.sub._members.failed

    def receive(self, max_messages: int, wait_ms: int | None = None, visibility_ms: int = 0) -> list[Delivery]:
        """The messages of the run's topic; those of the other one are held. Without a wait it is to raise an error."""
        if wait_ms is None:
            return self._one.receive(max_messages) if self.failed is None else self.sub.receive(max_messages)
        self._count += 1
        if self._count % 2:
            found = self.sub.receive_batch(max_messages, wait_ms, visibility_ms).deliveries()
        else:
            found = self.sub.receive(max_messages, wait_ms, visibility_ms)
        for one in found:
            if one.message.topic == SIDE:
                self._side.given(self._one.name, one.message.offset)
                self._held.append(one)
        return [one for one in found if one.message.topic == TOPIC]

    def ack(self, delivery: Delivery) -> None:
        """By the object of both."""
        self.sub.ack(delivery)

    def submit_ack(self, delivery: Delivery) -> Any:
        """By the object of both."""
        return self.sub.submit_ack(delivery)

    def nack_batch(self, given: Sequence[Delivery], delay_ms: int) -> None:
        """By the object of both."""
        self.sub.nack_batch(given, delay_ms)

    def extend(self, delivery: Delivery, ms: int) -> None:
        """By the object of both."""
        self.sub.extend(delivery, ms)

    def close(self) -> None:
        """Both."""
        self.sub.close()

    def ack_joint(self, given: Sequence[Delivery], tried: AbstractSet[Place]) -> None:
        """Acknowledge messages of the run's topic, and all that is held of the other one. Of those of the first `tried`
        had to come until now."""
        side, held, name = self._side, self._held, self._one.name
        self._held = []
        side.crashed()  # what failed before
        if self._lanes > 1:
            self.sub.ack_batch(given)
            return
        offsets = {one.message.offset for one in held}
        places = {(one.message.queue_id, one.message.offset) for one in given}
        side.joint = Joint(name, places, tried, offsets)
        try:
            self.sub.ack_batch([*given, *held])
        except (StaleReceipt, StoreFull, PublishBufferFull):
            side.joint = None
            raise
        side.acked[name] |= offsets
        side.joint = None


def look(store: MessageStore, kind: Kind, side: Side) -> tuple[set[Place], set[Place]]:
    """What came of the other topic after a crash. Returns the places of the run's topic that may not come, and those
    that must, as far as an acknowledgement of both says so. Raises BrokenPromise.
    """
    first = store.queue_bounds(SIDE, 0)[0]
    batch = store.subscribe(SIDE, kind.name, **kind.fixed).receive_batch(visibility_timeout_ms=1 << 39)
    came, joint = set(batch.offsets.tolist()), side.joint
    for offset in came:
        side.given(kind.name, offset)
    if joint is not None and joint.name != kind.name:
        joint = None
    must = set(range(first, side.sent)) - side.acked[kind.name] - side.unsure[kind.name]
    sides = set[int]() if joint is None else {at for at in joint.sides if at >= first}
    missing = must - sides - came
    if missing:
        raise BrokenPromise(f"{kind.name} never gets the messages {sorted(missing)[:5]} of {SIDE}")
    if joint is None or not sides - side.unsure[kind.name]:
        return set(), set()
    there = sides & came - side.unsure[kind.name]
    if there and there != sides - side.unsure[kind.name]:
        raise BrokenPromise(f"{kind.name} gets {sorted(there)} of {SIDE}, and not the others of one acknowledgement")
    return (set(), set(joint.tried)) if there else (set(joint.places), set())
