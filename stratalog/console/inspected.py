"""The output of `stratalog inspect`: the verdict, a table of segments per lane, queues, subscriptions, and problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from ..perf.report import figures as report
from ..perf.report.figures import Figures, counted
from ..perf.report.tables import plain

ROWS_SHOWN = 20


def verdict(figures: Figures) -> tuple[str, str]:
    """The verdict as a sentence, and its colour."""
    problems, said = figures["problems"], figures["verdict"]
    if said == "healthy":
        held = counted(figures["totals"]["messages"], "message")
        own = figures["totals"]["messages"] - sum(row["next_offset"] - row["first"] for row in figures["queues"])
        of_it = f" ({own:,} of them the store's own records, or deleted)" if own > 0 else ""
        states = {lane["segments"][-1]["state"] for lane in figures["lanes"] if lane["segments"]}
        crashed = "; it was not closed, and the next opening recovers it" if "open" in states else ""
        if figures["open_in"] is not None:
            crashed = f"; process {figures['open_in']} has it open, and these are its durable messages"
        checked = "; whether each byte is right, verify tells"
        return f"healthy: {held} in {counted(figures['streams'], 'queue')}{of_it}{crashed}{checked}", "green"
    first = problems[0]
    where = f"{first['what']} in {first['file']} at byte {first['position']}"
    if len(problems) > 1:
        where += f", and {counted(len(problems) - 1, 'place')} more"
    what = "opening refuses it, until the files are restored or repair=True sets the damage aside"
    if said == "damaged":
        what = "it opens, and reads of what is damaged raise StoreCorrupt"
    return f"{said}: {where}; {what}", "bold red"


def show(folder: Path, figures: Figures, console: Console, *, everything: bool, plan: bool) -> None:
    """Print the verdict and the figures; without `everything` only the first queues; the memory plan with `plan`."""
    sentence, style = verdict(figures)
    console.print(plain(sentence), style=style, highlight=False, soft_wrap=True)
    console.print(plain(str(folder)), highlight=False, soft_wrap=True)
    console.print(report.pairs("store", head(figures)))
    for lane in figures["lanes"]:
        rows = [segment_row(segment) for segment in lane["segments"]]
        console.print(report.table(f"lane {lane['lane']}", rows) if rows else f"lane {lane['lane']}: no segments")
    queues = [{**row, "queue": str(row["queue"])} for row in figures["queues"]]  # a name, not a figure: without commas
    show_rows("queues", queues, 2, console, everything=everything)
    show_deliveries(figures, console, everything=everything)
    if plan:
        sizes = dict(flat(figures["memory_plan"]))
        console.print(report.pairs("memory that a store would plan if it were opened on this machine now", sizes))
    for problem in figures["problems"]:
        sentence = f"{problem['what']} in {problem['file']} at byte {problem['position']}"
        console.print(plain(sentence), style="red", highlight=False, soft_wrap=True)


def head(figures: Figures) -> Figures:
    """A few figures of the store."""
    states = Counter(segment["state"] for lane in figures["lanes"] for segment in lane["segments"])
    return {
        "id": figures["store_id"],
        "format": figures["format_version"],
        "lanes": len(figures["lanes"]),
        "segments": ", ".join(f"{count:,} {state}" for state, count in sorted(states.items())) or "none",
        "messages": figures["totals"]["messages"],
        "payload_bytes": figures["totals"]["payload_bytes"],
        "disk_bytes": figures["totals"]["disk_bytes"],
        "of_it_prewritten_and_not_used_yet": unused_bytes(figures),
        "queues": figures["streams"],
    }


def unused_bytes(figures: Figures) -> int | None:
    """The bytes of the files beyond the log and its footers; None if damage hides the end of the log."""
    segments = [segment for lane in figures["lanes"] for segment in lane["segments"]]
    used = [(segment["data_end"] or 0) + segment["footer_bytes"] for segment in segments]
    total = figures["totals"]["disk_bytes"]
    return None if figures["problems"] or total is None else max(0, total - sum(used))


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


def time_text(time_ms: int | None, *, exact: bool = False) -> str | None:
    """A time as ISO in UTC, to the second, or to the ms if `exact`."""
    if time_ms is None:
        return None
    try:
        text = datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{text}.{time_ms % 1000:03}Z" if exact else f"{text}Z"
    except (ValueError, OverflowError, OSError):
        return str(time_ms)  # of a clock that was far off


def show_deliveries(figures: Figures, console: Console, *, everything: bool) -> None:
    """Print the subscriptions, and the delayed messages of each topic."""
    if figures["subscriptions"] is None:
        console.print("subscriptions and delayed messages: unknown, by the damage", style="yellow", highlight=False)
        return
    rows = [{**row, "in_flight": "unknown"} for row in figures["subscriptions"]]
    show_rows("subscriptions", rows, 3, console, everything=everything)
    delayed = [{"topic": topic, "pending": count} for topic, count in figures["delayed"].items()]
    show_rows("delayed messages", delayed, 1, console, everything=everything)


def show_rows(title: str, rows: Sequence[Figures], labels: int, console: Console, *, everything: bool) -> None:
    """Print a table, if it has rows, and the number of rows left out."""
    shown = rows if everything else rows[:ROWS_SHOWN]
    if shown:
        console.print(report.table(title, shown, labels=labels))
    if len(shown) < len(rows):
        console.print(f".. and {len(rows) - len(shown):,} more; --all shows them", highlight=False)


def flat(figures: Mapping[str, Any], above: str = "") -> list[tuple[str, object]]:
    """Nested figures as one list, the names joined by points."""
    found: list[tuple[str, object]] = []
    for name, value in figures.items():
        found += flat(value, f"{above}{name}.") if isinstance(value, Mapping) else [(above + name, value)]
    return found
