"""An exception at any step of a change: the tracker is as before or as after it, or says that it is damaged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stratalog.index import BucketTracker, Tracker, TrackerDamaged
from stratalog.index.trackers import time_buckets
from tests.store.interrupts import Interrupted, interrupt_at, places

from .kinds import KINDS, Make, on_disk, taken
from .simulated_files import SimulatedFiles

END_MS = 1 << 50
COUNT = 40


def filled(make: Make) -> Tracker:
    """40 entries, due at 0, 10, 20 ..; on disk, some of them in buckets."""
    tracker = make()
    tracker.add_messages(0, np.arange(COUNT // 2), np.arange(COUNT // 2) * 10)
    if isinstance(tracker, BucketTracker):
        tracker.checkpoint()
    tracker.add_messages(0, np.arange(COUNT // 2, COUNT), np.arange(COUNT // 2, COUNT) * 10)
    return tracker


def entries_of(tracker: Tracker) -> set[int]:
    return {place & 0xFFFFFFFF for place in tracker.pending_places()}


CHANGES: dict[str, tuple[Callable[[Tracker], object], set[int]]] = {  # each with what is pending after it
    "one": (lambda tracker: tracker.add_message(0, COUNT, 5), {*range(COUNT + 1)}),
    "batch": (lambda tracker: tracker.add_messages(0, [COUNT, COUNT + 1], [5, 6]), {*range(COUNT + 2)}),
    "cancel": (lambda tracker: tracker.cancel(0, 3), {*range(COUNT)} - {3}),
    "discard": (lambda tracker: tracker.discard(0, 2, 30), {0, 1, *range(30, COUNT)}),
    "take": (lambda tracker: tracker.get_scheduled_messages(50, COUNT), {*range(6, COUNT)}),
    "trim": (lambda tracker: tracker.trim(1), set()),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_change_is_made_or_not_made_or_known(kind: str, change: str) -> None:
    work, after = CHANGES[change]
    before, damaged = {*range(COUNT)}, 0
    files = tuple(f"trackers/{name}.py" for name in _FILES)
    for place in places():
        tracker = filled(KINDS[kind])
        interrupted, result = interrupt_at(place, files, lambda: work(tracker))  # noqa: B023  # called at once
        if tracker.damage:
            damaged += 1
            with pytest.raises(TrackerDamaged):
                tracker.are_pending(0, [1])
            with pytest.raises(TrackerDamaged):
                tracker.add_message(0, 1, 1)
            tracker.close()
        else:
            found = entries_of(tracker)
            assert found in (before, after), f"place {place}"
            assert {entry for _, entry in taken(tracker, END_MS)} == found
        if not interrupted:
            assert not isinstance(result, BaseException)
            break
    assert damaged


_FILES = (
    "tracker", "heap_tracker", "bucket_tracker", "time_buckets", "ordered", "dense", "blocks",
    "sealed_bucket", "shelf", "bitmaps",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_handing_out_gives_first_so_an_interrupt_loses_nothing(kind: str) -> None:
    files = tuple(f"trackers/{name}.py" for name in _FILES)
    for place in places():
        tracker, given = filled(KINDS[kind]), set[int]()
        interrupted, _ = interrupt_at(
            place,
            files,
            lambda: tracker.hand_out(200, 15, lambda _, entries: given.update(entries.tolist())),  # noqa: B023
        )
        if not tracker.damage:
            assert given | entries_of(tracker) == {*range(COUNT)}, f"place {place}"
        if not interrupted:
            assert given == {*range(15)} == {*range(COUNT)} - entries_of(tracker)
            break


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_given_stays_pending(kind: str) -> None:
    tracker = filled(KINDS[kind])

    def refuse(*_given: object) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        tracker.hand_out(100, COUNT, refuse)
    assert entries_of(tracker) == {*range(COUNT)}
    assert [entry for _, entry in taken(tracker, END_MS)] == [*range(COUNT)]


def test_error_of_one_file_loses_no_rows_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two buckets are pulled together, and the second one cannot be read."""
    files = SimulatedFiles(0)
    tracker = on_disk(files=files)
    for first in (0, 1, 2):
        tracker.add_messages(0, np.arange(first, COUNT, 3), np.arange(first, COUNT, 3))
        tracker.checkpoint()
    read, calls = files.read, list[str]()

    def read_once(name: str, at: int, size: int) -> bytes:
        calls.append(name)
        if len(calls) == 2:
            raise OSError(5, "it cannot be read")
        return read(name, at, size)

    monkeypatch.setattr(files, "read", read_once)
    with pytest.raises(OSError, match="cannot be read"):
        taken(tracker, END_MS)
    assert not tracker.damage
    assert [entry for _, entry in taken(tracker, END_MS)] == [*range(COUNT)]
    assert len(tracker) == 0


def test_memory_that_ends_while_the_inbox_is_sorted_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = filled(KINDS["time buckets"])

    def no_memory(*_given: object) -> None:
        raise MemoryError

    monkeypatch.setattr(time_buckets, "add_places", no_memory)
    with pytest.raises(MemoryError):
        taken(tracker, END_MS)
    assert tracker.damage
    with pytest.raises(TrackerDamaged):
        len(tracker)


@pytest.mark.parametrize("kind", KINDS)
def test_discarded_entries_are_those_of_the_range(kind: str) -> None:
    tracker = filled(KINDS[kind])
    tracker.add_messages(1, np.arange(10), 7)
    assert tracker.discard(0, 5, 25).tolist() == [*range(5, 25)]
    assert tracker.discard(0, 5, 25).tolist() == []
    assert tracker.discard(1, 9, 1 << 32).tolist() == [9]
    assert tracker.number_of_delayed_messages == COUNT - 20 + 9
    assert tracker.next_deadline_ms == 0
    found = taken(tracker, END_MS)
    assert sorted(found) == [(0, entry) for entry in [*range(5), *range(25, COUNT)]] + [(1, at) for at in range(9)]


def test_discarded_entries_are_forgotten_on_disk_at_the_checkpoint() -> None:
    files = SimulatedFiles(0)
    tracker = on_disk(files=files)
    tracker.add_messages(3, np.arange(COUNT), np.arange(COUNT))
    tracker.checkpoint()
    assert len(tracker.discard(3, 0, 30)) == 30
    tracker.checkpoint()
    assert len(on_disk(files=files.crashed(1))) == COUNT - 30
