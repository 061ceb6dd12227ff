"""Damaged stores: what one is made of, and the property that a repair has to keep."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from stratalog.store import MessageStore, StoreConfig, inspect_folder, verify_folder
from stratalog.store.format.layout import BLOCK_BYTES, DATA_START, SealRecord, SegmentHeader
from stratalog.store.recovery.repair import Loss

from .helpers import Queue, contents, put_snapshot, scanned, seal_of, take_snapshot

Rows = dict[Queue, dict[int, bytes]]


@dataclass
class Sample:
    """A whole store: its files, all of its messages, and older copies of its files by name."""

    config: StoreConfig
    files: dict[str, bytes]
    rows: Rows
    next_offsets: dict[Queue, int]
    is_crashed: bool  # nothing says that its last messages were durable: what is cut off there is no loss
    old: dict[str, list[bytes]] = field(default_factory=dict)


def take_sample(path: Path, config: StoreConfig, queues: list[Queue], old: list[dict[str, bytes]]) -> Sample:
    """The closed or crashed store in `path`, which is read from a copy."""
    files = take_snapshot(path)
    copy = put_snapshot(files, path.with_name("sample"))
    with MessageStore.open(copy, config) as store:
        rows = contents(store, queues)
        ends = {name: store.queue_bounds(*name)[1] for name in queues}
    shutil.rmtree(copy)
    copies: dict[str, list[bytes]] = {}
    for snapshot in old:
        for name, content in snapshot.items():
            if name.endswith(".seg") and content != files.get(name):
                copies.setdefault(name, []).append(content)
    unsealed = [
        at for at in sorted(path.glob("lane-*/*.seg")) if any(at.read_bytes()[DATA_START:]) and seal_of(at) is None
    ]
    return Sample(config, files, rows, ends, bool(unsealed), copies)


def lost_of(rows: Rows, expected: Rows) -> int:
    """How many of the expected messages are gone. The others must be as they were."""
    for name, mine in rows.items():
        for offset, data in mine.items():
            assert expected[name].get(offset) == data, f"a wrong message at {name} {offset}"
    return sum(map(len, expected.values())) - sum(map(len, rows.values()))


def newest_is_gone(path: Path, sample: Sample) -> bool:
    """Does the last file of a lane say nothing of what it had? See `says_nothing`."""
    last: dict[str, str] = {}
    for name, content in sorted(sample.files.items()):
        if name.endswith(".seg"):
            last[name.partition("/")[0]] = name
            header = SegmentHeader.unpack(content[:BLOCK_BYTES])
            if header is not None and header.sequence == int(Path(name).stem):  # no spare, and none that was recycled
                last[f"{name.partition('/')[0]} in use"] = name
    return any(says_nothing(path / name, sample.files[name]) for name in last.values())


def says_nothing(path: Path, whole: bytes) -> bool:
    """Is a segment's file gone, or all of it behind its header, or both its seal record and its last frames?"""
    if not path.exists() or path.stat().st_size < DATA_START:
        return True
    record = SealRecord.unpack(whole[BLOCK_BYTES:DATA_START])
    if record is None or seal_of(path) is not None:
        return False
    frames = slice(max(DATA_START, record.data_end - 2 * BLOCK_BYTES), record.data_end)
    return path.read_bytes()[frames] != whole[frames]


def check_repair(path: Path, sample: Sample) -> list[Loss]:
    """The property of a repair: no message moves, no acknowledged offset is given again, every loss is told and no
    other, and what is left opens, verifies and repairs to the same. The losses.
    """
    queues = list(sample.rows)
    may_be_silent = sample.is_crashed or newest_is_gone(path, sample)
    with MessageStore.open(path, sample.config, repair=True) as store:
        losses = store.losses
        rows = contents(store, queues)
        unsure = any(loss.offsets_may_repeat for loss in losses)
        lost = lost_of(rows, sample.rows)
        lost -= sum(len(mine) for name, mine in scanned(store).items() if name not in sample.rows)  # renamed by us
        told = [loss.messages for loss in losses]
        if None not in told:
            total = sum(count or 0 for count in told)
            assert total == lost or (may_be_silent and total < lost), (total, lost, losses)
        for name in queues:
            offset = store.append(*name, b"new")
            if not (unsure or may_be_silent):
                assert offset >= sample.next_offsets[name], (name, offset, losses)
            assert offset not in rows[name]
            rows[name][offset] = b"new"
        assert contents(store, queues) == rows
    with MessageStore.open(path, sample.config) as store:  # no damage is left: it opens without a repair
        assert store.losses == []
        assert contents(store, queues) == rows
    assert verify_folder(path).damages == []
    assert inspect_folder(path)["problems"] == []
    with MessageStore.open(path, sample.config, repair=True) as store:
        assert store.losses == []
        assert contents(store, queues) == rows
    return losses
