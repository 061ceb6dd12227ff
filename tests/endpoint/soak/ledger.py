"""What clients were promised in the endpoint's soak, held against what there is."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


class Violation(Exception):
    """A promise was broken."""


@dataclass
class Ledger:
    """Sends and acknowledgements that were asked for, and those that were answered.

    Promises: what was answered is stored once; what was not answered at most once; a message whose acknowledgement was
    answered does not come again; what is stored comes, and goes by an acknowledgement (whose answer may be lost).
    """

    sending: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)
    came: Counter[str] = field(default_factory=Counter)
    asked: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)
    failed: Counter[str] = field(default_factory=Counter)
    idle: int = 0
    again: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, line: Sequence[str]) -> None:
        """A line of the client."""
        what, *rest = line
        with self.changed:
            if what == "sending":
                self.sending.add(rest[0])
            elif what == "sent":
                self.sent.add(rest[0])
            elif what == "failed":
                self.failed[rest[1]] += 1
            elif what == "came":
                self.came[rest[0]] += 1
                if rest[0] in self.acked:
                    self.again.append(rest[0])
            elif what == "acking":
                self.asked.add(rest[0])
            elif what == "acked":
                self.acked.add(rest[0])
            self.idle = self.idle + 1 if what == "idle" else 0
            self.changed.notify_all()

    def wait(self, ready: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until something is so. Raises Violation."""
        with self.changed:
            if not self.changed.wait_for(ready, timeout_s):
                raise Violation(f"{what}: not within {timeout_s:.0f} s; {self.line()}")

    def check(self, stored: Sequence[str]) -> None:
        """Hold all against the names of the messages that are stored. Raises Violation."""
        counts = Counter(stored)
        faults = {
            "lost": sorted(self.sent - counts.keys()),
            "stored twice": sorted(name for name, count in counts.items() if count > 1),
            "never sent": sorted(counts.keys() - self.sending),
            "came again after its acknowledgement was answered": self.again,
            "never came": sorted(counts.keys() - self.came.keys()),
            "nobody has tried to acknowledge": sorted(counts.keys() - self.asked),
        }
        found = {what: (len(names), names[:5]) for what, names in faults.items() if names}
        if found:
            raise Violation(f"{found}; {self.line()}")

    def line(self) -> str:
        """The running count."""
        twice = sum(count > 1 for count in self.came.values())
        return (
            f"{len(self.sent):,} sends answered, {len(self.sending - self.sent):,} not; {len(self.came):,} came, "
            f"{twice:,} more than once, {len(self.acked):,} acknowledged; failed sends: {dict(self.failed)}"
        )
