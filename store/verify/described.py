"""The description of a store, closed or open: its shape, and the content of sealed segments' footers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ...cache import plan_memory
from ..format.footer import Footer
from ..format.layout import FORMAT_VERSION, LOST_ENTRY, SealRecord, read_frame_header
from .report import Damage

TOPICS_SHOWN = 20
HEAD_BYTES = 128  # the fixed part of a frame's head is among them
Row = dict[str, Any]


def segment_row(path: Path, sequence: int, state: str, capacity_bytes: int, record: SealRecord | None) -> Row:
    """A segment's row with the content of its first blocks. Its `problem` stays a Damage until `description`."""
    return {
        "file": str(Path(path.parent.name) / path.name),
        "sequence": sequence,
        "state": state,
        "capacity_bytes": capacity_bytes,
        "data_end": record.data_end if record is not None else None,
        "entries": record.entries if record is not None else None,
        "frames": None,
        "streams": None,
        "time_min_ms": None,
        "time_max_ms": None,
        "footer_bytes": record.footer_bytes if record is not None else 0,
        "problem": None,
    }


def describe_sealed(
    row: Row, footer: Footer, record: SealRecord, records: int | None, read: Callable[[int, int], bytes], path: Path
) -> tuple[int | None, int]:
    """Note a footer's content in a row. Returns payload bytes, by the frames' fixed headers, and messages.

    `records`: the number of the lane's stream of records, which are no messages. `read` gives bytes of the segment.
    """
    row["frames"] = len(footer.frame_position)
    counts = np.diff(footer.start.astype(np.int64))
    at = -1 if records is None else footer.row_of(records)
    own = int(counts[at]) if at >= 0 else 0
    row["streams"] = int(np.count_nonzero(counts)) - (own > 0)
    if len(footer.frame_position):
        row["time_min_ms"], row["time_max_ms"] = footer.time_min_ms, footer.time_max_ms
    payload_bytes: int | None = 0
    for position in footer.frame_position.tolist():
        frame = read_frame_header(read(position, HEAD_BYTES), 0)
        if frame is None or frame.position != position or payload_bytes is None:
            payload_bytes = None
            row["problem"] = row["problem"] or Damage("a frame's header is damaged", str(path), position)
        else:
            payload_bytes += min(frame.end, record.data_end) - position - frame.header_bytes
    return payload_bytes, int(np.count_nonzero(footer.entries != LOST_ENTRY)) - own


class Totals(dict[str, "int | None"]):
    """Sums over the segments; None for a figure that is not known of all."""

    def __init__(self) -> None:
        super().__init__(messages=0, payload_bytes=0, disk_bytes=0)

    def add(self, **figures: int | None) -> None:
        """Add a segment's figures."""
        for name, value in figures.items():
            before = self[name]
            self[name] = None if before is None or value is None else before + value


def description(
    store_id: bytes, verdict: str, lanes: Mapping[int, Sequence[Row]], totals: Totals, queues: Iterable[Row],
    topics: Sequence[str], problems: Sequence[Damage],
) -> Row:  # fmt: skip
    """The whole description, JSON-ready. `lanes`: the rows of each one's segments."""
    for row in (row for rows in lanes.values() for row in rows):
        row["problem"] = str(row["problem"]) if row["problem"] is not None else None
    sorted_queues = sorted(queues, key=lambda row: (row["topic"], row["queue"]))
    return {
        "store_id": store_id.hex(),
        "format_version": FORMAT_VERSION,
        "verdict": verdict,
        "lanes": [{"lane": lane, "segments": rows} for lane, rows in lanes.items()],
        "totals": totals,
        "streams": len(sorted_queues),
        "topics": topics[:TOPICS_SHOWN],
        "queues": sorted_queues,
        "problems": [asdict(problem) for problem in problems],
        "memory_plan": plan_memory().as_dict(),
    }
