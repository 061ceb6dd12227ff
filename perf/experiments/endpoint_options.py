"""What the chapters of `endpoint` share: where stores are made, and how much is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..report.progress import Run

AT_ONCE = 64  # callers


@dataclass(frozen=True, kw_only=True)
class Options:
    """A folder for stores, and the options of the command."""

    base: Path
    run: Run
    calls: int
    messages: int
    connections: int
    size_bytes: int
