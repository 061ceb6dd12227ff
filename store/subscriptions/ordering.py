"""Order: of a queue, or of a key in it, the next message goes out only when the one before was acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
MOST_PARKED = 10_000  # messages that wait for another one of their key; more are not read ahead

Place: TypeAlias = "tuple[int, int]"  # (queue id, offset)
Line: TypeAlias = "tuple[int, bytes]"  # (queue id, key); of a whole queue the key is empty


class Order:
    """Who waits for whom. One thread at a time.

    Invariants:
        * of each line at most one message is out, or waits to be given out again;
        * the messages of a line go out in the order in which they were admitted.
    """

    def __init__(self, *, by_key: bool) -> None:
        self.by_key = by_key
        self.freed: deque[Place] = deque()  # whose turn has come
        self.reopened: list[int] = []  # queues whose line has ended since somebody asked
        self._lines: dict[Line, deque[int]] = {}  # with a message out: the offsets behind it
        self._out: dict[Place, Line] = {}
        self._parked = 0

    def admit(self, queue_id: int, offset: int, key: bytes | None) -> bool:
        """Whether a new message may go out now; if not, its turn comes. Without a key it is in no line."""
        if self.by_key and key is None:
            return True
        line = (queue_id, key or b"" if self.by_key else b"")
        behind = self._lines.get(line)
        if behind is None:
            self._lines[line] = deque()
            self._out[queue_id, offset] = line
            return True
        behind.append(offset)
        self._parked += 1
        return False

    def limit_of(self, queue_id: int) -> int:
        """How many new messages of a queue may be read now."""
        is_blocked = self._parked >= MOST_PARKED if self.by_key else (queue_id, b"") in self._lines
        return 0 if is_blocked else 1

    def release(self, queue_id: int, offset: int) -> bool:
        """A message is acknowledged, or gone; True if another one's turn has come, or the queue's."""
        line = self._out.get((queue_id, offset))
        if line is None:
            return False
        behind = self._lines[line]
        # From here on there is no call, up to the last step: an interrupt finds all done, or nothing.
        del self._out[queue_id, offset]
        if not behind:
            del self._lines[line]
            if not self.by_key:
                self.reopened += [queue_id]
            return not self.by_key
        following = behind[0]
        del behind[0]
        self._parked -= 1
        self._out[queue_id, following] = line
        self.freed += [(queue_id, following)]
        return True

    def have(self, queues: Int64s, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which messages, by queue id and offset, are out, or in a line behind one that is."""
        known = {(line[0], offset) for line, behind in self._lines.items() for offset in behind} | self._out.keys()
        pairs = zip(queues.tolist(), offsets.tolist(), strict=True)
        return np.fromiter(map(known.__contains__, pairs), np.bool_, len(offsets))

    def keep(self, is_out: Callable[[int, int], bool]) -> None:
        """Only what is out, by its queue id and offset, stays at the head of its line; all others are admitted anew."""
        self.freed.clear()
        self._out = {place: line for place, line in self._out.items() if is_out(*place)}
        self._lines = {line: deque() for line in self._out.values()}
        self._parked = 0

    def drop(self, queue_ids: Container[int]) -> None:
        """Nothing of some queues is out any more."""
        self.freed = deque(place for place in self.freed if place[0] not in queue_ids)
        self._out = {place: line for place, line in self._out.items() if place[0] not in queue_ids}
        self._lines = {line: behind for line, behind in self._lines.items() if line[0] not in queue_ids}
        self._parked = sum(map(len, self._lines.values()))
