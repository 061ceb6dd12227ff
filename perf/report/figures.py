"""Figures as tables and as JSON, and the consoles that show them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from .tables import Sheet

Figures = dict[str, Any]
WIDTH_WITHOUT_TERMINAL = 140


def console() -> Console:
    """The console of the results: as wide as the terminal, else as COLUMNS says, else wide enough for a table.

    Brackets and colons, as in names of topics, have no special meaning.
    """
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if known else WIDTH_WITHOUT_TERMINAL, markup=False, emoji=False)


def messages_console() -> Console:
    """The console of all other output: standard error."""
    return Console(stderr=True, markup=False, emoji=False)


def table(title: str, rows: Sequence[Mapping[str, object]], labels: int = 1) -> Sheet:
    """A table with one column for each key, numbers to the right; the first `labels` columns name the row."""
    return Sheet(title, rows, labels)


def pairs(title: str, figures: Mapping[str, object]) -> Sheet:
    """A table of one figure a line."""
    return Sheet(title, [{"figure": name, "value": value} for name, value in figures.items()])


def counted(count: int, what: str) -> str:
    """ "1 message", "2 messages"."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def write_json(path: Path | None, figures: Mapping[str, Any]) -> None:
    """Write the figures to `path`; "-" is the standard output; None writes nothing."""
    if path is None:
        return
    text = json.dumps(figures, indent=2, default=_plain) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        path.write_text(text)


def _plain(value: object) -> object:
    """numpy scalars as Python numbers."""
    item = getattr(value, "item", None)
    return item() if item is not None else str(value)
