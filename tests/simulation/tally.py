"""What runs of a simulation have tried."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields


@dataclass
class Tally:
    """What was tried, in one run or in many."""

    seeds: int = 0
    messages: int = 0
    operations: int = 0
    states: int = 0  # different ones of a run
    in_recovery: int = 0
    again: int = 0  # recovered twice more
    same: int = 0  # left out: bytes that were seen before, with the same promises
    manners: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)  # of the operation, or the call, that the crash came into
    parts: Counter[str] = field(default_factory=Counter)  # of the schedule: how many states or events of each
    faults: Counter[str] = field(default_factory=Counter)  # injected errors that struck
    outcomes: Counter[str] = field(default_factory=Counter)  # what the store raised then
    violations: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add what somebody else tried."""
        for one in fields(self):
            mine, its = getattr(self, one.name), getattr(other, one.name)
            setattr(self, one.name, mine + its)
