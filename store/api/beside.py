"""Checking and describing a store that another process has open: what of it is durable.

A closed store is checked whole, see `verify`. Beside a writer, its files change while they are read. So here a reader
follows it, as `MessageStore.open(path, read_only=True)` does, and what the reader sees is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...cache import plan_memory
from ..delayed.counting import sets_by_log
from ..device.folder import LOCK_FILE
from ..errors import StoreCorrupt, StoreLocked, StoreUnreadable, StoreUnusable, system_errors
from ..format.layout import FORMAT_VERSION, LOST_ENTRY, read_frame_header
from ..log.lane import Lane
from ..log.write import OpenSegment
from ..read.scan import LaneSnapshot
from ..segment.open_table import LENGTH
from ..segment.sealed import SealedSegment
from ..verify import folder as whole
from ..verify import inspect as described
from ..verify.inspect import TOPICS_SHOWN
from ..verify.report import Damage, Findings, Progress, VerifyReport
from .looking import look_into_folder
from .store import MessageStore
from .store_reader import StoreReader

LOOKED_AGAIN = 3
HEAD_BYTES = 128
Found = TypeVar("Found")
_Row = dict[str, Any]
_HIDDEN: _Row = {"subscriptions": None, "delayed": None}


def verify_folder(path: str | Path, progress: Progress | None = None) -> VerifyReport:
    """Read all of a store and check it. It changes no file but LOCK, and reports damage without raising.

    A store that a process has open is checked as far as it is sealed or durable; the report says so in `is_live`.

    Args:
        path: the folder of the store.
        progress: called now and then with (bytes checked, bytes in all).

    Raises:
        StoreUnusable: the folder is not a store, or the store has another format version.
        StoreUnreadable: the system refused to open or read a file; nothing is lost.
    """
    return _beside_or_whole(lambda: whole.verify_folder(path, progress), lambda: _verify(path, progress))


def inspect_folder(path: str | Path) -> dict[str, Any]:
    """Describe a store, ready for JSON. It changes no file but LOCK, and checks no payload.

    A figure that damage hides is None; `verify_folder` finds all damage. Messages that a repair gave up are not
    counted. The figures of a crashed store's unsealed segments come from frame headers and include a torn tail. The
    figures of a store that a process has open are those of its durable messages.

    Returns a dict:
        store_id (hex), format_version.
        open_in: the number of the process that has the store open, as a str; None for a closed store.
        verdict: "healthy"; "damaged": the store opens, and reads of damaged messages raise StoreCorrupt; or "needs
            repair": `MessageStore.open` raises StoreCorrupt.
        lanes: for each its `lane` number and its `segments`: `file`, `sequence`, `state`, `capacity_bytes`, `data_end`
            (bytes), `entries` (messages), `frames`, `streams` (queues with messages in it), `time_min_ms` and
            `time_max_ms` (since the epoch), `footer_bytes`, `problem`.
        totals: `messages`, `payload_bytes`, `disk_bytes`.
        streams: the number of queues. topics: the first 20.
        queues: for each `topic`, `queue`, `first`, `next_offset`.
        problems: for each `what`, `file`, `position` (bytes).
        subscriptions: for each `topic`, `name`, `mode`, and how many messages are not acknowledged: `ready` and
            `delayed`. `in_flight` is None: only the process that has the store open knows; they count as ready. All is
            None if damage hides it, or if a record is of a later version.
        delayed: by topic, how many messages are delayed and pending, without cancelled ones; None as above.
        memory_plan: the sizes, in bytes, of a store with default settings on this machine now.

    Raises:
        StoreUnusable: the folder is not a store, or the store has another format version.
        StoreUnreadable: the system refused to open or read a file; nothing is lost.
        StoreCorrupt: the file STORE is damaged.
    """
    return _beside_or_whole(lambda: _describe_closed(path), lambda: _describe(path))


def _beside_or_whole(closed: Callable[[], Found], beside: Callable[[], Found]) -> Found:
    """As a closed store; beside a writer, if there is one. Errors of the system are StoreUnreadable."""
    with system_errors("the store cannot be looked at", "Look again."):
        try:
            return closed()
        except StoreLocked:
            pass
        for _ in range(LOOKED_AGAIN):
            try:
                return beside()
            except (StoreUnreadable, FileNotFoundError):  # retention was faster
                continue
        try:
            return beside()
        except FileNotFoundError as error:
            raise StoreUnreadable(
                f"retention removed {error.filename} while the store was looked at; look again"
            ) from error


def _verify(path: str | Path, progress: Progress | None) -> VerifyReport:
    findings = Findings(progress)
    report = findings.report
    report.is_live = True
    with MessageStore.open(path, read_only=True) as reader:
        sources = [(lane, part) for lane in reader._lanes for part in LaneSnapshot(lane).by_segment()]
        sizes = [_used_bytes(part.only) for _, part in sources]
        findings.total_bytes = sum(sizes)
        for (lane, part), size in zip(sources, sizes, strict=True):
            _check(lane, part, findings)
            findings.done_bytes += size
            findings.reached(0)
            report.bytes += size
    return report


def _check(lane: Lane, part: LaneSnapshot, findings: Findings) -> None:
    """Read a segment from front to back: each frame, each message."""
    report = findings.report
    report.segments += 1
    try:
        for batch in part.batches():
            report.frames += 1
            report.messages += len(batch)
    except StoreCorrupt as error:
        findings.damage(error.what, Path(error.file), error.position)
    except FileNotFoundError:  # retention was faster: it is not the store's any more
        report.segments -= 1


def _used_bytes(source: SealedSegment | OpenSegment) -> int:
    if isinstance(source, SealedSegment):
        return source.record.footer_position + source.record.footer_bytes
    table, visible = source.table, source.table.visible
    if not visible:
        return 0
    position, length, _ = table.columns(visible - 1, visible)[0].tolist()
    return int(position + length)


# -- describing ---------------------------------------------------------------------------------------


def _describe_closed(path: str | Path) -> _Row:
    found: _Row = {"open_in": None, **described.inspect_folder(path)}
    try:
        with look_into_folder(path) as store:
            return {**found, **_deliveries(store)}
    except StoreCorrupt:  # it does not open; what the folder shows is said all the same
        return {**found, **_HIDDEN}


def _deliveries(store: StoreReader) -> _Row:
    """The subscriptions of a store that is only read, and what is delayed in it."""
    store.topics()  # follows the log
    try:
        pending = store._delaying.pending()
        infos = store._subscriptions().all(None, partial(sets_by_log, pending))
    except (StoreCorrupt, StoreUnusable):
        return _HIDDEN
    if not pending.is_whole:
        return _HIDDEN
    rows = [
        {
            "topic": info.topic, "name": info.name, "mode": info.settings.mode, "ready": info.backlog.ready,
            "in_flight": None, "delayed": info.backlog.delayed,
        }
        for info in infos
    ]  # fmt: skip
    return {"subscriptions": rows, "delayed": pending.counts()}


def _describe(path: str | Path) -> _Row:
    with MessageStore.open(path, read_only=True) as reader:
        lanes: list[_Row] = []
        problems: list[Damage] = []
        segments: list[_Row] = []
        for lane in reader._lanes:
            rows = [_sealed_row(one) for one in lane.view.sealed] + [_open_row(one) for one in lane.view.open]
            problems += [row["problem"] for row in rows if row["problem"] is not None]
            lanes.append({"lane": lane.index, "segments": rows})
            segments += rows
        used = dict.fromkeys(reader.topics())
        named = dict.fromkeys(stream.topic for lane in reader._lanes for stream in lane.streams)
        topics = [topic for topic in named if topic in used]
        queues = [
            {"topic": topic, "queue": queue, "first": bounds[0], "next_offset": bounds[1]}
            for topic in used
            for queue in reader.queues(topic)
            for bounds in (reader.queue_bounds(topic, queue),)
        ]
        totals: _Row = {name: _sum([row.pop(f"_{name}") for row in segments]) for name in ("messages", "payload_bytes")}
        totals["disk_bytes"] = sum(map(_size_of, reader.path.glob("lane-*/*.seg")))
        for row in segments:
            row["problem"] = str(row["problem"]) if row["problem"] is not None else None
        return {
            "open_in": _holder(reader.path),
            "store_id": reader._store_id.hex(),
            "format_version": FORMAT_VERSION,
            "verdict": "damaged" if problems else "healthy",
            "lanes": lanes,
            "totals": totals,
            "streams": len(queues),
            "topics": topics[:TOPICS_SHOWN],
            "queues": queues,
            "problems": [asdict(problem) for problem in problems],
            **_deliveries(reader),
            "memory_plan": plan_memory().as_dict(),
        }


def _holder(folder: Path) -> str:
    """The process that has noted itself in the lock."""
    with suppress(OSError):
        return (folder / LOCK_FILE).read_text(errors="replace").strip() or "unknown"
    return "unknown"


def _size_of(file: Path) -> int:
    """In bytes; 0 if retention has removed it since it was listed."""
    with suppress(FileNotFoundError):
        return file.stat().st_size
    return 0


def _sum(figures: list[int | None]) -> int | None:
    return None if None in figures else sum(figure or 0 for figure in figures)


def _row_of(source: SealedSegment | OpenSegment, **figures: Any) -> _Row:
    segment = source.segment
    return {
        "file": str(Path(segment.path.parent.name) / segment.path.name), "sequence": segment.sequence,
        "capacity_bytes": segment.header.capacity_bytes, "frames": None, "streams": None, "time_min_ms": None,
        "time_max_ms": None, "footer_bytes": 0, "problem": None, **figures,
    }  # fmt: skip


def _sealed_row(sealed: SealedSegment) -> _Row:
    """A sealed segment by its footer, and the payload bytes by the frames' headers."""
    record = sealed.record
    row = _row_of(
        sealed, state="sealed", data_end=record.data_end, entries=record.entries, footer_bytes=record.footer_bytes
    )
    row["_messages"] = row["_payload_bytes"] = None
    try:
        footer = sealed.footer
        footer.check_entries_once()
        row["frames"] = len(footer.frame_position)
        row["streams"] = int(np.count_nonzero(np.diff(footer.start.astype(np.int64))))
        if row["frames"]:
            row["time_min_ms"], row["time_max_ms"] = footer.time_min_ms, footer.time_max_ms
        payload_bytes = 0
        for position in footer.frame_position.tolist():
            frame = read_frame_header(sealed.segment.read(position, HEAD_BYTES), 0)
            if frame is None or frame.position != position:
                raise StoreCorrupt("a frame's header is damaged", sealed.segment.path, position)
            payload_bytes += min(frame.end, record.data_end) - position - frame.header_bytes
        row["_messages"] = int(np.count_nonzero(footer.entries != LOST_ENTRY))
        row["_payload_bytes"] = payload_bytes
    except StoreCorrupt as error:
        row["problem"] = Damage(error.what, error.file, error.position)
    return row


def _open_row(opened: OpenSegment) -> _Row:
    """The durable part of a segment that grows."""
    table, visible = opened.table, opened.table.visible
    frames = int(np.frombuffer(table.frame_entry[:], np.uint32).searchsorted(visible))
    times = table.frame_time[:frames]
    numbers = table.numbers(0, frames)[:visible]
    return _row_of(
        opened, state="open", data_end=_used_bytes(opened), entries=visible, frames=frames,
        streams=len(np.unique(numbers)), time_min_ms=min(times, default=None), time_max_ms=max(times, default=None),
        _messages=visible, _payload_bytes=int(table.columns(0, visible)[:, LENGTH].sum(dtype=np.int64)),
    )  # fmt: skip
