"""The interface of all trackers (R29): which entries are delayed, and which of them are due.

A tracker knows positions and times and nothing of messages. An entry is added once, with the time of its delivery. When
that time has come, `get_scheduled_messages` gives it out, and the tracker forgets it.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from operator import index
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..columns import Int64s
from ..errors import BadEntry, TrackerClosed, TrackerFull
from ..forks import tell_after_fork
from .places import (
    ENTRY_BITS,
    MOST_ENTRY,
    MOST_LEDGER,
    MOST_PRECISION_BITS,
    MOST_TIME_MS,
    Rows,
    bad_entry,
    checked_columns,
    positions_of,
    rounded_up,
)

SLICE_ROWS = 1 << 18  # the limit of memory is looked at once for so many rows ..
UNCHECKED_ADDS = 256  # .. or single entries


class Tracker(ABC):
    """Delayed entries of one topic, all queues and subscriptions of it together (R35).

    A position is (ledger, entry): ledger 0 .. 2**31 - 1, entry 0 .. 2**32 - 1. Times are integer milliseconds, 0 ..
    2**62 - 1. With a precision of b bits each time is rounded *up* to a multiple of 2**b ms: delivery is never early,
    and late by less than 2**b ms. Entries come by (rounded time, ledger, entry).

    All methods may be called from any thread. The tracker has no clock: time is what the caller gives, and a time
    before an earlier one gives less, never something wrong. After `close`, or in the child of a fork, all methods raise
    TrackerClosed.
    """

    def __init__(self, precision_bits: int, memory_limit_bytes: int | None) -> None:
        if type(precision_bits) is not int or not 0 <= precision_bits <= MOST_PRECISION_BITS:
            raise BadEntry(f"precision_bits is an integer from 0 to {MOST_PRECISION_BITS}, not {precision_bits!r}")
        if memory_limit_bytes is not None and (type(memory_limit_bytes) is not int or memory_limit_bytes < 1):
            raise BadEntry(f"memory_limit_bytes is an integer of 1 or more, or None, not {memory_limit_bytes!r}")
        self._bits = precision_bits
        self._memory_limit_bytes = memory_limit_bytes
        self._unchecked = 0  # entries that may be added before memory is looked at
        self._lock = threading.RLock()
        self._why_closed = ""
        tell_after_fork(self)

    # adding

    def add_message(self, ledger: int, entry: int, deliver_at_ms: int) -> bool:
        """Whether the entry is new. One that is pending already is left as it is: to move it, cancel it first.

        One whose time is over is due at once. Raises BadEntry for a value out of range, TrackerFull at the limit of
        memory.
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
            if self._why_closed:
                raise TrackerClosed(self._why_closed)
            if self._memory_limit_bytes is not None:
                self._unchecked -= 1
                if self._unchecked < 0:
                    self._refuse_if_full()
                    self._unchecked = UNCHECKED_ADDS
            return self._add_one(place, time_ms)

    def put_back(self, ledger: int, entry: int, deliver_at_ms: int) -> bool:
        """`add_message` for an entry that was taken out or cancelled just now: it always has room, and needs no disk.

        So whoever took it and could not go on has it pending again, come what may. Raises BadEntry.
        """
        (time_ms,), (place,) = checked_columns([ledger], [entry], [deliver_at_ms])
        with self._open():
            return self._put_back(int(place), -(-int(time_ms) >> self._bits << self._bits))

    def _put_back(self, place: int, time_ms: int) -> bool:
        return self._add_one(place, time_ms)

    def add_messages(self, ledgers: npt.ArrayLike, entries: npt.ArrayLike, deliver_at_ms: npt.ArrayLike) -> int:
        """Add a batch: three integer arrays of one length; ledgers and times may be a number for all. How many are new.

        As with `add_message`, what is pending already is left as it is, so a batch may be given again; of an entry that
        is there twice the first time counts. Raises BadEntry, and adds nothing then; or TrackerFull, when a part may
        have been added.
        """
        times, places = checked_columns(ledgers, entries, deliver_at_ms)
        new = 0
        for begin in range(0, len(times), SLICE_ROWS):
            rows = slice(begin, begin + SLICE_ROWS)
            with self._open():
                self._refuse_if_full()
                new += self._add_rows(rounded_up(times[rows], self._bits), places[rows])
        return new

    def _refuse_if_full(self) -> None:
        if self.should_pause_all_deliveries:
            raise TrackerFull(
                f"the tracker has {self._memory_bytes():,} bytes of the {self._memory_limit_bytes:,} that are its limit"
            )

    # asking

    def get_scheduled_messages(self, now_ms: int, max_messages: int) -> tuple[Int64s, Int64s]:
        """Take what is due at `now_ms`: (ledgers, entries), int64 arrays of at most `max_messages`, in order.

        Raises BadEntry for a number of messages below 0.
        """
        try:
            now_ms, max_messages = index(now_ms), index(max_messages)
        except TypeError as error:
            raise BadEntry(f"a time and a number of messages are integers: {error}") from error
        if max_messages < 0:
            raise BadEntry(f"max_messages is 0 or more, not {max_messages}")
        with self._open():
            return positions_of(self._take(min(now_ms, MOST_TIME_MS), max_messages))

    def has_message_available(self, now_ms: int) -> bool:
        """Whether `get_scheduled_messages` would give something at this time."""
        next_ms = self.next_deadline_ms
        return next_ms is not None and next_ms <= now_ms

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first pending entry is due, exactly and as rounded; None if nothing is pending."""
        with self._open():
            return self._next_ms()

    def are_pending(self, ledgers: npt.ArrayLike, entries: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """(n,) for each position whether it is pending. Two integer arrays of one length; `ledgers` may be a number.

        Raises BadEntry for a value out of range.
        """
        _, places = checked_columns(ledgers, entries, 0)
        with self._open():
            return self._are_pending(places)

    def pending_places(self) -> BitMap64:
        """All that is pending, as a set of places: ledger * 2**32 + entry. A copy: as large as the sets that it has."""
        with self._open():
            return self._pending_places()

    @property
    def number_of_delayed_messages(self) -> int:
        """Entries that are pending: added, and neither given out nor cancelled. In constant time."""
        with self._open():
            return self._count()

    def __len__(self) -> int:
        return self.number_of_delayed_messages

    @property
    def precision_ms(self) -> int:
        """What is added now is late by less than this; 1: exact."""
        return 1 << self._bits

    @property
    def buffer_memory_usage(self) -> int:
        """Bytes of memory that the tracker takes, about."""
        with self._open():
            return self._memory_bytes()

    @property
    def should_pause_all_deliveries(self) -> bool:
        """Whether the tracker is at its limit of memory: read no further until entries were taken; adding raises."""
        limit = self._memory_limit_bytes
        return limit is not None and self.buffer_memory_usage >= limit

    def stats(self) -> dict[str, Any]:
        """Counts, plain and JSON-ready: the form of the entries among them."""
        with self._open():
            return {"pending": self._count(), "precision_ms": self.precision_ms, **self._stats()}

    # changing

    def cancel(self, ledger: int, entry: int) -> bool:
        """True exactly if the entry was still pending; it is never given out then."""
        try:
            ledger, entry = index(ledger), index(entry)
        except TypeError as error:
            raise bad_entry(ledger, entry) from error
        if not (0 <= ledger <= MOST_LEDGER and 0 <= entry <= MOST_ENTRY):
            raise bad_entry(ledger, entry)
        with self._open():
            return self._cancel(ledger << ENTRY_BITS | entry)

    def trim(self, before_ledger: int) -> int:
        """Forget all pending entries of ledgers before this one, and nothing else; how many that were."""
        if not isinstance(before_ledger, int) or not 0 <= before_ledger <= MOST_LEDGER + 1:
            raise BadEntry(f"before_ledger is from 0 to {MOST_LEDGER + 1:,}, not {before_ledger!r}")
        with self._open():
            return self._trim(before_ledger << ENTRY_BITS)

    def reset_tick_time(self, ms: int) -> None:
        """The precision of what is added from now on: the greatest power of two that is not above `ms`.

        What is there keeps its time. 1 ms is exact. Raises BadEntry below 1.
        """
        if not isinstance(ms, int) or not 1 <= ms < 2 << MOST_PRECISION_BITS:
            raise BadEntry(f"a tick is from 1 to {(2 << MOST_PRECISION_BITS) - 1:,} ms, not {ms!r}")
        with self._open():
            self._bits = ms.bit_length() - 1

    def clear(self) -> None:
        """Forget everything."""
        with self._open():
            self._clear()

    def close(self) -> None:
        """Let go of everything. A tracker in memory forgets what is pending. To close twice is no error."""
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
        self._why_closed = "the tracker belongs to the parent process: make or open one after the fork"

    def _open(self) -> threading.RLock:
        """The lock, of a tracker that is not closed."""
        if self._why_closed:
            raise TrackerClosed(self._why_closed)
        return self._lock

    # what each tracker does in its own way; the lock is held, places and rounded times are right

    @abstractmethod
    def _add_one(self, place: int, time_ms: int) -> bool: ...

    @abstractmethod
    def _add_rows(self, times: Int64s, places: Int64s) -> int: ...

    @abstractmethod
    def _take(self, now_ms: int, count: int) -> Int64s: ...

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
    def _trim(self, before_place: int) -> int: ...

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...


__all__ = ["Rows", "Tracker"]
