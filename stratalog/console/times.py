"""Times and durations of the command line."""

from __future__ import annotations

import re
import time
from datetime import datetime

import typer

TIMES = "now, -5m, 2026-11-22T10:00 (local; UTC with a Z at its end), or ms since the epoch"
DURATIONS = "5m, 1h30m, 2d, 500ms, or a number of ms"
LATEST_MS = (1 << 62) - 1
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


def time_ms_of(text: str) -> int:
    """A time, in ms since the epoch: see TIMES. Raises typer.BadParameter."""
    try:
        if _is_number(text):
            time_ms = int(text)
        elif text == "now" or text[:1] in ("-", "+"):
            time_ms = time.time_ns() // 1_000_000 + (0 if text == "now" else int(f"{text[0]}1") * _length_ms(text[1:]))
        else:
            time_ms = int(datetime.fromisoformat(text).timestamp() * 1000)  # without a zone it is local
        if time_ms <= LATEST_MS:
            return max(0, time_ms)
    except (ValueError, OverflowError, OSError):
        pass
    raise typer.BadParameter(f"{text!r} is no time: give {TIMES}")


def duration_ms_of(text: str) -> int:
    """A duration, in ms: see DURATIONS. Raises typer.BadParameter."""
    try:
        length_ms = int(text) if _is_number(text) else _length_ms(text)
        if length_ms <= LATEST_MS // 2:
            return length_ms
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(f"{text!r} is no duration: give {DURATIONS}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _length_ms(text: str) -> int:
    """Raises ValueError, OverflowError."""
    if not text.isascii() or _DURATION.fullmatch(text) is None:
        raise ValueError
    return int(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)))
