"""Bugs that are planted on purpose, one at a time, to show that the simulation sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from stratalog.store import MessageStore
from stratalog.store.device.disk import Disk
from stratalog.store.device.folder import FolderLock
from stratalog.store.device.log_file import Buffer, LogFile
from stratalog.store.format.footer import FooterData
from stratalog.store.format.frame import decode_at
from stratalog.store.format.layout import FRAME_HEADER_BYTES, LOST_ENTRY, align_up, read_frame_header
from stratalog.store.format.records import LentTrims, TrimmedColumns
from stratalog.store.log.lane import Lane
from stratalog.store.log.removal import Removal, TrimmedSegments
from stratalog.store.log.request import Request
from stratalog.store.log.spares import Spares
from stratalog.store.log.streams import Lows
from stratalog.store.log.trims import TrimRequest, Trims
from stratalog.store.log.write import Write
from stratalog.store.log.writes import WritesInFlight
from stratalog.store.log.written_lane import WrittenLane
from stratalog.store.recovery.lane_streams import LaneStreams
from stratalog.store.recovery.repair import Repair as RepairNotes
from stratalog.store.segment.checksums import whole_messages
from stratalog.store.segment.scanner import FrameScanner, ScannedFrame
from stratalog.store.segment.sealed import SealedSegment
from stratalog.store.segment.sealed_segments import SealedSegments
from stratalog.store.segment.sealing import write_footer
from stratalog.store.segment.segment import Segment
from stratalog.store.segment.writer import SegmentWriter
from stratalog.store.testing import Fault, SimulatedDisk

from .explore import Effort
from .planted_transactions import (
    cut_a_round_that_was_complete,
    forget_the_cut_of_a_round,
    keep_a_part_of_a_torn_transaction,
    look_at_the_first_frame_of_a_part_alone,
    show_a_transaction_message_by_message,
)
from .shape import KIB, Part, Settings, Shape
from .world import World


class _LateLog:
    """Writes now, and forces before the next write only."""

    direct = False

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self._due = False

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        if self._due:
            self._log.force()
        self._log.write(parts, position)
        self._due = force

    def force(self) -> None:
        self._due = True

    def is_in_place(self) -> bool:
        return self._log.is_in_place()

    def size(self) -> int:
        return self._log.size()

    def hole_from(self, position: int) -> int:
        return max(position, self.size())


@contextmanager
def acknowledge_before_the_force() -> Iterator[None]:
    """Answers are given when the kernel has the bytes; the force comes later."""
    logs: dict[SegmentWriter, _LateLog] = {}
    real = SegmentWriter.file

    def file(writer: SegmentWriter) -> _LateLog:
        if writer not in logs:
            logs[writer] = _LateLog(real.__get__(writer))
        return logs[writer]

    with mock.patch.object(SegmentWriter, "file", property(file)):
        yield


@contextmanager
def say_nothing_to_the_zeros() -> Iterator[None]:
    """The log writes behind its zeros, and they come after it."""
    with mock.patch.object(SegmentWriter, "reach", lambda writer, end: None):
        yield


@contextmanager
def tell_readers_before_the_force() -> Iterator[None]:
    """The live page says durable of what the kernel has."""
    real = WritesInFlight._advance

    def advance(under_way: WritesInFlight, *given: Any) -> int:
        cost = real(under_way, *given)
        under_way.forced_mark = under_way._whole
        return cost

    with mock.patch.object(WritesInFlight, "_advance", advance):
        yield


@contextmanager
def skip_a_checksum() -> Iterator[None]:
    """Recovery takes every message of a frame whose head is whole, whatever its bytes are."""
    with mock.patch("stratalog.store.segment.scanner.whole_messages", lambda frame, payload: frame.header.count):
        yield


@contextmanager
def accept_old_frames() -> Iterator[None]:
    """Recovery takes any frame that it finds in its place, also one of the file's former life."""

    def next_frame(scanner: FrameScanner) -> ScannedFrame | None:
        for position in (scanner.position, align_up(scanner.position)):
            head = scanner.reader.view(position, FRAME_HEADER_BYTES)
            header = read_frame_header(head, 0)
            frame = decode_at(scanner.reader.view(position, header.header_bytes), 0) if header is not None else None
            if frame is not None:
                scanner.step(frame.head)
                payload = scanner.reader.view(frame.payload_start, frame.header.payload_bytes)
                return ScannedFrame(frame, payload, whole_messages(frame, payload))
        return None

    with mock.patch.object(FrameScanner, "next", next_frame):
        yield


@contextmanager
def forget_to_force_the_folder() -> Iterator[None]:
    """New names are never forced."""
    with mock.patch.object(SimulatedDisk, "force_folder", lambda disk, folder: None):
        yield


@contextmanager
def retry_after_a_failed_force() -> Iterator[None]:
    """A force that failed is tried once more, and its success is believed."""
    with _once_more("perform"), _once_more("settle"):
        yield


@contextmanager
def _once_more(step: str) -> Iterator[None]:
    real = getattr(Write, step)

    def perform(write: Write) -> None:
        try:
            real(write)
        except OSError:
            write.segment.writer.file.force()

    with mock.patch.object(Write, step, perform):
        yield


