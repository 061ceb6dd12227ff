"""Recovers what a crash left, and compares it with what was promised."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from stratalog.store import StoreError
from stratalog.store.format.layout import lane_name
from stratalog.store.format.records import NOT_TRIMMED, StreamLow
from stratalog.store.recovery.lane_recovery import LaneRecovery
from stratalog.store.recovery.recovered_lane import RecoveredLane
from stratalog.store.testing import SimulatedDisk

from .engine import home
from .ledger import Bounds, Ledger, Queue, records_of
from .recovered import batches_of, recoveries

NONE: Mapping[Queue, StreamLow] = MappingProxyType({})


class BrokenPromise(AssertionError):
    """A recovered store is not what it must be."""


class Checked(NamedTuple):
    """The messages of one segment, already compared: (first offset, behind the last) of each of its queues."""

    bounds: Bounds


class Recovered(NamedTuple):
    """What recovery found in a lane, all of it compared, and what it made of the lane's folder.

    `after` has that folder, or is None if recovery changed nothing; `lowest` is the first segment's number, or 0.
    """

    bounds: Bounds
    lowest: int
    changes: int
    after: SimulatedDisk | None


class Checker:
    """Checks recovered stores against the ledger of a run.

    Segments that were compared once are known by their bytes, and not compared again in the same life. So are whole
    lanes: the recovery of a lane is decided by the bytes in its folder. A lane of which all is forced is recovered
    once; where the same bytes come again, its folder is put in the state that recovery left. The bytes of all lanes
    count, as each may say whether a round of transactions was complete. A lane is recovered all the same where
    something is not forced, and where the disk tells of its operations, to be crashed inside.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._known: dict[tuple[int, int, int], Checked] = {}
        self._recovered: dict[tuple[int, int, tuple[int, ...]], Recovered] = {}

    def check(self, disk: SimulatedDisk, *, power_cut: bool) -> Bounds:
        """Recover the disk and look at every message. Raises BrokenPromise."""
        bounds: Bounds = {}
        try:
            lanes = [self._recover(index, lane, disk) for index, lane in enumerate(recoveries(disk))]
        except StoreError as error:
            raise BrokenPromise(f"recovery refused what a crash left: {error}") from error
        for index, lane in enumerate(lanes):
            self.check_beginning(index, lane.bounds, lane.lowest)
            self._check_order(index, lane.bounds)
            bounds.update(lane.bounds)
        self.check_promises(bounds, self.ledger.promised(power_cut=power_cut))
        self.check_transactions({queue: end for queue, (_, end) in bounds.items()})
        return bounds

    def check_transactions(self, ends: Mapping[Queue, int]) -> None:
        """Each transaction is there as a whole, or not at all."""
        part = self.ledger.in_part(ends)
        if part:
            raise BrokenPromise(f"a transaction is there in part: of {part}, queues end at {dict(ends)}")

    def _recover(self, index: int, recovery: LaneRecovery, disk: SimulatedDisk) -> Recovered:
        """Recover a lane and compare all of its messages, or know it."""
        folder = home() / lane_name(index)
        mark = self._mark_of(disk)
        known = self._recovered.get((index, self.ledger.life, mark)) if mark is not None else None
        if known is not None and (known.after is None or disk.on_operation is None):
            if known.after is not None:
                known.after.copy_folder(folder, disk)
                disk.changes += known.changes
            return known
        before = disk.changes
        found = recovery.run()
        bounds = self._lane_bounds(index, found, disk)
        self._check_trimmed(index, found, bounds)
        lowest = min((sequence for sequence, _ in found.segments), default=0)
        done = Recovered(bounds, lowest, disk.changes - before, None)
        if mark is not None and self._mark_of(disk) is not None:
            if done.changes:
                after = SimulatedDisk()
                disk.copy_folder(folder, after)
                done = done._replace(after=after)
            self._recovered[index, self.ledger.life, mark] = done
        return done

    def _mark_of(self, disk: SimulatedDisk) -> tuple[int, ...] | None:
        """The bytes of all lanes; None if something is not forced."""
        marks = [disk.folder_fingerprint(home() / lane_name(index)) for index in range(len(self.ledger.lanes))]
        known = tuple([mark for mark in marks if mark is not None])
        return known if len(known) == len(marks) else None

    def _lane_bounds(self, index: int, lane: RecoveredLane, disk: SimulatedDisk) -> Bounds:
        """(first, next) of each queue of a lane, all messages between them compared."""
        total: Bounds = {}
        segments: list[Any] = [*lane.sealed, *([lane.resumable[0]] if lane.resumable is not None else [])]
        for segment in segments:
            for queue, (first, end) in self._segment(index, lane, segment, disk).items():
                begin, reached = total.get(queue, (first, first))
                if first != reached:
                    raise BrokenPromise(f"{queue} goes on with offset {first} behind {reached}")
                total[queue] = begin, end
        for queue, next_offset in zip(lane.streams, lane.next_offsets, strict=True):
            first, end = total.setdefault(queue, (next_offset, next_offset))
            if end != next_offset:
                raise BrokenPromise(f"{queue} ends at offset {end} and goes on at {next_offset}")
        return total

    def _segment(self, index: int, lane: RecoveredLane, segment: Any, disk: SimulatedDisk) -> Bounds:
        path = segment.segment.path
        key = index, self.ledger.life, disk.fingerprint_of(path)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Checked(self._compare(lane, segment))
        return known.bounds

    def _compare(self, lane: RecoveredLane, segment: Any) -> Bounds:
        bounds: Bounds = {}
        try:
            for batch in batches_of(lane, segment):
                names = batch.stream_names
                rows = zip(batch.stream_index.tolist(), batch.offsets.tolist(), batch.payloads(), strict=True)
                for stream, offset, data in rows:
                    queue = names[stream]
                    first, end = bounds.get(queue, (offset, offset))
                    if offset != end:
                        raise BrokenPromise(f"{queue} has offset {offset} where {end} follows")
                    self.compare_message(queue, offset, data)
                    bounds[queue] = first, end + 1
        except StoreError as error:
            raise BrokenPromise(f"a recovered store cannot be read: {error}") from error
        return bounds

    def compare_message(self, queue: Queue, offset: int, data: bytes | memoryview, *, repaired: bool = False) -> None:
        """Has the queue this message at this offset?"""
        rows = self.ledger.sent(queue) if repaired else self.ledger.rows.get(queue, [])
        if offset >= len(rows):
            raise BrokenPromise(f"{queue} has a message at offset {offset} that nobody sent")
        if rows[offset] != data:
            raise BrokenPromise(f"{queue} has other bytes at offset {offset}")

    def _check_trimmed(self, index: int, lane: RecoveredLane, bounds: Bounds) -> None:
        """Trimmed is what the records say that are there, no more and no less."""
        _, records = bounds.get(records_of(index), (0, 0))
        expected = self.ledger.trimmed(index, records)
        found = {lane.streams[number]: low for number, low in lane.trimmed.items()}
        if found != expected:
            raise BrokenPromise(f"lane {index} has {found} trimmed, and its {records} records say {expected}")

    def shown(self, bounds: Bounds) -> Bounds:
        """The bounds as an opened store gives them, where the log has these."""
        found = {}
        for index in range(len(self.ledger.lanes)):
            lows = self.ledger.trimmed(index, bounds.get(records_of(index), (0, 0))[1])
            for queue in self.ledger.queues_of(index):
                if queue in bounds and queue != records_of(index):
                    first, end = bounds[queue]
                    found[queue] = max(first, lows.get(queue, NOT_TRIMMED).low), end
        return found

    def may_be_forgotten(self, bounds: Bounds) -> list[Queue]:
        """The queues of deleted topics of which the log has no message: an opening knows nothing of them."""
        found = []
        for index in range(len(self.ledger.lanes)):
            lows = self.ledger.trimmed(index, bounds.get(records_of(index), (0, 0))[1])
            for queue in self.ledger.queues_of(index):
                first, end = bounds.get(queue, (0, 0))
                if queue in lows and first == end == lows[queue].hidden:
                    found.append(queue)
        return found

    def check_beginning(
        self, index: int, bounds: Bounds, lowest: int, trimmed: Mapping[Queue, StreamLow] = NONE
    ) -> None:
        """All messages of the segments from `lowest` on are there, and retention took all that are before it.

        `trimmed`: where readers see the bounds, not the log.
        """
        removed = self.ledger.lanes[index].removed
        if lowest > removed + 1 or (removed and not lowest):
            raise BrokenPromise(f"lane {index} begins with segment {lowest}, and retention went to {removed}")
        for queue, (first, end) in bounds.items():
            expected = min(end, max(self.ledger.first_in(queue, lowest), trimmed.get(queue, NOT_TRIMMED).low))
            if first != expected:
                raise BrokenPromise(f"{queue} begins at {first} in segment {lowest}, which begins at {expected}")

    def _check_order(self, index: int, bounds: Bounds) -> None:
        """What is there is the beginning of what the lane built, over all of its queues."""
        placed = self.ledger.placed
        total = sum(end for _, end in bounds.values())
        last = max((placed[queue][end - 1].place for queue, (_, end) in bounds.items() if end), default=-1)
        if last + 1 != total:
            raise BrokenPromise(f"lane {index} has {total} messages, and the last of them was built as {last}")

    def check_promises(self, bounds: Bounds, promised: Mapping[Queue, int]) -> None:
        """Nothing that was promised is behind the end of its queue."""
        for queue, count in promised.items():
            _, end = bounds.get(queue, (0, 0))
            if end < count:
                raise BrokenPromise(f"{queue} ends at offset {end} and {count} were acknowledged or read")

    def check_again(self, disk: SimulatedDisk, bounds: Bounds, cut: SimulatedDisk, *, power_cut: bool) -> None:
        """Recovering a recovered store changes nothing, also when the power fails right after it (`cut`)."""
        before = disk.fingerprint()
        if self.check(disk, power_cut=power_cut) != bounds:
            raise BrokenPromise("recovering again gives other messages")
        if disk.fingerprint() != before:  # to write what is there once more is no change
            raise BrokenPromise("recovering again has changed the folder")
        if self.check(cut, power_cut=power_cut) != bounds:
            raise BrokenPromise("what recovery found is lost by a power cut right after it")
