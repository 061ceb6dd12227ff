"""Bugs that are planted on purpose, one at a time, to show that the simulation sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple
from unittest import mock

from store.disk import Buffer, LogFile
from store.format import FRAME_HEADER_BYTES, align_up, read_frame_header
from store.frame import decode_at
from store.scanner import FrameScanner, Scanned
from store.segment import Segment
from store.testing import Fault, SimulatedDisk
from store.write import Write

from .engine import KIB
from .world import Shape


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


@contextmanager
def acknowledge_before_the_force() -> Iterator[None]:
    """Answers are given when the kernel has the bytes; the force comes later."""
    logs: dict[Segment, _LateLog] = {}
    real = Segment.log

    def log(segment: Segment) -> _LateLog:
        if segment not in logs:
            logs[segment] = _LateLog(real.__get__(segment))
        return logs[segment]

    with mock.patch.object(Segment, "log", property(log)):
        yield


@contextmanager
def skip_a_checksum() -> Iterator[None]:
    """Recovery takes every message of a frame whose head is whole, whatever its bytes are."""
    with mock.patch("store.scanner.whole_messages", lambda frame, payload: frame.header.count):
        yield


@contextmanager
def accept_old_frames() -> Iterator[None]:
    """Recovery takes any frame that it finds in its place, also one of the file's former life."""

    def next_frame(scanner: FrameScanner) -> Scanned | None:
        for position in (scanner.position, align_up(scanner.position)):
            head = scanner.reader.view(position, FRAME_HEADER_BYTES)
            header = read_frame_header(head, 0)
            frame = decode_at(scanner.reader.view(position, header.header_bytes), 0) if header is not None else None
            if frame is not None:
                return scanner.accept(frame)
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
    real = Write.perform

    def perform(write: Write) -> None:
        try:
            real(write)
        except OSError:
            write.segment.log.force()

    with mock.patch.object(Write, "perform", perform):
        yield


class Planted(NamedTuple):
    """A bug, and the run that should show it."""

    plant: Callable[[], AbstractContextManager[None]]
    shape: Shape
    faults: Callable[[int], list[Fault]] = lambda seed: []


RECYCLING = Shape(retention_bytes=70 * KIB, typical_bytes=2_000, alignment="pad", steps=300, lives=1)

PLANTED: dict[str, Planted] = {
    "acknowledge before the force": Planted(acknowledge_before_the_force, Shape()),
    "skip a checksum": Planted(skip_a_checksum, Shape()),
    "accept a recycled segment's old frames": Planted(accept_old_frames, RECYCLING),
    "forget the directory force": Planted(forget_to_force_the_folder, Shape()),
    "retry after a failed force": Planted(
        retry_after_a_failed_force, Shape(), lambda seed: [Fault("force", nth=4 + seed % 20)]
    ),
}