@contextmanager
def remove_segments_out_of_order() -> Iterator[None]:
    """Retention takes the second segment of a lane, and the first one later."""
    with _removing(lambda sealed: (sealed[1], sealed[0], *sealed[2:])):
        yield


@contextmanager
def remove_the_wrong_end() -> Iterator[None]:
    """Retention takes the newest sealed segment."""
    with _removing(lambda sealed: (sealed[-1], *sealed[:-1])):
        yield


@contextmanager
def _removing(order: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Iterator[None]:
    real = Removal._remove_oldest

    def remove(removal: Removal, lane: WrittenLane, wanted: Callable[[Any, int], bool], **how: bool) -> bool:
        if len(lane.view.sealed) > 1 and wanted(lane.view.sealed, 0):
            lane.view = lane.view._replace(sealed=SealedSegments().with_newest(order(tuple(lane.view.sealed))))
        return real(removal, lane, wanted, **how)

    with mock.patch.object(Removal, "_remove_oldest", remove):
        yield


@contextmanager
def remove_too_much() -> Iterator[None]:
    """Retention counts every byte twice."""
    real = Removal.held_bytes
    with mock.patch.object(Removal, "held_bytes", lambda removal: 2 * real(removal)):
        yield


@contextmanager
def forget_the_force_of_a_spare() -> Iterator[None]:
    """A spare's name is not forced."""
    with _without_folder_forces(Spares, "make"):
        yield


@contextmanager
def forget_names_at_opening() -> Iterator[None]:
    """Opening takes the names that it finds for durable."""
    with _without_folder_forces(MessageStore, "_open"):
        yield


@contextmanager
def _without_folder_forces(owner: type, name: str) -> Iterator[None]:
    real = getattr(owner, name)

    def without(*given: Any, **more: Any) -> Any:
        with forget_to_force_the_folder():
            return real(*given, **more)

    with mock.patch.object(owner, name, without):
        yield


@contextmanager
def close_without_waiting() -> Iterator[None]:
    """Closing does not wait for the flushers, which answer what was handed over."""
    with mock.patch.object(World, "_drain", lambda world: None):
        yield


@contextmanager
def follow_the_working_directory() -> Iterator[None]:
    """The path of a store is kept as it was given."""
    with mock.patch("stratalog.store.api.store.fixed_path", Path, create=True):
        yield


@contextmanager
def keep_the_lock() -> Iterator[None]:
    """The lock of a folder is not given back. The run's own lock of a disk is."""
    kept: list[FolderLock] = []
    real = FolderLock.release

    def keep(lock: FolderLock) -> None:
        kept.append(lock)

    with mock.patch.object(FolderLock, "release", keep):
        yield
    for lock in kept:
        with suppress(OSError):  # its descriptor went with a run
            real(lock)


@contextmanager
def renumber_in_a_repair() -> Iterator[None]:
    """A repair gives the offsets of lost messages to those that follow."""

    def close_up(disk: Disk, segment: Segment, data: FooterData, *rest: int) -> SealedSegment:
        kept = data.entries != LOST_ENTRY
        begins = np.concatenate([[0], kept.cumsum()]).astype(np.uint32)
        return write_footer(disk, segment, replace(data, entries=data.entries[kept], start=begins[data.start]), *rest)

    with mock.patch("stratalog.store.recovery.lane_recovery.write_footer", close_up):
        yield


@contextmanager
def tell_no_loss() -> Iterator[None]:
    """A repair sets damage aside and does not tell."""
    with mock.patch.object(RepairNotes, "set_aside", lambda *given: None):
        yield


@contextmanager
def leave_trims_out_of_footers() -> Iterator[None]:
    """What is trimmed stands in the records alone."""
    with mock.patch.object(Trims, "lend", lambda trims: LentTrims(TrimmedColumns.of({}), TrimmedColumns.of({}))):
        yield


@contextmanager
def answer_trims_at_once() -> Iterator[None]:
    """A trim is acknowledged when its frame is built."""
    real = Trims.note

    def note(trims: Trims, requests: Sequence[Request]) -> int:
        count = real(trims, requests)
        for request in requests:
            if isinstance(request, TrimRequest):
                request.answer()
        return count

    with mock.patch.object(Trims, "note", note):
        yield


@contextmanager
def read_no_records() -> Iterator[None]:
    """Recovery takes what is trimmed from footers alone."""
    with mock.patch.object(LaneStreams, "note_records", lambda *given: None):
        yield


@contextmanager
def scan_what_is_trimmed() -> Iterator[None]:
    """A scan gives every message that is in the log."""
    with mock.patch.object(Lows, "column", lambda lows, streams: None):
        yield


@contextmanager
def remove_what_is_trimmed_in_part() -> Iterator[None]:
    """A segment goes as soon as something is trimmed."""

    def can_go(found: TrimmedSegments, lane: Lane, sealed: object, at: int) -> bool:
        return lane.lows.shown > 0

    with mock.patch.object(TrimmedSegments, "can_go", can_go):
        yield


class Planted(NamedTuple):
    """A bug, and the run that should show it; `seed`: one whose run shows it soon. The seeds after it are tried too."""

    plant: Callable[[], AbstractContextManager[None]]
    shape: Shape
    faults: Callable[[int], list[Fault]] = lambda seed: []
    effort: Effort = Effort()
    seed: int = 0


def _lives(*parts: Part, count: int = 2, **settings: Any) -> Shape:
    """Lives of one kind; no part of the schedule but these."""
    return Shape(lives=(Settings(**settings),) * count, parts=frozenset(parts))


def _retiring(parts: tuple[Part, ...] = (), **more: Any) -> Shape:
    """A run in which segments are removed and recycled."""
    shape = _lives(*parts, count=1, retention_bytes=70 * KIB, alignment="pad")
    return replace(shape, typical_bytes=2_000, steps=300, **more)


def _trimming() -> Shape:
    """A run in which queues are trimmed, over several segments."""
    return replace(_lives("trims"), typical_bytes=2_000, steps=300)


def _in_lanes() -> Shape:
    """A run with transactions over several lanes."""
    return replace(_lives("transactions", "kills"), lanes=3, queues=6, typical_bytes=2_000)


FEW = Effort(moments=0.3, subsets=1, nested=0.1)  # for what no power cut is needed to see
# For what the first recovery shows: some states of many runs.
FIRST = Effort(moments=0.1, subsets=2, nested=0.0, again=0.0, opened=0.0, repairs=0.0, readers=0.0, served=0.0)
STRUCK = Effort(behind_faults=True)
REPAIRS = Effort(moments=0.5, subsets=1, nested=0.0, repairs=1.0)

PLANTED: dict[str, Planted] = {
    "acknowledge before the force": Planted(acknowledge_before_the_force, _lives()),
    "tell readers before the force": Planted(tell_readers_before_the_force, _lives("readers", durability="os")),
    "skip a checksum": Planted(skip_a_checksum, _lives()),
    "keep a part of a torn transaction": Planted(
        keep_a_part_of_a_torn_transaction,
        replace(_lives("transactions"), typical_bytes=2_000),
        effort=FIRST,
        seed=4,
    ),
    "look at the first frame of a part alone": Planted(
        look_at_the_first_frame_of_a_part_alone,
        replace(_lives("transactions", "large transactions"), typical_bytes=2_000),
        effort=FEW,
    ),
    "show a transaction message by message": Planted(
        show_a_transaction_message_by_message,
        replace(_lives("transactions", "readers", alignment="trim"), typical_bytes=2_000),
        effort=FEW,
        seed=2,
    ),
    "forget the cut of a round": Planted(forget_the_cut_of_a_round, _in_lanes(), effort=FIRST, seed=2),
    "cut a round that was complete": Planted(cut_a_round_that_was_complete, _in_lanes(), effort=FIRST, seed=1),
    "accept a recycled segment's old frames": Planted(accept_old_frames, _retiring(), effort=FIRST),
    "forget the directory force": Planted(forget_to_force_the_folder, _lives()),
    "retry after a failed force": Planted(
        retry_after_a_failed_force, _lives(), lambda seed: [Fault("force", nth=4 + seed % 20)], STRUCK
    ),
    "remove segments out of order": Planted(remove_segments_out_of_order, _retiring(), effort=FEW, seed=4),
    "remove the wrong end": Planted(remove_the_wrong_end, _retiring(), effort=FEW),
    "remove too much": Planted(
        remove_too_much,
        replace(_lives("lanes", count=1, retention_bytes=300 * KIB), typical_bytes=2_000, steps=400),
        effort=FEW,
        seed=2,
    ),
    "forget the force of a spare": Planted(forget_the_force_of_a_spare, _retiring()),
    "say nothing to the zeros": Planted(say_nothing_to_the_zeros, replace(_lives(), zeros_bytes=16 * KIB), effort=FEW),
    "forget names at opening": Planted(forget_names_at_opening, _lives("kills", count=4, prewrite_bytes=200 * KIB)),
    "close without waiting": Planted(close_without_waiting, _lives(alignment="trim"), effort=FEW),
    "follow the working directory": Planted(
        follow_the_working_directory, replace(_lives("relative"), relative=True), effort=FEW
    ),
    "keep the lock": Planted(keep_the_lock, _lives("interrupts"), effort=FEW),
    "renumber in a repair": Planted(renumber_in_a_repair, _lives("repair"), effort=REPAIRS),
    "leave trims out of footers": Planted(leave_trims_out_of_footers, _trimming(), effort=FEW),
    "answer trims at once": Planted(answer_trims_at_once, _trimming(), seed=1),
    "read no records": Planted(read_no_records, _trimming(), effort=FEW),
    "scan what is trimmed": Planted(scan_what_is_trimmed, _trimming(), effort=FEW, seed=1),
    "remove what is trimmed in part": Planted(remove_what_is_trimmed_in_part, _trimming(), effort=FEW),
    "tell no loss": Planted(tell_no_loss, _lives("repair"), effort=REPAIRS, seed=5),
}
