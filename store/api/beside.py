"""Checking and describing a store that another process has open: what of it is durable.

A closed store is checked whole, see `verify`. Beside a writer, its files change while they are read. So here a reader
follows it, as `MessageStore.open(path, read_only=True)` does, and what the reader sees is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..device.folder import LOCK_FILE
from ..errors import StoreCorrupt, StoreLocked, StoreUnreadable, StoreUnusable, system_errors
from ..log.lane import Lane
from ..log.streams import NOT_DEFINED
from ..log.write import OpenSegment
from ..read.scan import LaneSnapshot
from ..segment.open_table import LENGTH
from ..segment.sealed import SealedSegment
from ..verify import folder as whole
from ..verify import inspect as described
from ..verify.described import Row, Totals, describe_sealed, description, segment_row
from ..verify.report import Damage, Findings, Progress, VerifyReport
from .looking import look_into_folder
from .store import MessageStore
from .store_reader import StoreReader

LOOKED_AGAIN = 3
Answer = TypeVar("Answer")
_HIDDEN: Row = {"subscriptions": None, "delayed": None}


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


def _beside_or_whole(closed: Callable[[], Answer], beside: Callable[[], Answer]) -> Answer:
    """The answer for a closed store, or beside its writer. Errors of the system are StoreUnreadable."""
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
        parts = [part for lane in reader._lanes for part in LaneSnapshot(lane).by_segment()]
        sizes = [_used_bytes(part.only) for part in parts]
        findings.total_bytes = sum(sizes)
        for part, size in zip(parts, sizes, strict=True):
            _check(part, findings)
            findings.done_bytes += size
            findings.reached(0)
            report.bytes += size
    return report


def _check(part: LaneSnapshot, findings: Findings) -> None:
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


def _describe_closed(path: str | Path) -> Row:
    found: Row = {"open_in": None, **described.inspect_folder(path)}
    try:
        with look_into_folder(path) as store:
            return {**found, **_deliveries(store)}
    except StoreCorrupt:  # it does not open; the folder is described in any case
        return {**found, **_HIDDEN}


def _deliveries(store: StoreReader) -> Row:
    """The subscriptions of a store that is only read, and what is delayed in it."""
    store.topics()  # follows the log
    try:
        pending = store._delaying.pending()
        infos = store._subscriptions().all(None, pending.sets_of)
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


def _describe(path: str | Path) -> Row:
    with MessageStore.open(path, read_only=True) as reader:
        totals = Totals()
        lanes = {
            lane.index: [_sealed_row(lane, one, totals) for one in lane.view.sealed]
            + [_open_row(lane, one, totals) for one in lane.view.open]
            for lane in reader._lanes
        }
        totals.add(disk_bytes=sum(map(_size_of, reader.path.glob("lane-*/*.seg"))))
        problems = [row["problem"] for rows in lanes.values() for row in rows if row["problem"] is not None]
        used = dict.fromkeys(reader.topics())
        named = dict.fromkeys(stream.topic for lane in reader._lanes for stream in lane.streams)
        queues = [
            {"topic": topic, "queue": queue, "first": bounds[0], "next_offset": bounds[1]}
            for topic in used
            for queue in reader.queues(topic)
            for bounds in (reader.queue_bounds(topic, queue),)
        ]
        verdict, topics = "damaged" if problems else "healthy", [topic for topic in named if topic in used]
        found = description(reader._store_id, verdict, lanes, totals, queues, topics, problems)
        return {"open_in": _holder(reader.path), **found, **_deliveries(reader)}


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


def _records_of(lane: Lane) -> int | None:
    """The number of the lane's stream of records, if it has one."""
    number = lane.lows.records.number
    return None if number == NOT_DEFINED else number


def _sealed_row(lane: Lane, sealed: SealedSegment, totals: Totals) -> Row:
    """A sealed segment by its footer, and the payload bytes by the frames' headers."""
    segment, record = sealed.segment, sealed.record
    row = segment_row(segment.path, segment.sequence, "sealed", segment.header.capacity_bytes, record)
    payload_bytes = messages = None
    try:
        footer = sealed.footer
        footer.check_entries_once()
        payload_bytes, messages = describe_sealed(row, footer, record, _records_of(lane), segment.read, segment.path)
    except StoreCorrupt as error:
        row["problem"] = Damage(error.what, error.file, error.position)
    totals.add(messages=messages, payload_bytes=payload_bytes)
    return row


def _open_row(lane: Lane, opened: OpenSegment, totals: Totals) -> Row:
    """The durable part of a segment that grows."""
    segment, table, visible = opened.segment, opened.table, opened.table.visible
    frames = int(np.frombuffer(table.frame_entry[:], np.uint32).searchsorted(visible))
    times = table.frame_time[:frames]
    numbers = table.numbers(0, frames)[:visible]
    own = np.unique(numbers[numbers != lane.lows.records.number], return_counts=True)[1]
    row = segment_row(segment.path, segment.sequence, "open", segment.header.capacity_bytes, None)
    row.update(
        data_end=_used_bytes(opened), entries=visible, frames=frames, streams=len(own),
        time_min_ms=min(times, default=None), time_max_ms=max(times, default=None),
    )  # fmt: skip
    payload_bytes = int(table.columns(0, visible)[:, LENGTH].sum(dtype=np.int64))
    totals.add(messages=int(own.sum()), payload_bytes=payload_bytes)
    return row
