"""What is certain of the messages of another topic, of which some consumers of a run take by the same object."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from ..check import BrokenPromise

Place = tuple[int, int]
SIDE: Final = "side"


@dataclass
class Joint:
    """An acknowledgement of messages of both topics that has not returned: `tried` must come if it is not stored."""

    name: str
    places: AbstractSet[Place]
    tried: AbstractSet[Place]
    sides: AbstractSet[int]


@dataclass
class Side:
    """The other topic, which has one queue.

    Attributes:
        sent: the offsets that are durable.
        acked: by subscription, the offsets whose acknowledgement has returned; of those `unsure` nothing is certain.
        made: the names that have a subscription of it for certain.
    """

    sent: int = 0
    acked: dict[str, set[int]] = field(default_factory=dict)
    unsure: dict[str, set[int]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    joint: Joint | None = None

    def crashed(self) -> None:
        """A life has ended."""
        if self.joint is not None:
            self.unsure[self.joint.name] |= self.joint.sides
            self.joint = None

    def given(self, name: str, offset: int) -> None:
        """Raise BrokenPromise if a subscription may not get this message."""
        if offset in self.acked.get(name, ()):
            raise BrokenPromise(f"{name} gets the message {offset} of {SIDE} again, which was acknowledged")
