"""What `stratalog inspect` shows of a store: a head, a table of segments a lane, queues, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from ..perf.report import figures as report
from ..perf.report.figures import Figures
from ..perf.report.tables import plain

QUEUES_SHOWN = 20


def show(folder: Path, figures: Figures, console: Console, *, everything: bool) -> None:
    """All of it; without `everything` only the first queues."""
    console.print(plain(str(folder)), highlight=False, soft_wrap=True)
    console.print(report.pairs("store", head(figures)))
    for lane in figures["lanes"]:
        rows = [segment_row(segment) for segment in lane["segments"]]
        console.print(report.table(f"lane {lane['lane']}", rows) if rows else f"lane {lane['lane']}: no segments")
    show_queues(figures["queues"], console, everything=everything)
    plan = {name: value for name, value in flat(figures["memory_plan"])}
    console.print(report.pairs("memory that a store would plan if it were opened on this machine now", plan))
    for problem in figures["problems"]:
        sentence = f"{problem['what']} in {problem['file']} at byte {problem['position']}"
        console.print(plain(sentence), style="red", highlight=False, soft_wrap=True)


def head(figures: Figures) -> Figures:
    """The store in a few figures."""
    states = Counter(segment["state"] for lane in figures["lanes"] for segment in lane["segments"])
    return {
        "id": figures["store_id"],
        "format": figures["format_version"],
        "lanes": len(figures["lanes"]),
        "segments": ", ".join(f"{count:,} {state}" for state, count in sorted(states.items())) or "none",
        "messages": figures["totals"]["messages"],
        "payload_bytes": figures["totals"]["payload_bytes"],
        "disk_bytes": figures["totals"]["disk_bytes"],
        "queues": figures["streams"],
    }


def segment_row(segment: Figures) -> Figures:
    """A line of a lane's table. The bytes are those of the log and its footer."""
    end = segment["data_end"]
    return {
        "file": Path(segment["file"]).name,
        "state": segment["state"],
        "messages": segment["entries"],
        "bytes": None if end is None else end + segment["footer_bytes"],
        "first": time_text(segment["time_min_ms"]),
        "last": time_text(segment["time_max_ms"]),
    }


def time_text(time_ms: int | None) -> str | None:
    """ISO, UTC, to the second."""
    if time_ms is None:
        return None
    try:
        return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)  # of a clock that was far off


def show_queues(queues: Sequence[Figures], console: Console, *, everything: bool) -> None:
    """The queues with their bounds, and how many are not shown."""
    shown = queues if everything else queues[:QUEUES_SHOWN]
    if shown:
        named = [{**row, "queue": str(row["queue"])} for row in shown]  # a name, no figure: without commas
        console.print(report.table("queues", named, labels=2))
    if len(shown) < len(queues):
        console.print(f".. and {len(queues) - len(shown):,} more; --all shows them", highlight=False)


def flat(figures: Mapping[str, Any], above: str = "") -> list[tuple[str, object]]:
    """Nested figures as one list, the names joined by points."""
    found: list[tuple[str, object]] = []
    for name, value in figures.items():
        found += flat(value, f"{above}{name}.") if isinstance(value, Mapping) else [(above + name, value)]
    return found
