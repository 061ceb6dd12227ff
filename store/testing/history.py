"""A checker of the history of a store: the appends and reads of concurrent producers and consumers.

Producers and consumers note each step as they take it, over any number of openings. `check` says at the end which
promises were broken. The rules are those of a totally ordered queue (Herlihy and Wing, "Linearizability", 1990),
reduced to rules that one pass can check, because the store itself gives each message its place.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Queue = tuple[str, int]  # (topic, queue id)
Outcome = Literal["open", "acknowledged", "refused", "unknown"]
NEVER = 1 << 62


class Violation(NamedTuple):
    """A broken promise: the rule, the place, and the observation."""

    rule: str
    topic: str
    queue_id: int
    offset: int
    seen: str


@dataclass
class Send:
    """One message on its way. `began` and `ended` are ticks of the history's own count, not times."""

    queue: Queue
    data: bytes
    began: int
    ended: int = NEVER
    outcome: Outcome = "open"
    offset: int = -1


@dataclass
class _Final:
    first: int
    rows: dict[int, bytes] = field(default_factory=dict)


class History:
    """The messages that were sent, acknowledged, read, and found at the end. Any number of threads may note them.

    The rules that `check` applies to each queue:
        dense: the offsets found at the end are first, first + 1 .. without a hole;
        kept: each message that was acknowledged or read is found at the end, at its offset and with its bytes, unless
            retention removed it: then its offset is below `first`;
        once: no two messages were acknowledged with one offset, and no data is found more often than it was sent;
        ordered: a message that was sent after another one's acknowledgement has the higher offset;
        sent: each message that is read or found was sent, and was not refused;
        same: a message that is read twice has the same bytes;
        in order: each named reader reads ascending offsets, none twice.

    Give each message other bytes: of equal messages only the number can be checked.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tick = 0
        self._sends: dict[Queue, list[Send]] = defaultdict(list)
        self._reads: dict[Queue, dict[int, bytes]] = defaultdict(dict)
        self._reached: dict[tuple[str, Queue], int] = {}
        self._final: dict[Queue, _Final] = {}
        self._seen: list[Violation] = []

    # -- noting ---------------------------------------------------------------------------------------

    def begin(self, topic: str, queue_id: int, data: bytes) -> Send:
        """Note a message that is about to be handed over."""
        with self._lock:
            self._tick += 1
            send = Send((topic, queue_id), data, self._tick)
            self._sends[send.queue].append(send)
            return send

    def acknowledged(self, send: Send, offset: int) -> None:
        """Note that its offset was returned."""
        with self._lock:
            self._tick += 1
            send.ended, send.outcome, send.offset = self._tick, "acknowledged", offset

    def refused(self, send: Send) -> None:
        """Note that an error said it was not stored."""
        send.outcome = "refused"

    def unknown(self, send: Send) -> None:
        """Note that it may or may not be stored: after a poisoned store or a crash."""
        send.outcome = "unknown"

    def read(self, topic: str, queue_id: int, offset: int, data: bytes, *, reader: str | None = None) -> None:
        """Note a message that was read. `reader` names a reader that reads in order."""
        queue = topic, queue_id
        with self._lock:
            before = self._reads[queue].setdefault(offset, data)
            if before != data:
                self._note("same", queue, offset, f"{data[:32]!r}, and {before[:32]!r} before")
            if reader is not None:
                reached = self._reached.get((reader, queue), -1)
                if offset <= reached:
                    self._note("in order", queue, offset, f"{reader} was at {reached}")
                self._reached[reader, queue] = offset

    def reopened(self, reader: str) -> None:
        """Note that a reader begins again: it may read the same messages once more."""
        with self._lock:
            for key in [key for key in self._reached if key[0] == reader]:
                del self._reached[key]

    def found(self, topic: str, queue_id: int, first: int, rows: Iterable[tuple[int, bytes]]) -> None:
        """Note the end state of a queue: its first offset, and its (offset, data) pairs in the order of a read."""
        queue = topic, queue_id
        final = self._final[queue] = _Final(first)
        for expected, (offset, data) in enumerate(rows, first):
            if offset != expected:
                self._note("dense", queue, offset, f"where offset {expected} should be")
            final.rows[offset] = data

    # -- checking -------------------------------------------------------------------------------------

    def check(self) -> list[Violation]:
        """Return every broken promise. A queue without a call of `found` counts as empty."""
        for queue in sorted({*self._sends, *self._reads, *self._final}):
            final = self._final.get(queue, _Final(0))
            sends = self._sends.get(queue, [])
            self._check_kept(queue, final, sends)
            self._check_once(queue, final, sends)
            self._check_order(queue, sends)
        return self._seen

    def _check_kept(self, queue: Queue, final: _Final, sends: list[Send]) -> None:
        for send in sends:
            if send.outcome == "acknowledged" and send.offset >= final.first:
                self._check_row(queue, final, send.offset, send.data, "acknowledged")
        for offset, data in self._reads.get(queue, {}).items():
            if offset >= final.first:
                self._check_row(queue, final, offset, data, "read")

    def _check_row(self, queue: Queue, final: _Final, offset: int, data: bytes, how: str) -> None:
        row = final.rows.get(offset)
        if row is None:
            self._note("kept", queue, offset, f"{how}, and not found")
        elif row != data:
            self._note("kept", queue, offset, f"{how} as {data[:32]!r}, found as {row[:32]!r}")

    def _check_once(self, queue: Queue, final: _Final, sends: list[Send]) -> None:
        offsets = Counter(send.offset for send in sends if send.outcome == "acknowledged")
        for offset, count in offsets.items():
            if count > 1:
                self._note("once", queue, offset, f"acknowledged {count} times")
        sent = Counter(send.data for send in sends if send.outcome != "refused")
        # Messages that retention removed are not found, so more may be sent than found, never less.
        for data, count in Counter(final.rows.values()).items():
            offset = next(at for at, row in final.rows.items() if row == data) if count > sent[data] else -1
            if not sent[data]:
                self._note("sent", queue, offset, f"{data[:32]!r} was never sent, or refused")
            elif count > sent[data]:
                self._note("once", queue, offset, f"{data[:32]!r} sent {sent[data]} times, found {count} times")
        for offset, data in self._reads.get(queue, {}).items():
            if not sent[data]:
                self._note("sent", queue, offset, f"{data[:32]!r} was read, and never sent")

    def _check_order(self, queue: Queue, sends: list[Send]) -> None:
        """From the highest offset down: no later message was answered before this one was begun."""
        earliest, at = NEVER, -1
        done = [send for send in sends if send.outcome == "acknowledged"]
        for send in sorted(done, key=lambda send: -send.offset):
            if earliest < send.began:
                self._note("ordered", queue, send.offset, f"sent after offset {at} was acknowledged")
            if send.ended < earliest:
                earliest, at = send.ended, send.offset

    def _note(self, rule: str, queue: Queue, offset: int, seen: str) -> None:
        self._seen.append(Violation(rule, *queue, offset, seen))
