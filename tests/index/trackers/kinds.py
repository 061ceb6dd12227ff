"""All trackers behind one maker, for the tests that each has to pass; and the model: a dict that is sorted to look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stratalog.index import BucketTracker, HeapTracker, TimeBucketTracker, Tracker

from .simulated_files import SimulatedFiles

Make = Callable[..., Tracker]


def heap(*, precision_bits: int = 0, memory_limit_bytes: int | None = None) -> Tracker:
    """The heap is made exact, and can be told a tick like the others."""
    tracker = HeapTracker(memory_limit_bytes=memory_limit_bytes)
    tracker._bits = TimeBucketTracker(precision_bits)._bits  # refused if it is out of range
    return tracker


def time_buckets(*, precision_bits: int = 0, memory_limit_bytes: int | None = None) -> Tracker:
    """In memory."""
    return TimeBucketTracker(precision_bits, memory_limit_bytes=memory_limit_bytes)


def on_disk(*, precision_bits: int = 0, memory_limit_bytes: int | None = None, **given: Any) -> BucketTracker:
    """On a simulated disk, with small buckets and segments, so that there are many."""
    settings = {"seal_entries": 700, "most_entries": 3_000, "segment_ms": 700, "segment_entries": 90, "most_buckets": 3}
    files = given.pop("files", None) or SimulatedFiles(0)
    return BucketTracker(
        "", precision_bits, memory_limit_bytes=memory_limit_bytes, files=files, **{**settings, **given}
    )


KINDS: dict[str, Make] = {"heap": heap, "time buckets": time_buckets, "on disk": on_disk}


class Model:
    """What a tracker has to do."""

    def __init__(self, precision_bits: int = 0) -> None:
        self.tick_ms = 1 << precision_bits
        self.pending: dict[tuple[int, int], int] = {}

    def add(self, ledgers: Sequence[int], entries: Sequence[int], times: Sequence[int]) -> int:
        """How many are new."""
        before = len(self.pending)
        for ledger, entry, time_ms in zip(ledgers, entries, times, strict=True):
            self.pending.setdefault((ledger, entry), -(-time_ms // self.tick_ms) * self.tick_ms)
        return len(self.pending) - before

    def cancel(self, ledger: int, entry: int) -> bool:
        """Whether it was pending."""
        return self.pending.pop((ledger, entry), None) is not None

    def trim(self, before_ledger: int) -> int:
        """How many were pending there."""
        gone = [position for position in self.pending if position[0] < before_ledger]
        for position in gone:
            del self.pending[position]
        return len(gone)

    def take(self, now_ms: int, count: int) -> list[tuple[int, int]]:
        """The first positions that are due."""
        due = sorted((time_ms, position) for position, time_ms in self.pending.items() if time_ms <= now_ms)[:count]
        for _, position in due:
            del self.pending[position]
        return [position for _, position in due]

    @property
    def next_ms(self) -> int | None:
        """The first time."""
        return min(self.pending.values(), default=None)


def taken(tracker: Tracker, now_ms: int, count: int = 1 << 40) -> list[tuple[int, int]]:
    """What the tracker gives, as positions."""
    ledgers, entries = tracker.get_scheduled_messages(now_ms, count)
    assert ledgers.dtype == entries.dtype == "int64"
    return list(zip(ledgers.tolist(), entries.tolist(), strict=True))


def check(tracker: Tracker, model: Model, now_ms: int) -> None:
    """What can be asked without a change is as the model has it."""
    assert tracker.number_of_delayed_messages == len(tracker) == len(model.pending)
    known = sorted({*model.pending, (0, 0), (1, 3), (5, 77)})
    pending = tracker.are_pending([ledger for ledger, _ in known], [entry for _, entry in known])
    assert pending.tolist() == [position in model.pending for position in known]
    assert tracker.next_deadline_ms == model.next_ms
    assert tracker.has_message_available(now_ms) == (model.next_ms is not None and model.next_ms <= now_ms)


def reopened(tracker: Tracker, has_crash: bool) -> Tracker:
    """The tracker after it was closed and opened again, if it is one that is kept; else as it is."""
    if not isinstance(tracker, BucketTracker):
        return tracker
    files = tracker._files
    assert isinstance(files, SimulatedFiles)
    tracker.checkpoint()
    bits, limit_bytes = tracker._bits, tracker._memory_limit_bytes
    tracker.close()
    return on_disk(precision_bits=bits, memory_limit_bytes=limit_bytes, files=files.crashed(1) if has_crash else files)
