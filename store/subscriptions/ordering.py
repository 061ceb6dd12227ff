"""Order: a queue, or a key in it, has one batch out at a time; the next one goes out when all of it is acknowledged.

This is the state of the lines; `lines` gives messages out by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice, repeat
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ..format.arrays import Int64s

MOST_PARKED = 10_000  # that wait for others of their key; more are not read ahead
NO_LIMIT = 1 << 62
NOT_GIVEN: Final = 0  # no receipt has this number

Place: TypeAlias = "tuple[int, int]"  # (queue id, offset)
LineName: TypeAlias = "tuple[int, bytes]"  # (queue id, key); of a whole queue the key is empty


class Line:
    """The state of one line.

    Attributes:
        out: by offset, in the order in which they go out: the messages of the current batch that are not acknowledged
            for good, with their receipts; NOT_GIVEN on the way to the consumer.
        waiting: the offsets whose turn comes after the batch.
        call: the number of the consumer's call that began the batch.
        is_blocked: messages of the batch are to come again, and wait until no consumer has others of it.
    """

    __slots__ = ("call", "is_blocked", "name", "out", "waiting")

    def __init__(self, name: LineName, call: int) -> None:
        self.name = name
        self.out: dict[int, int] = {}
        self.waiting: deque[int] = deque()
        self.call = call
        self.is_blocked = False


class Order:
    """The lines of messages that wait for each other. One thread at a time.

    Invariants:
        * the messages that are out of a line were given to one consumer by one call; some may wait for redelivery;
        * the messages of a line go out in the order in which they were admitted.

    Attributes:
        freed: lines whose next batch may go out. A line whose messages are out is listed by mistake, and skipped.
        reopened: queues whose line has ended since the last question.
        stirred: blocked lines to look at again: a message of them was acknowledged, or their state is not known.
    """

    def __init__(self, *, by_key: bool) -> None:
        self.by_key = by_key
        self.freed: deque[Line] = deque()
        self.reopened: list[int] = []
        self.stirred: list[Line] = []
        self._lines: dict[LineName, Line] = {}
        self._of: dict[Place, Line] = {}  # by key: the line of each message that is out
        self._parked = 0
        self._call = 0

    def begin(self) -> None:
        """A call of a consumer begins: the messages of a line that it gets are one batch."""
        self._call += 1

    def line_of(self, queue_id: int, offset: int) -> Line | None:
        """The line of a message that is out; None if it is in none."""
        if self.by_key:
            return self._of.get((queue_id, offset))
        line = self._lines.get((queue_id, b""))
        return line if line is not None and offset in line.out else None

    # -- new messages ---------------------------------------------------------------------------------

    def limit_of(self, queue_id: int) -> int:
        """The number of new messages of a queue that may be read now."""
        if self.by_key:
            return max(0, MOST_PARKED - self._parked)
        return 0 if (queue_id, b"") in self._lines else NO_LIMIT

    def admit(self, queue_id: int, offsets: Sequence[int], keys: Sequence[bytes | None] | None) -> list[bool]:
        """(n,) whether each of some new messages goes out by this call. The others wait for their turn.

        `keys`: only by key, the key of each. A message without a key is in no line.
        """
        if not self.by_key:
            return [self._admit((queue_id, b""), offsets)] * len(offsets)
        if keys is None:
            return [True] * len(offsets)
        pairs = zip(offsets, keys, strict=True)
        return [key is None or self._admit((queue_id, key), (offset,)) for offset, key in pairs]

    def _admit(self, name: LineName, offsets: Sequence[int]) -> bool:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(name, self._call)
        elif line.call != self._call or line.waiting:
            line.waiting.extend(offsets)
            self._parked += len(offsets)
            return False
        self._let_out(line, offsets)
        return True

    def _let_out(self, line: Line, offsets: Sequence[int]) -> None:
        line.out.update(zip(offsets, repeat(NOT_GIVEN)))
        if self.by_key:
            self._of.update(zip(zip(repeat(line.name[0]), offsets), repeat(line)))

    def given(self, places: Iterable[Place], receipts: Sequence[int]) -> None:
        """Note the receipts of messages."""
        for (queue_id, offset), receipt in zip(places, receipts, strict=True):
            line = self.line_of(queue_id, offset)
            if line is not None:
                line.out[offset] = receipt

    # -- the next of a line ---------------------------------------------------------------------------

    def next_freed(self, most: int, queue_id: int | None = None) -> list[tuple[Line, int]]:
        """The next messages of lines whose turn has come, line by line, `most` together; they stay listed.

        With a queue, only those of its lines: it passes over the others, which are at most as many as may be parked.
        """
        found: list[tuple[Line, int]] = []
        for line in self.freed:
            if len(found) >= most:
                break
            if not line.out and queue_id in (None, line.name[0]):
                found += [(line, offset) for offset in islice(line.waiting, most - len(found))]
        return found

    def went(self, taken: Sequence[tuple[Line, int]]) -> None:
        """The first messages of `next_freed` go out by this call, except those that a seek has taken meanwhile."""
        for line, offset in taken:
            if self._lines.get(line.name) is line and line.waiting and line.waiting[0] == offset:
                line.waiting.popleft()
                self._parked -= 1
                line.call = self._call
                self._let_out(line, (offset,))
        while self.freed and (self.freed[0].out or not self.freed[0].waiting):
            self.freed.popleft()
        if len(self.freed) > len(self._lines):  # some are listed twice, behind one that nobody takes
            self.freed = deque(dict.fromkeys(line for line in self.freed if line.waiting and not line.out))

    def release(self, queue_id: int, offset: int) -> bool:
        """A message is acknowledged, or gone. True if others may go out now. A second call does no harm."""
        line = self.line_of(queue_id, offset)
        if line is None:
            return False
        name, out = line.name, line.out
        is_last = len(out) == 1
        # No call from here on: an interrupt finds all done, or nothing.
        if line.is_blocked:
            self.stirred += [line]
        if is_last and line.waiting:
            self.freed += [line]
        elif is_last:
            del self._lines[name]
            if not self.by_key:
                self.reopened += [queue_id]
        if self.by_key:
            del self._of[queue_id, offset]
        del out[offset]
        return line.is_blocked or (is_last and (not self.by_key or bool(line.waiting)))

    def have(self, queues: Int64s, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which messages, by queue id and offset, are out, or wait in a line."""
        lines = self._lines.values() if self._parked else ()  # few wait, and many may be out
        waiting = {(line.name[0], offset) for line in lines for offset in line.waiting}
        pairs = zip(queues.tolist(), offsets.tolist(), strict=True)
        known = [at in waiting or self.line_of(*at) is not None for at in pairs]
        return np.array(known, np.bool_)

    # -- starting over --------------------------------------------------------------------------------

    def keep(self, given: Mapping[Place, int]) -> None:
        """Keep only messages with a receipt, also if they are being acknowledged; all others are admitted anew."""
        lines: dict[LineName, Line] = {}
        for line in self._lines.values():
            queue_id, kept = line.name[0], Line(line.name, line.call)
            for offset in line.out:
                receipt = given.get((queue_id, offset), NOT_GIVEN)
                if receipt != NOT_GIVEN:
                    kept.out[offset] = receipt
            if kept.out:
                lines[line.name] = kept
        self._use(lines)

    def drop(self, queue_ids: Container[int]) -> None:
        """Drop the lines of some queues."""
        self._use({name: line for name, line in self._lines.items() if name[0] not in queue_ids})

    def _use(self, lines: dict[LineName, Line]) -> None:
        """Go on with these lines; each of them may be blocked."""
        freed = deque(line for line in lines.values() if not line.out)
        parked = sum([len(line.waiting) for line in lines.values()])
        of = {(line.name[0], at): line for line in lines.values() for at in line.out} if self.by_key else {}
        stirred = list(lines.values())
        # No call from here on: an interrupt finds all done, or nothing.
        self._lines, self._of, self.freed, self.stirred, self._parked = lines, of, freed, stirred, parked
