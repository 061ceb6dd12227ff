"""Damaged stores: what one is made of, kinds of damage, and the property that a repair has to keep."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stratalog.store import MessageStore, StoreConfig, StoreCorrupt, inspect_folder, verify_folder
from stratalog.store.format.layout import BLOCK_BYTES, DATA_START, START_FILE, SealRecord, SegmentHeader
from stratalog.store.recovery.repair import Loss

from .helpers import Queue, contents, flip_bit, overwrite, put_snapshot, scanned, seal_of, take_snapshot

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
    unsealed = [at for at in segments(path) if any(at.read_bytes()[DATA_START:]) and seal_of(at) is None]
    return Sample(config, files, rows, ends, bool(unsealed), copies)


def segments(path: Path) -> list[Path]:
    """The segment files of all lanes."""
    return sorted(path.glob("lane-*/*.seg"))


def flip_if_there(path: Path, at: int, bit: int) -> None:
    """Damage one bit of a file, if no earlier damage has cut the file before it."""
    if at < path.stat().st_size:
        flip_bit(path, at, bit)


def flip(chance: random.Random, path: Path, sample: Sample) -> str:
    """A bit anywhere in a file."""
    victim = chance.choice(segments(path))
    at = chance.randrange(max(1, victim.stat().st_size))
    flip_if_there(victim, at, chance.randrange(8))
    return f"bit at {at} of {victim.name}"


def flip_head(chance: random.Random, path: Path, sample: Sample) -> str:
    """A bit of the header, the seal record or the first frame."""
    victim = chance.choice(segments(path))
    at = chance.choice([0, BLOCK_BYTES, DATA_START]) + chance.randrange(90)
    flip_if_there(victim, at, chance.randrange(8))
    return f"bit at {at} of {victim.name}"


def flip_footer(chance: random.Random, path: Path, sample: Sample) -> str:
    """A bit of a footer."""
    # The record of a spare that was recycled is of another segment.
    sealed = [
        (at, record)
        for at in segments(path)
        if (record := seal_of(at)) and record.footer_bytes and record.sequence == int(at.stem)
    ]
    if not sealed:
        return "no footer"
    victim, record = chance.choice(sealed)
    at = record.footer_position + chance.randrange(record.footer_bytes)
    flip_if_there(victim, at, chance.randrange(8))
    return f"bit at {at} of {victim.name}, in its footer"


def flip_start(chance: random.Random, path: Path, sample: Sample) -> str:
    """A bit of one or both copies of START."""
    victim = chance.choice(sorted(path.glob(f"lane-*/{START_FILE}")))
    both = chance.random() < 0.5
    for at in (0, BLOCK_BYTES)[: 1 + both]:
        flip_bit(victim, at + chance.randrange(50))
    return f"START, both: {both}"


def zero(chance: random.Random, path: Path, sample: Sample) -> str:
    """A range of zeros or rubbish."""
    victim = chance.choice(segments(path))
    at, size = chance.randrange(victim.stat().st_size + 1), chance.choice([1, 100, 4096, 10_000])
    overwrite(victim, at, bytes(size) if chance.random() < 0.5 else chance.randbytes(size))
    return f"{size} bytes at {at} of {victim.name}"


def cut(chance: random.Random, path: Path, sample: Sample) -> str:
    """The end of a file is gone."""
    victim = chance.choice(segments(path))
    at = chance.randrange(victim.stat().st_size + 1)
    with victim.open("r+b") as file:
        file.truncate(at)
    return f"cut {victim.name} at {at}"


def unlink(chance: random.Random, path: Path, sample: Sample) -> str:
    """A file is gone."""
    victim = chance.choice([*segments(path), *path.glob(f"lane-*/{START_FILE}")])
    victim.unlink()
    return f"without {victim.parent.name}/{victim.name}"


def unlink_first(chance: random.Random, path: Path, sample: Sample) -> str:
    """The first files of a lane are gone."""
    lane = chance.choice(sorted(path.glob("lane-*")))
    victims = sorted(lane.glob("*.seg"))[: chance.randrange(1, 3)]
    for victim in victims:
        victim.unlink()
    return f"without {[victim.name for victim in victims]}"


def exchange(chance: random.Random, path: Path, sample: Sample) -> str:
    """Two files have each other's names."""
    files = segments(path)
    if len(files) < 2:
        return "only one"
    one, two = chance.sample(files, 2)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    return f"{one.name} and {two.name} exchanged"


def put_old(chance: random.Random, path: Path, sample: Sample) -> str:
    """An older copy of a file that has a later one behind it."""
    names = [at for at in segments(path)[:-1] if str(at.relative_to(path)) in sample.old]
    if not names:
        return "no old copy"
    victim = chance.choice(names)
    victim.write_bytes(chance.choice(sample.old[str(victim.relative_to(path))]))
    return f"old copy of {victim.name}"


def remove_lane(chance: random.Random, path: Path, sample: Sample) -> str:
    """A lane's folder is gone."""
    victim = chance.choice(sorted(path.glob("lane-*")))
    shutil.rmtree(victim)
    return f"without {victim.name}"


KINDS: list[Callable[[random.Random, Path, Sample], str]] = [
    flip, flip_head, flip_footer, flip_start, zero, cut, unlink, unlink_first, exchange, put_old, remove_lane,
]  # fmt: skip


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


def check_refusals_agree(path: Path, sample: Sample) -> None:
    """Whatever a plain opening refuses, verify and inspect report; and it never gives a wrong message."""
    before = take_snapshot(path)
    verified, problems = verify_folder(path), inspect_folder(path)["problems"]
    refused: StoreCorrupt | None = None
    try:
        with MessageStore.open(path, sample.config) as store, contextlib.suppress(StoreCorrupt):
            rows = scanned(store)
            lost_of({name: rows.get(name, {}) for name in sample.rows}, sample.rows)
    except StoreCorrupt as error:
        refused = error
    put_snapshot(before, path)
    assert refused is None or (problems and not verified.ok), f"not reported: {refused}"


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
