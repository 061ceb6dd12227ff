"""A frame of `stratalog top` as a screen of text."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ..perf.machine.folders import human_bytes
from ..perf.report.figures import Figures, counted
from ..perf.report.tables import plain

MOST_ROWS = 20  # of a table, where the screen has no height

Row = tuple[str, ...]


def screen_of(frame: Figures, height: int | None) -> RenderableType:
    """A frame as text; `height` in lines, None for as many as it takes."""
    tables: list[tuple[Row, list[Row]]] = [
        (("topic", "queues", "messages/s", "ever"), _topic_rows(frame)),
        (("subscription", "backlog", "given out", "acks/s"), _subscription_rows(frame)),
        (("delayed in", "pending", "next in", "kept"), _delayed_rows(frame)),
    ]
    return _Screen(_lines(frame), [(heading, rows) for heading, rows in tables if rows], height)


class _Screen:
    """Lines, and tables below them; as much of both as the screen has room for."""

    def __init__(self, lines: list[tuple[str, str]], tables: list[tuple[Row, list[Row]]], height: int | None) -> None:
        self._lines = lines
        self._tables = tables
        self._height = height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        texts, room = [Text(line, style) for line, style in self._lines], MOST_ROWS
        if self._height is not None:
            taken = sum(len(text.wrap(console, options.max_width)) for text in texts)
            if taken + 2 * len(self._tables) > self._height:  # a heading and a row each
                texts = [Text(line, style, no_wrap=True, overflow="ellipsis") for line, style in self._lines]
                taken = len(texts)
            room = (self._height - taken) // max(1, len(self._tables)) - 1
            texts = texts[: self._height]
        yield from texts
        if room > 0:
            for heading, rows in self._tables:
                yield _table(heading, rows[:room], len(rows))


def _lines(frame: Figures) -> list[tuple[str, str]]:
    at = time.strftime("%H:%M:%S", time.localtime(frame["at_ms"] / 1000))
    appends, writes, buffer = frame["appends"], frame["writes"], frame["publish_buffer"]
    reads, retention, segments = frame["reads"], frame["retention"], frame["segments"]
    found = [(plain(f"{frame['path']}: process {frame['pid']}, {at}, durability {frame['durability']}"), "bold")]
    if frame["poisoned"] is not None:
        found.append((plain(f"poisoned: {frame['poisoned']}"), "bold red"))
    if frame["background_error"] is not None:
        found.append((plain(f"background: {frame['background_error']}"), "red"))
    share = ", ".join(f"{name} {part:.0%}" for name, part in reads["share"].items() if part)
    found += [
        (f"appends   {_rate(appends['messages_per_s'])} messages/s, {_bytes_per_s(appends['payload_bytes_per_s'])}; "
         f"{_number(appends['messages_a_frame'])} a frame, {_number(appends['messages_a_force'])} a force; "
         f"written {_bytes_per_s(appends['written_bytes_per_s'])}, {_number(appends['write_amplification'])} x", ""),
        (f"writes    {_rate(writes['per_s'])}/s with their forces: mean {_ms(writes['mean_ms'])}, half below "
         f"{_ms(writes['p50_below_ms'])}, 99 % below {_ms(writes['p99_below_ms'])}, 99.9 % below "
         f"{_ms(writes['p999_below_ms'])}", ""),
        (f"buffer    {human_bytes(buffer['used_bytes'])} of {human_bytes(buffer['cap_bytes'])} not durable yet",
         "yellow" if buffer["used_bytes"] * 2 > buffer["cap_bytes"] else ""),
        (f"reads     {_rate(reads['messages_per_s'])} messages/s, {_bytes_per_s(reads['bytes_per_s'])}; "
         f"from {share or 'nowhere'}; device {_bytes_per_s(reads['device_bytes_per_s'])}", ""),
        ("memory    " + ", ".join(_tier(tier) for tier in frame["tiers"]), ""),
        (f"segments  {segments['sealed']:,} sealed, {segments['open']:,} open, {segments['spare']:,} ready, "
         f"{segments['unsealed']:,} wait for a footer; {counted(frame['streams'], 'queue')} in "
         f"{counted(frame['lanes'], 'lane')}", "yellow" if segments["unsealed"] else ""),
        (f"log       {human_bytes(retention['log_bytes'])}{_limits(retention)}; "
         f"{_rate(retention['removed_segments_per_s'])} segments/s removed", ""),
    ]  # fmt: skip
    lost = {"removed_unacknowledged": "removed before they were acknowledged", "expired": "expired"}
    told = [f"{frame['lost'][name]:,} {text}" for name, text in lost.items() if frame["lost"][name]]
    if told:
        found.append((f"messages  {', '.join(told)}, since the opening", "yellow"))
    left = [f"{count:,} {kind}" for kind, count in frame["left_out"].items() if count]
    if left:
        found.append((f"not shown {', '.join(left)}", "dim"))
    return found


def _limits(retention: Mapping[str, Any]) -> str:
    parts = [] if retention["limit_bytes"] is None else [f" of {human_bytes(retention['limit_bytes'])}"]
    if retention["oldest_age_ms"] is not None:
        parts.append(f", the oldest sealed segment {_duration(retention['oldest_age_ms'])} old")
    if retention["limit_ms"] is not None:
        parts.append(f" (kept for {_duration(retention['limit_ms'])})")
    return "".join(parts)


def _tier(tier: Mapping[str, Any]) -> str:
    used = "" if tier["used_bytes"] is None else f"{human_bytes(tier['used_bytes'])} of "
    return f"{tier['tier']} {used}{human_bytes(tier['capacity_bytes'])}, {_rate(tier['hits_per_s'])} hits/s"


def _topic_rows(frame: Figures) -> list[Row]:
    return [
        (row["topic"], f"{row['queues']:,}", _rate(row["messages_per_s"]), f"{row['appended']:,}")
        for row in frame["topics"]
    ]


def _subscription_rows(frame: Figures) -> list[Row]:
    return [
        (f"{row['topic']} {row['subscription']}", f"{row['unacknowledged']:,}", f"{row['in_flight']:,}",
         _rate(row["acknowledged_per_s"]))
        for row in frame["subscriptions"]
    ]  # fmt: skip


def _delayed_rows(frame: Figures) -> list[Row]:
    found: list[Row] = []
    for row in frame["delayed"]:
        if row["damaged"] is not None:
            found.append((row["topic"], "damaged", "-", "-"))
            continue
        due = row["next_due_ms"]
        wait = "-" if due is None else _duration(max(0, due - frame["at_ms"]))
        kept = (row["kept_bytes"] or 0) + (row["copies_bytes"] or 0)
        found.append((row["topic"], f"{row['pending']:,}", wait, human_bytes(kept)))
    return found


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]], count: int) -> Table:
    """A table whose first column is as wide as the others let it be."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    first = heading[0] if count <= len(rows) else f"{heading[0]} ({len(rows)} of {count:,})"
    made.add_column(_cell(first))  # the one column that may wrap is made narrower, and its cells do not wrap
    for name in heading[1:]:
        made.add_column(Text(name), justify="right", no_wrap=True)
    for row in rows:
        made.add_row(_cell(plain(row[0])), *(Text(plain(cell)) for cell in row[1:]))
    return made


def _cell(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:,.0f} us" if value < 1 else f"{value:,.1f} ms" if value < 1000 else f"{value / 1000:,.1f} s"


def _bytes_per_s(value: float | None) -> str:
    return "-" if value is None else f"{human_bytes(int(value))}/s"


def _duration(ms: int) -> str:
    seconds = ms / 1000
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds / 86_400:,.0f} d"
