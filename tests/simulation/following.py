"""A reader in another process beside a run: whatever it has seen survives, at whatever moment it looked."""

from __future__ import annotations

import random
from collections import Counter

from stratalog.store import OffsetOutOfRange, StoreError, StoreReader
from stratalog.store.format.records import RECORDS_TOPIC
from stratalog.store.testing import SimulatedDisk

from .check import BrokenPromise, Checker
from .engine import abandon, apart, open_reader
from .ledger import Bounds, Ledger, Queue

AT_ONCE = 64
LOOKS = 3


class Following:
    """One reader of a run's disk at a time. It looks when it is told to, between two steps or inside of one."""

    def __init__(self, seed: int, ledger: Ledger, reached: Counter[str]) -> None:
        self._chance = random.Random(f"following {seed}")
        self._ledger = ledger
        self._reached = reached
        self._disk: SimulatedDisk | None = None
        self._reader: StoreReader | None = None
        self._at: dict[Queue, int] = {}
        self._looking = False

    def may_look(self, disk: SimulatedDisk, share: float) -> None:
        """Look, in so many of the cases. Raises BrokenPromise."""
        if self._looking or self._chance.random() >= share:
            return
        self._looking = True  # what it does itself is no moment of the run
        try:
            with apart():
                self._look(disk)
        except StoreError as error:
            if not disk.faults_struck:
                raise BrokenPromise(f"a reader beside the run is refused: {error}") from error
            self.let_go()
        finally:
            self._looking = False

    def _look(self, disk: SimulatedDisk) -> None:
        if self._disk is not disk or self._chance.random() < 0.02:
            self.let_go()
            if not _is_store(disk):
                return
            self._reader, self._disk = open_reader(disk), disk
            self._reached["readers beside"] += 1
        assert self._reader is not None
        # Its calls are not one look: it may look at the page again between two of them. A half transaction stays one.
        for _ in range(LOOKS):
            self._read(self._reader)
            part = self._ledger.in_part(self._at)
            if not part:
                break
        else:
            raise BrokenPromise(f"a reader beside the run sees a transaction in part: of {part}, it is at {self._at}")

    def _read(self, reader: StoreReader) -> None:
        for queue, (_, end) in read_all(reader, self._ledger, self._at).items():
            if end:
                self._ledger.note_seen(queue, end - 1)
                self._reached["messages seen by a reader beside"] += end - self._at.get(queue, 0)
            self._at[queue] = end

    def let_go(self) -> None:
        """The reader's process ends."""
        if self._reader is not None:
            abandon(self._reader)
        self._reader, self._disk = None, None
        self._at.clear()


def _is_store(disk: SimulatedDisk) -> bool:
    return any(path.name == "STORE" for path in disk.sizes())


def read_all(reader: StoreReader, ledger: Ledger, at: dict[Queue, int]) -> Bounds:
    """Read each queue from where the reader was; the (first, next) offsets it shows. Raises BrokenPromise."""
    found: Bounds = {}
    for queue in list(ledger.rows):
        if queue[0] == RECORDS_TOPIC:  # readers never see these
            continue
        first, end = reader.queue_bounds(*queue)
        begin = max(first, at.get(queue, 0))
        while begin < end:
            try:
                messages = reader.read(*queue, begin, max_messages=AT_ONCE)
            except OffsetOutOfRange as error:  # retention was faster
                begin = max(begin + 1, error.first)
                continue
            if not messages:
                raise BrokenPromise(f"a reader finds nothing of {queue} at offset {begin}, which it said it has")
            for message in messages:
                rows = ledger.rows[queue]
                if message.offset >= len(rows) or rows[message.offset] != message.data:
                    raise BrokenPromise(f"a reader was given other bytes of {queue} at offset {message.offset}")
            begin = messages[-1].offset + 1
        found[queue] = first, end
    return found


def check_reader_of_remains(disk: SimulatedDisk, checker: Checker, chance: random.Random) -> None:
    """What a reader shows of what a crash left survives the next power cut as well. Raises BrokenPromise."""
    if not _is_store(disk):
        return
    before = disk.changes
    with apart():
        reader = open_reader(disk)
        seen = read_all(reader, checker.ledger, {})
        abandon(reader)
    if disk.changes != before:
        raise BrokenPromise("a reader has changed files")
    recovered = checker.check(disk.crash(chance), power_cut=True)
    part = checker.ledger.in_part({queue: end for queue, (_, end) in seen.items()})
    if part:
        raise BrokenPromise(f"a reader of what a crash left sees a transaction in part: of {part}, it shows {seen}")
    for queue, (_, end) in seen.items():
        if end > recovered.get(queue, (0, 0))[1]:
            raise BrokenPromise(f"a reader saw {queue} up to {end}, and a power cut left {recovered.get(queue)}")
