"""A damaged store, repaired, and what must be true of it afterwards; crashes inside the repair as well."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from stratalog.store import StoreError
from stratalog.store.format.layout import lane_name
from stratalog.store.format.records import NOT_TRIMMED
from stratalog.store.recovery.recovered_lane import RecoveredLane
from stratalog.store.recovery.repair import Loss
from stratalog.store.testing import Operation, SimulatedDisk

from .check import BrokenPromise, Checker
from .ledger import Bounds, Queue
from .recovered import batches_of, damages_of, durable_up_to, recover

Present = dict[Queue, list[int]]
LOST_NAME = "lost-name-"
CUTS = 2  # crashes of one repair that are repaired again


class RepairTrial:
    """One damaged disk. `bounds` are those of the same crash without the damage.

    Invariants of a repair that are checked:
        * a message that is there has its own offset and its own bytes, and lies in its queue's lane;
        * a stream without its name is one queue of its lane, whose bytes say which;
        * a message that is not there, though something left on the disk says that it was durable, is told as lost:
          the losses of its lane count them all, or one of them counts None; they count no message that is there;
        * no message is trimmed that no record trimmed;
        * a lane without damage has no losses, but those of no message: nothing tells a torn record from a damaged one;
        * the repaired store opens plainly with the same messages, `verify` finds nothing, and repairing it again
          changes nothing and tells nothing.
    """

    def __init__(self, checker: Checker, disk: SimulatedDisk, bounds: Bounds, lanes: set[int]) -> None:
        self._checker = checker
        self._ledger = checker.ledger
        self._disk = disk
        self._bounds = bounds
        self._lanes = lanes  # that have damage
        self._durable = [durable_up_to(disk, lane) for lane in range(len(self._ledger.lanes))]
        self._owners: dict[Queue, Queue] = {}  # of the streams whose names the last repair or opening did not know
        self.cuts: list[SimulatedDisk] = []  # what crashes of the repair left

    def run(self, chance: random.Random, crashes: float) -> None:
        """Repair, and check; crashes are tried before this share of the repair's operations."""

        def beside(_operation: Operation) -> None:
            if len(self.cuts) < CUTS and chance.random() < crashes:
                self.cuts.append(self._disk.crash(chance))

        self._disk.on_operation = beside
        found = self._recover(self._disk, repair=True)
        self._disk.on_operation = None
        present = self.present(found)
        self.check_trimmed(found)
        self.check_losses(found, present)
        self.check_afterwards(self._disk, present)
        for cut in self.cuts:
            self.check_afterwards(cut, self.present(self._recover(cut, repair=True)))

    def _recover(self, disk: SimulatedDisk, *, repair: bool) -> list[RecoveredLane]:
        try:
            return recover(disk, repair=repair)
        except StoreError as error:
            raise BrokenPromise(f"{'a repair' if repair else 'opening after a repair'} refused: {error}") from error

    def present(self, found: list[RecoveredLane]) -> Present:
        """The offsets of all messages that are there, each compared."""
        present: defaultdict[Queue, list[int]] = defaultdict(list)
        self._owners.clear()
        for index, lane in enumerate(found):
            segments: list[Any] = [*lane.sealed, *([lane.resumable[0]] if lane.resumable is not None else [])]
            for segment in segments:
                for queue, offset in self._messages(index, lane, segment):
                    if present[queue] and offset <= present[queue][-1]:
                        raise BrokenPromise(f"{queue} has offset {offset} behind {present[queue][-1]}")
                    present[queue].append(offset)
            for name, next_offset in zip(lane.streams, lane.next_offsets, strict=True):
                queue = self._owners.get(name, name)
                if present.get(queue) and next_offset <= present[queue][-1]:
                    raise BrokenPromise(f"{queue} goes on at {next_offset} and has offset {present[queue][-1]}")
        return dict(present)

    def check_trimmed(self, found: list[RecoveredLane]) -> None:
        """Nothing is out of sight but what a record trimmed."""
        for index, lane in enumerate(found):
            built = self._ledger.trimmed_by_sent(index)
            for number, low in lane.trimmed.items():
                queue = self._owners.get(lane.streams[number], lane.streams[number])
                if not queue[0].startswith(LOST_NAME) and built.get(queue, NOT_TRIMMED).joined(low) != built.get(queue):
                    raise BrokenPromise(f"{queue} is trimmed to {low} by a repair, and the records say {built}")

    def _messages(self, index: int, lane: RecoveredLane, segment: Any) -> list[tuple[Queue, int]]:
        seen = []
        try:
            for batch in batches_of(lane, segment):
                names = batch.stream_names
                rows = zip(batch.stream_index.tolist(), batch.offsets.tolist(), batch.payloads(), strict=True)
                for stream, offset, data in rows:
                    queue = self._owner(index, names[stream], offset, data)
                    self._checker.compare_message(queue, offset, data, repaired=True)
                    if self._ledger.lane_of[queue] != index:
                        raise BrokenPromise(f"lane {index} has a message of {queue}")
                    seen.append((queue, offset))
        except StoreError as error:
            raise BrokenPromise(f"a repaired store cannot be read: {error}") from error
        return seen

    def _owner(self, index: int, name: Queue, offset: int, data: memoryview) -> Queue:
        """The queue of a stream in this lane. Where a repair has given it another name, its first message tells, once.

        No stream leaves its lane: the records of another lane may have the same bytes at the same offset.
        """
        if name[0] != f"{LOST_NAME}{index}":
            return name
        if name not in self._owners:
            ledger = self._ledger
            queues = ledger.queues_of(index)
            self._owners[name] = next((it for it in queues if ledger.sent(it)[offset : offset + 1] == [data]), name)
        return self._owners[name]

    # -- losses ---------------------------------------------------------------------------------------

    def check_losses(self, found: list[RecoveredLane], present: Present) -> None:
        """Losses cover what is missing, and nothing else."""
        for index, lane in enumerate(found):
            losses = [loss for loss in lane.losses if lane_name(index) in loss.file]
            missing, absent = self._missing(index, present)
            if index not in self._lanes and any(loss.messages != 0 for loss in losses):
                raise BrokenPromise(f"lane {index} has no damage, and losses are told: {losses}")
            counts = [loss.messages for loss in losses if loss.messages is not None]
            told = _say(losses)
            if missing and len(counts) == len(losses) and sum(counts) < missing:
                raise BrokenPromise(f"lane {index} misses {missing} messages that were durable; told: {told}")
            if sum(counts) > absent:
                raise BrokenPromise(f"lane {index} misses {absent} messages of all that were built; told: {told}")

    def _missing(self, lane: int, present: Present) -> tuple[int, int]:
        """How many messages of a lane are not there: of those that were durable as far as anything tells, and of all
        that were built behind what retention took."""
        missing = absent = 0
        for queue in self._ledger.queues_of(lane):
            first, end = self._bounds.get(queue, (0, 0))
            there, placed = set(present.get(queue, ())), self._ledger.placed[queue]
            gone = [offset for offset in range(first, len(placed)) if offset not in there]
            absent += len(gone) + sum(len(placed) + at not in there for at in range(len(self._ledger.cut[queue])))
            for offset in gone:
                missing += offset < end and (placed[offset].sequence, placed[offset].end) <= self._durable[lane]
        return missing, absent

    # -- afterwards -----------------------------------------------------------------------------------

    def check_afterwards(self, disk: SimulatedDisk, present: Present) -> None:
        """A repaired store opens plainly, verifies, and needs no other repair."""
        before = disk.fingerprint()
        opened = self._recover(disk, repair=False)
        if self.present(opened) != present:
            raise BrokenPromise("a repaired store opens with other messages")
        self.check_trimmed(opened)
        damages = damages_of(disk)
        if damages:
            raise BrokenPromise(f"a repaired store is damaged still: {damages[:3]}")
        again = self._recover(disk, repair=True)
        told = [loss for lane in again for loss in lane.losses]
        if told:
            raise BrokenPromise(f"repairing again tells losses: {_say(told)}")
        if [lane.trimmed for lane in again] != [lane.trimmed for lane in opened]:
            raise BrokenPromise("repairing again trims other messages")
        if self.present(again) != present:
            raise BrokenPromise("repairing again gives other messages")
        if disk.fingerprint() != before:
            raise BrokenPromise("opening and repairing again has changed the folder")


def _say(losses: list[Loss]) -> str:
    return ", ".join(f"{loss.file[-25:]}@{loss.position}: {loss.messages}" for loss in losses) or "none"
