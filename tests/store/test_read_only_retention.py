"""Retention and recycling beside readers in other processes, held up at every step of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import (
    MessageStore,
    OffsetOutOfRange,
    ScanFilter,
    ScanPlanner,
    StoreReader,
    StoreUnreadable,
    inspect_folder,
    read_part,
)
from stratalog.store.api import beside
from stratalog.store.device.disk import ReadingDisk
from stratalog.store.device.os_file import OsFile
from stratalog.store.log.lane import Lane
from stratalog.store.segment.part import Part, lengths_of, positions_of
from stratalog.store.segment.sealed import SealedSegment
from stratalog.store.verify.described import Totals

from .helpers import memory_folder, segment_path, tiny, until
from .test_read_only_page import state_in

QUEUE = ("t", 0)
SIZE = 3_000
CONFIG = tiny(retention_bytes=200 << 10)
Read = Callable[[StoreReader], Sequence[tuple[int, bytes]]]


def message(offset: int) -> bytes:
    return b"%08d" % offset * (SIZE // 8)


class Writer:
    """A writer whose oldest segments are removed and used again as it goes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MessageStore.open(folder, CONFIG)
        self.count = 0
        self.go_on()
        self.go_on()

    def go_on(self, segments: int = 0) -> None:
        """Append until so many segments are gone; 0: all, and their files written to where they may be."""
        upkeep = self.store._upkeep
        segments = segments or len(self.store._lanes[0].view.sealed) + 3
        goal = upkeep.removal.removed_segments + segments
        while upkeep.removal.removed_segments < goal:
            for _ in range(5):
                assert self.store.append(*QUEUE, message(self.count)) == self.count
                self.count += 1
            until(lambda: self.is_at_rest((200 << 10) + (3 << 16)))
        until(lambda: self.is_at_rest(200 << 10) and not upkeep.removal._retired and not upkeep.sealer._full)
        until(self.is_told)

    def is_told(self) -> bool:
        """Does the page say where the log begins now? It is told of a removal just behind it."""
        return state_in(self.folder).first == self.store._lanes[0].view.sealed[0].segment.sequence

    def is_at_rest(self, held_bytes: int) -> bool:
        """Has the background done its work? It is woken to do it now."""
        self.store._upkeep.wake()
        return self.store._upkeep.removal.held_bytes() <= held_bytes


class SteppingDisk(ReadingDisk):
    """The system's disk; before step number `at` of its reader it lets the writer go on."""

    def __init__(self) -> None:
        self.at = self.steps = 0
        self.between: Callable[[], None] = lambda: None

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            self.between()

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        self.step()
        return _SteppingFile(self, path, direct=direct)


class _SteppingFile(OsFile):
    def __init__(self, disk: SteppingDisk, path: Path, *, direct: bool) -> None:
        super().__init__(path, create=False, direct=direct, write=False)
        self._disk = disk

    def sequential(self) -> OsFile:
        self._disk.step()
        return _SteppingFile(self._disk, Path(f"/proc/self/fd/{self._fd}"), direct=False)


def _stepping(name: str) -> Any:
    real = getattr(OsFile, name)

    def stepped(file: _SteppingFile, *given: Any) -> Any:
        file._disk.step()
        return real(file, *given)

    return stepped


for _name in ("share", "is_in_place", "read", "read_into", "size", "fileno"):
    setattr(_SteppingFile, _name, _stepping(_name))


def read_first(reader: StoreReader) -> Sequence[tuple[int, bytes]]:
    """The oldest messages that the reader knows of."""
    stream = reader._streams.get(*QUEUE)
    assert stream is not None
    first = reader._reader.bounds(stream)[0]
    return [(one.offset, one.data) for one in reader.read(*QUEUE, first, max_messages=40)]


def read_old(reader: StoreReader) -> Sequence[tuple[int, bytes]]:
    """The same by a read that has looked at the page before it was held up."""
    stream = reader._streams.get(*QUEUE)
    assert stream is not None
    first = reader._reader.bounds(stream)[0]
    found = reader._reader.get_range(stream, first, 40)
    return [(first + at, data) for at, data in found.items()]


def read_batch(reader: StoreReader) -> Sequence[tuple[int, bytes]]:
    first, _ = reader.queue_bounds(*QUEUE)
    batch = reader.read_batch(*QUEUE, first, max_messages=60)
    return list(zip(batch.offsets.tolist(), map(bytes, batch.payloads()), strict=True))


