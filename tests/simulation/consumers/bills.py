"""Transactions of a run: each appends one bill for the messages that it acknowledges, and nobody else appends any."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from stratalog.store import MessageStore

from ..check import BrokenPromise

Place = tuple[int, int]
BILLS = "bills"


class Trying(NamedTuple):
    """A transaction whose commit has not returned.

    Attributes:
        name: of the subscription.
        places: the messages that come no more once it is stored.
        tried: those of them that had to come before, and must come if it is not stored.
    """

    name: str
    places: AbstractSet[Place]
    tried: AbstractSet[Place]


class Bills:
    """How many bills are certain: `stored`, None if that is not known. `trying`: one more may be there."""

    def __init__(self) -> None:
        self.stored: int | None = 0
        self.trying: Trying | None = None

    def is_there(self, count: int) -> bool:
        """Whether the transaction that is tried is among so many bills. Raises BrokenPromise."""
        if self.stored is None:
            return False
        if not self.stored <= count <= self.stored + (self.trying is not None):
            raise BrokenPromise(f"there are {count} bills, and {self.stored} were stored, and {self.trying} is tried")
        return count > self.stored

    def opened(self, count: int) -> None:
        """The store was opened with so many."""
        self.is_there(count)
        self.stored, self.trying = count, None


def count_bills(store: MessageStore) -> int:
    """How many bills were stored; retention may have removed some."""
    return sum(store.queue_bounds(BILLS, queue_id)[1] for queue_id in store.queues(BILLS))
