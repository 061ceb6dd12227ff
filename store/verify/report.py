"""What a check of a store found, and how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Damage:
    """What is damaged, in which file, at which byte; in the words of `StoreCorrupt`."""

    what: str
    file: str
    position: int

    def __str__(self) -> str:
        return f"{self.what} in {self.file} at byte {self.position}"


@dataclass
class VerifyReport:
    """What a check of a whole store found.

    Attributes:
        frames: frames whose head is right.
        messages: messages in them whose bytes are right.
        bytes: bytes of the log and its footers, blocks of headers included.
        segments: segments in use; pre-written spares are not.
        torn_bytes: bytes of frames behind the end of a crashed store's log, which nobody acknowledged.
        places: what is damaged, with its file and byte position.
        remarks: bytes that are not as they were written and belong to no message; a repair leaves them.
    """

    frames: int = 0
    messages: int = 0
    bytes: int = 0
    segments: int = 0
    torn_bytes: int = 0
    places: list[Damage] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is damaged."""
        return not self.places

    @property
    def damages(self) -> list[str]:
        """The damaged places, each as a sentence."""
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
        """Note what harms no message."""
        self.report.remarks.append(f"{what} in {path} at byte {position}")

    def reached(self, position: int) -> None:
        """Tell how far the current segment is."""
        if self._progress is not None:
            self._progress(min(self.done_bytes + position, self.total_bytes), self.total_bytes)


def differ(block: bytes, expected: bytes) -> int:
    """Where two blocks differ first."""
    pairs = enumerate(zip(block, expected, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(block), len(expected)))