def scan(reader: StoreReader) -> Sequence[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for batch in reader.scan():
        found += zip(batch.offsets.tolist(), map(bytes, batch.payloads()), strict=True)
    return found


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder where forces cost nothing."""
    with memory_folder() as folder:
        yield folder


READS: dict[str, Read] = {"read": read_first, "a read under way": read_old, "read_batch": read_batch, "scan": scan}
GONE = (OffsetOutOfRange, StoreUnreadable, FileNotFoundError)  # the last of `read_old`, which is the inside of a read


def held_up(writer: Writer, folder: Path, read: Read, at: int) -> tuple[bool, int]:
    """One read with the writer going on at a step; whether the step came, and how many messages were read."""
    disk = SteppingDisk()
    with MessageStore.open(folder, read_only=True, disk=disk) as reader:
        disk.steps, disk.at, disk.between = 0, at, writer.go_on
        try:
            found = read(reader)
        except GONE:
            return disk.steps >= at, 0
        for offset, data in found:
            assert data == message(offset), f"held up at step {at}, offset {offset} was read as other bytes"
        return disk.steps >= at, len(found)


@pytest.mark.parametrize("name", READS)
def test_reader_held_up_at_any_step_gets_the_right_bytes_or_none(memory: Path, name: str) -> None:
    writer, at, right = Writer(memory), 0, 0
    with writer.store:
        came = True
        while came:
            at += 1
            came, count = held_up(writer, memory, READS[name], at)
            right += count
        assert at > 3, "nothing was held up"
        assert right
        assert writer.store.stats()["log"]["recycled_segments"], "no file was used again"


def test_file_that_a_reader_has_open_is_not_used_again(memory: Path) -> None:
    writer = Writer(memory)
    with writer.store, MessageStore.open(memory, read_only=True) as reader:
        view = reader._lanes[0].view
        held, first = view.sealed[0], reader.queue_bounds(*QUEUE)[0]
        assert reader.read(*QUEUE, first)[0].data == message(first)
        inode = segment_path(memory, held.segment.sequence).stat().st_ino
        writer.go_on()
        assert inode not in {path.stat().st_ino for path in memory.rglob("*.seg")}
        stream = reader._streams.get(*QUEUE)
        assert stream is not None
        parts: list[Part] = []
        assert held.add_parts(parts, None, stream.number, first, 5) == 0  # a reader who has found it before
        found = held.segment.read_places(positions_of(parts[0]), lengths_of(parts[0]))[0]
        assert found == [message(first + at) for at in range(5)]
        with pytest.raises(OffsetOutOfRange):
            reader.read(*QUEUE, first)
        assert reader.queue_bounds(*QUEUE) == writer.store.queue_bounds(*QUEUE)


def test_segment_that_was_removed_before_it_was_opened_is_out_of_range(memory: Path) -> None:
    writer = Writer(memory)
    with writer.store, MessageStore.open(memory, read_only=True) as reader:
        writer.go_on()
        reader._lanes[0].view.sealed[0].segment.let_go()
        with pytest.raises(OffsetOutOfRange):
            reader.read(*QUEUE, 0)
        first, end = reader.queue_bounds(*QUEUE)
        assert (first, end) == writer.store.queue_bounds(*QUEUE)
        assert [one.data for one in reader.read(*QUEUE, first, max_messages=3)] == [
            message(first + at) for at in range(3)
        ]


@pytest.mark.parametrize("segments", [1, 2, 3, 0])
def test_reader_that_opens_while_segments_go(memory: Path, segments: int) -> None:
    """Every step of an opening is held up, until this many segments were removed."""
    writer, at = Writer(memory), 0
    with writer.store:
        while True:
            at += 1
            disk = SteppingDisk()
            disk.at, disk.between = at, partial(writer.go_on, segments)
            with MessageStore.open(memory, read_only=True, disk=disk) as reader:
                came = disk.steps >= at
                disk.at = 0
                # The page is told of a removal just behind it, by another thread.
                until(lambda reader=reader: reader.queue_bounds(*QUEUE) == writer.store.queue_bounds(*QUEUE))  # type: ignore[misc]
            if not came:
                break
        assert at > 3


def test_plan_held_up_at_any_step_is_made_again(memory: Path) -> None:
    """What is planned may be removed before it is read, which `read_part` says; planning itself goes on."""
    writer, at, right, came = Writer(memory), 0, 0, True
    with writer.store:
        while came:
            at += 1
            disk = SteppingDisk()
            with ScanPlanner(memory, disk=disk) as planner:
                disk.steps, disk.at, disk.between = 0, at, writer.go_on
                plan = planner.plan(ScanFilter(queue_ids=(0,)))
                came = disk.steps >= at
            assert plan.parts
            for part in plan.parts:
                with suppress(StoreUnreadable):
                    for batch in read_part(part):
                        assert batch.payload is not None
                        assert bytes(batch.payload) == b"".join(map(message, batch.offsets.tolist()))
                        right += len(batch)
    assert at > 3, "nothing was held up"
    assert right


def test_description_is_made_again_if_retention_is_faster(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, row, held_up = Writer(memory), beside._sealed_row, list[bool]()

    def row_of_a_removed_segment(lane: Lane, sealed: SealedSegment, totals: Totals) -> dict[str, Any]:
        if not held_up:
            held_up.append(True)
            writer.go_on()
        return row(lane, sealed, totals)

    monkeypatch.setattr(beside, "_sealed_row", row_of_a_removed_segment)
    with writer.store:
        found = inspect_folder(memory)
        assert held_up and found["verdict"] == "healthy"
        first, end = writer.store.queue_bounds(*QUEUE)
        assert found["queues"] == [{"topic": "t", "queue": 0, "first": first, "next_offset": end}]
