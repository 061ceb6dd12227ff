"""The findings of a check of a store, and its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Damage:
    """One damaged place: the damage, the file and the byte; in the words of `StoreCorrupt`."""

    what: str
    file: str
    position: int

    def __str__(self) -> str:
        return f"{self.what} in {self.file} at byte {self.position}"


@dataclass
class VerifyReport:
    """The findings of a check of a whole store.

    Attributes:
        frames: the number of frames whose header is right.
        messages: the number of messages in these frames whose checksum is right.
        bytes: the bytes of the log and its footers, with the blocks of segment headers.
        segments: the number of segments in use, without pre-written spares.
        torn_bytes: the bytes of a torn tail: frames after the end of a crashed store's log, never acknowledged.
        places: the damaged places, each with `what`, `file` and `position` (in bytes).
        is_live: a process had the store open: only sealed and durable bytes were checked.
        remarks: sentences about changed bytes that belong to no message. They are harmless; a repair leaves them.
    """

    frames: int = 0
    messages: int = 0
    bytes: int = 0
    segments: int = 0
    torn_bytes: int = 0
    is_live: bool = False
    places: list[Damage] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if nothing is damaged."""
        return not self.places

    @property
    def damages(self) -> list[str]:
        """Each damaged place as a sentence."""
        return [str(place) for place in self.places]


class Findings:
    """The report of a running check, and its progress over the bytes of all segments."""

    def __init__(self, progress: Progress | None) -> None:
        self.report = VerifyReport()
        self.total_bytes = self.done_bytes = 0
        self._progress = progress

    def damage(self, what: str, path: Path, position: int) -> None:
        """Note a damage."""
        self.report.places.append(Damage(what, str(path), position))

    def remark(self, what: str, path: Path, position: int) -> None:
        """Note a harmless change."""
        self.report.remarks.append(f"{what} in {path} at byte {position}")

    def reached(self, position: int) -> None:
        """Tell the progress in the current segment."""
        if self._progress is not None:
            self._progress(min(self.done_bytes + position, self.total_bytes), self.total_bytes)


def differ(block: bytes, expected: bytes) -> int:
    """The index of the first byte in which two blocks differ."""
    pairs = enumerate(zip(block, expected, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(block), len(expected)))
