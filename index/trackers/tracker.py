"""The interface of all trackers: which entries are delayed, and which of them are due.

A tracker knows positions and times and nothing of messages. An entry is added once, with its delivery time. When
that time has come, `hand_out` gives it out, and the tracker forgets it.

**Give, then take.** An exception may come at any step: a signal's handler raises, memory ends, a file cannot be read.
So code that moves an entry first puts it into the new place, and then removes it from the old one. In between it is in
both, which is harmless: adding or delivering it again does nothing. `hand_out` follows this rule for a tracker, and
`DueScan` for the log. If a step cannot have this order, it is marked while it goes on: a tracker that an exception has
met in the middle of a change *is damaged*. Then all its calls raise TrackerDamaged, and the owner makes it again.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from operator import index
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..columns import Int64s
from ..errors import BadEntry, TrackerClosed, TrackerDamaged, TrackerFull
from ..locks import tell_after_fork
from .places import (
    ENTRY_BITS,
    MOST_ENTRY,
    MOST_LEDGER,
    MOST_PRECISION_BITS,
    MOST_TIME_MS,
    NO_ROWS,
    Rows,
    bad_entry,
    checked_columns,
    places_in,
    positions_of,
    rounded_up,
)

SLICE_ROWS, UNCHECKED_ADDS = 1 << 18, 256  # rows, or single entries, between two checks of the memory limit
PORTION_ROWS = 1 << 17  # rows that are handed out together
CUT_SHORT = "an exception has ended a change of the index in the middle"
AS_BEFORE = (OSError, BadEntry, TrackerFull)  # errors after which a tracker is as it was before the call

P = ParamSpec("P")
T = TypeVar("T")


class Tracker(ABC):
    """Delayed entries of one topic, for all of its queues and subscriptions.

    A position is (ledger, entry): ledger 0 .. 2**31 - 1, entry 0 .. 2**32 - 1. Times are integer milliseconds, 0 ..
    2**62 - 1. With a precision of b bits each time is rounded *up* to a multiple of 2**b ms: delivery is never early,
    and late by less than 2**b ms. Entries come by (rounded time, ledger, entry).

    All methods may be called from any thread. The tracker has no clock: the caller gives the time, and a time
    before an earlier one gives fewer entries, never wrong ones. After `close`, or in a forked child, all methods raise
    TrackerClosed.

    Invariant: `_is_changing` is set from the first step of a change to its last one. So it marks each change that an
    exception has ended, except those of `AS_BEFORE`, also if the exception came twice.
    """

    def __init__(self, precision_bits: int, memory_limit_bytes: int | None) -> None:
        if type(precision_bits) is not int or not 0 <= precision_bits <= MOST_PRECISION_BITS:
            raise BadEntry(f"precision_bits is an integer from 0 to {MOST_PRECISION_BITS}, not {precision_bits!r}")
        if memory_limit_bytes is not None and (type(memory_limit_bytes) is not int or memory_limit_bytes < 1):
            raise BadEntry(f"memory_limit_bytes is an integer of 1 or more, or None, not {memory_limit_bytes!r}")
        self._bits = precision_bits
        self._memory_limit_bytes = memory_limit_bytes
        self._unchecked = 0  # entries that may be added before memory is checked
        self._lock = threading.RLock()
        self._why_closed = ""
        self._is_changing = False
        self._file_damage = ""  # the text of a TrackerDamaged that a file has raised
        self.on_damage: Callable[[], object] = lambda: None  # with the lock: a call has found or made damage
        tell_after_fork(self)

    # adding

    def add_message(self, ledger: int, entry: int, deliver_at_ms: int) -> bool:
        """Add an entry; True if it is new. One that is pending already stays as it is: to move it, cancel it first.

        An entry whose time is over is due at once. Raises BadEntry for a bad value, TrackerFull at the memory limit.
        """
        try:
            place = ledger << ENTRY_BITS | entry
            if type(place) is not int or type(deliver_at_ms) is not int:  # numpy's integers have few bits
                return self.add_message(index(ledger), index(entry), index(deliver_at_ms))
            time_ms = -(-deliver_at_ms >> self._bits << self._bits)
        except TypeError as error:
            raise bad_entry(ledger, entry, deliver_at_ms) from error
        if not (0 <= ledger <= MOST_LEDGER and 0 <= entry <= MOST_ENTRY and 0 <= deliver_at_ms <= MOST_TIME_MS):
            raise bad_entry(ledger, entry, deliver_at_ms)
        with self._lock:
            if self._why_closed or self._is_changing:
                self._refuse()
            self._is_changing = True
            try:
                if self._memory_limit_bytes is not None:
                    self._unchecked -= 1
                    if self._unchecked < 0:
                        self._refuse_if_full()
                        self._unchecked = UNCHECKED_ADDS
                is_new = self._add_one(place, time_ms)
            except AS_BEFORE:
                self._is_changing = False
                raise
            self._is_changing = False
            return is_new

    def put_back(self, ledger: int, entry: int, deliver_at_ms: int) -> bool:
        """`add_message` for an entry that was taken or cancelled just now: it always has room, and needs no disk.

        So a caller that took it and could not go on can always make it pending again. Raises BadEntry.
        """
        (time_ms,), (place,) = checked_columns([ledger], [entry], [deliver_at_ms])
        return self._change(self._put_back, int(place), -(-int(time_ms) >> self._bits << self._bits))

    def _put_back(self, place: int, time_ms: int) -> bool:
        return self._add_one(place, time_ms)

    def add_messages(self, ledgers: npt.ArrayLike, entries: npt.ArrayLike, deliver_at_ms: npt.ArrayLike) -> int:
        """Add three integer arrays of one length; ledgers and times may be a number. Returns how many are new.

        As with `add_message`, pending entries stay as they are, so a batch may be given again; if an entry is there
        twice, the first time counts. Raises BadEntry, after adding nothing; TrackerFull, maybe after adding a part.
        """
        times, places = checked_columns(ledgers, entries, deliver_at_ms)
        new = 0
        for begin in range(0, len(times), SLICE_ROWS):
            rows = slice(begin, begin + SLICE_ROWS)
            new += self._change(self._add_slice, times[rows], places[rows])
        return new

    def _add_slice(self, times: Int64s, places: Int64s) -> int:
        self._refuse_if_full()
        return self._add_rows(rounded_up(times, self._bits), places)

    def _is_full(self) -> bool:
        return self._memory_limit_bytes is not None and self._memory_bytes() >= self._memory_limit_bytes

    def _refuse_if_full(self) -> None:
        if self._is_full():
            raise TrackerFull(
                f"the tracker has {self._memory_bytes():,} bytes of the {self._memory_limit_bytes:,} that are its limit"
            )

    # asking

    def get_scheduled_messages(self, now_ms: int, max_messages: int) -> tuple[Int64s, Int64s]:
        """Take entries that are due at `now_ms`: (ledgers, entries), int64 arrays of at most `max_messages`, in order.

        An interrupt of this call may lose entries on their way to the caller; `hand_out` loses none. Raises BadEntry
        for a number of messages below 0.
        """
        parts: list[tuple[Int64s, Int64s]] = [(NO_ROWS[0], NO_ROWS[0])]
        self.hand_out(now_ms, max_messages, lambda *part: parts.append(part))
        if len(parts) == 2:  # a part, and the empty one
            return parts[1]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def hand_out(self, now_ms: int, max_messages: int, give: Callable[[Int64s, Int64s], object]) -> int:
        """Call `give` with entries that are due at `now_ms`, in order, at most `max_messages`. Returns their number.

        `give(ledgers, entries)` gets one part at a time. The entries of a part are forgotten when it has returned: if
        it raises, they stay pending, and after an interrupt they may be handed out again. It must not use the tracker.
        Raises BadEntry for a number of messages below 0.
        """
        try:
            now_ms, max_messages = index(now_ms), index(max_messages)
        except TypeError as error:
            raise BadEntry(f"a time and a number of messages are integers: {error}") from error
        if max_messages < 0:
            raise BadEntry(f"max_messages is 0 or more, not {max_messages}")
        count = 0
        while count < max_messages:
            wanted = min(max_messages - count, PORTION_ROWS)
            with self._open():
                places = self._change(self._peek, min(now_ms, MOST_TIME_MS), wanted)
                if len(places):
                    give(*positions_of(places))
                    self._change(self._drop, len(places))
            count += len(places)
            if len(places) < wanted:
                break
        return count

    def has_message_available(self, now_ms: int) -> bool:
        """Whether `get_scheduled_messages` would return an entry at this time."""
        next_ms = self.next_deadline_ms
        return next_ms is not None and next_ms <= now_ms

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first pending entry is due, exactly and as rounded; None if none is pending."""
        return self._change(self._next_ms)

    def are_pending(self, ledgers: npt.ArrayLike, entries: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """(n,) which positions are pending. Two integer arrays of one length; `ledgers` may be a number.

        Raises BadEntry for a value out of range.
        """
        _, places = checked_columns(ledgers, entries, 0)
        return self._look(self._are_pending, places)

    def pending_places(self) -> BitMap64:
        """All pending entries, as a set of places: ledger * 2**32 + entry. A copy: as large as the tracker's sets."""
        return self._look(self._pending_places)

    @property
    def number_of_delayed_messages(self) -> int:
        """The number of pending entries: added, and neither given out nor cancelled. In constant time."""
        return self._look(self._count)

    def __len__(self) -> int:
        return self.number_of_delayed_messages

    @property
    def precision_ms(self) -> int:
        """Entries that are added now are late by less than this; 1: exact."""
        return 1 << self._bits

    @property
    def buffer_memory_usage(self) -> int:
        """Bytes of memory that the tracker takes, about."""
        return self._look(self._memory_bytes)

    @property
    def should_pause_all_deliveries(self) -> bool:
        """Whether the tracker is at its memory limit: read no further until entries were taken; adding raises."""
        return self._look(self._is_full)

    def stats(self) -> dict[str, Any]:
        """Counts, plain and JSON-ready, with the forms of the entries."""
        return self._look(lambda: {"pending": self._count(), "precision_ms": self.precision_ms, **self._stats()})

    @property
    def damage(self) -> str:
        """Why the tracker is damaged, so that all calls except `close` raise TrackerDamaged; "" if it is not."""
        with self._lock:  # a change by another thread is not damage
            return self._file_damage or (CUT_SHORT if self._is_changing else "")

    @property
    def has_damaged_file(self) -> bool:
        """Whether wrong bytes are the damage: an opening of the same files would find them again."""
        return bool(self._file_damage)

    # changing

    def cancel(self, ledger: int, entry: int) -> bool:
        """Cancel an entry. True exactly if it was still pending; then it is never given out."""
        _, (place,) = checked_columns([ledger], [entry], [0])
        return self._change(self._cancel, int(place))

    def discard(self, ledger: int, first_entry: int, before_entry: int) -> Int64s:
        """Cancel the pending entries `first_entry` .. `before_entry` - 1 of a ledger, together. Returns (n,) these."""
        for value, most in ((ledger, MOST_LEDGER), (first_entry, MOST_ENTRY), (before_entry, MOST_ENTRY + 1)):
            if not isinstance(value, int) or not 0 <= value <= most:
                raise BadEntry(f"a ledger and entries are in their ranges, not {ledger}, {first_entry}, {before_entry}")
        first_place = ledger << ENTRY_BITS
        gone = self._change(self._discard, first_place + first_entry, first_place + before_entry)
        return places_in(gone) & MOST_ENTRY

    def trim(self, before_ledger: int) -> int:
        """Forget all pending entries of ledgers before this one, and no others. Returns how many they were."""
        if not isinstance(before_ledger, int) or not 0 <= before_ledger <= MOST_LEDGER + 1:
            raise BadEntry(f"before_ledger is from 0 to {MOST_LEDGER + 1:,}, not {before_ledger!r}")
        return self._change(self._trim, before_ledger << ENTRY_BITS)

    def reset_tick_time(self, ms: int) -> None:
        """Set the precision of entries added from now on: the greatest power of two that is at most `ms`.

        Older entries keep their times. 1 ms is exact. Raises BadEntry below 1.
        """
        if not isinstance(ms, int) or not 1 <= ms < 2 << MOST_PRECISION_BITS:
            raise BadEntry(f"a tick is from 1 to {(2 << MOST_PRECISION_BITS) - 1:,} ms, not {ms!r}")
        with self._open():
            self._bits = ms.bit_length() - 1  # one step

    def clear(self) -> None:
        """Forget all entries."""
        self._change(self._clear)

    def close(self) -> None:
        """Close it. A tracker in memory forgets its entries. A second call does no harm."""
        with self._lock:
            if not self._why_closed:
                self._why_closed = "the tracker is closed"
                self._close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def after_fork(self) -> None:
        """In the child of a fork: fresh lock, no use."""
        self._lock = threading.RLock()
        self._is_changing = False  # it was another thread's, which is not here
        self._why_closed = "the tracker belongs to the parent process: make or open one after the fork"

    def _open(self) -> threading.RLock:
        """The lock of a tracker that is not closed."""
        if self._why_closed:
            raise TrackerClosed(self._why_closed)
        return self._lock

    def _refuse(self) -> None:
        """Raise TrackerClosed or TrackerDamaged if it is so. Under the lock."""
        if self._why_closed:
            raise TrackerClosed(self._why_closed)
        if self._is_changing:
            raise TrackerDamaged(self._file_damage or CUT_SHORT)

    def _look(self, step: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Run a step that changes nothing."""
        with self._open():
            self._refuse()
            try:
                return step(*given, **named)
            except TrackerDamaged as error:
                self._file_damage, self._is_changing = str(error), True
                self.on_damage()
                raise

    def _change(self, step: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Run a step that may change memory. An exception in it leaves the tracker damaged."""
        with self._open():
            self._refuse()
            self._is_changing = True
            try:
                found = step(*given, **named)
            except AS_BEFORE:
                self._is_changing = False
                raise
            except BaseException as error:
                if isinstance(error, TrackerDamaged):
                    self._file_damage = str(error)
                self.on_damage()
                raise
            self._is_changing = False
            return found

    # what each tracker does in its own way; the lock is held, places and rounded times are right

    @abstractmethod
    def _add_one(self, place: int, time_ms: int) -> bool: ...

    @abstractmethod
    def _add_rows(self, times: Int64s, places: Int64s) -> int: ...

    @abstractmethod
    def _peek(self, now_ms: int, count: int) -> Int64s: ...

    @abstractmethod
    def _drop(self, count: int) -> None: ...  # the first of the last `_peek`, all that it gave

    @abstractmethod
    def _next_ms(self) -> int | None: ...

    @abstractmethod
    def _are_pending(self, places: Int64s) -> npt.NDArray[np.bool_]: ...

    @abstractmethod
    def _pending_places(self) -> BitMap64: ...

    @abstractmethod
    def _count(self) -> int: ...

    @abstractmethod
    def _memory_bytes(self) -> int: ...

    @abstractmethod
    def _stats(self) -> dict[str, Any]: ...

    @abstractmethod
    def _cancel(self, place: int) -> bool: ...

    @abstractmethod
    def _discard(self, first_place: int, before_place: int) -> BitMap64: ...

    def _trim(self, before_place: int) -> int:
        return len(self._discard(0, before_place))

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...


__all__ = ["Rows", "Tracker"]
