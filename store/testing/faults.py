"""Errors to inject into a simulated disk: which call fails, how, and for how long."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal[
    "write",
    "force",
    "truncate",
    "reserve",
    "open",
    "create",
    "rename",
    "link",
    "remove",
    "make_folder",
    "force_folder",
    "read",
]
KINDS: tuple[Kind, ...] = (
    "write", "force", "truncate", "reserve", "open", "create", "rename", "link", "remove", "make_folder",
    "force_folder", "read",
)  # fmt: skip


@dataclass
class Fault:
    """One error to inject.

    Attributes:
        kind: the operation that fails.
        nth: which of them, counted from 1 after the fault was set.
        error: errno of the OSError.
        for_good: later operations of the kind fail as well.
        short: of a write: this share of its bytes, 0 to 1, is written before the error; a short write.
    """

    kind: Kind
    nth: int = 1
    error: int = errno.EIO
    for_good: bool = False
    short: float = 0.0
    seen: int = 0
    struck: int = 0

    def strikes(self) -> bool:
        """Count one operation of the kind; True if it must fail."""
        self.seen += 1
        hit = self.seen >= self.nth if self.for_good else self.seen == self.nth
        self.struck += hit
        return hit

    def make_error(self, path: str) -> OSError:
        """The error of the call."""
        return OSError(self.error, f"{os.strerror(self.error)} (injected)", path)


class Faults:
    """The faults of a disk, by kind."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._by_kind: dict[Kind, list[Fault]] = {}
        for fault in faults:
            self._by_kind.setdefault(fault.kind, []).append(fault)
        self.kinds = frozenset(self._by_kind)  # the kinds that may strike

    def next(self, kind: Kind) -> Fault | None:
        """Count an operation. Returns the fault that it meets, if any."""
        if kind not in self._by_kind:
            return None
        met = [fault for fault in self._by_kind[kind] if fault.strikes()]
        return met[0] if met else None

    def strike(self, kind: Kind, path: Path) -> None:
        """Count an operation; raises the error that it meets, if any."""
        fault = self.next(kind)
        if fault is not None:
            raise fault.make_error(str(path))

    @property
    def struck(self) -> int:
        """How often a fault struck."""
        return sum(fault.struck for faults in self._by_kind.values() for fault in faults)


class PowerCut(OSError):
    """The power is cut: every later operation fails. `crash` gives the disk that is left."""


class Operation(NamedTuple):
    """An operation that is about to change something. Position and size are in bytes, 0 where they do not apply."""

    kind: Kind
    path: Path
    position: int
    size: int
