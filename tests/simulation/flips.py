"""Flips every bit of the kept stores, one at a time: each must be reported, or do no harm.

Reported: StoreCorrupt, when the store is opened or read. Harmless: every message is there with its bytes. Cut: the
last frame of a store that was not closed is taken for a torn tail, since nothing on the disk says that it was ever
durable; the messages before it are all there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import track

from stratalog.store import MessageStore, StoreCorrupt
from stratalog.store.format.footer import HEADER_BYTES
from stratalog.store.format.layout import (
    BLOCK_BYTES,
    DATA_START,
    FRAME_HEADER_BYTES,
    SEALED,
    START_FILE,
    SealRecord,
    SegmentHeader,
    align_up,
)
from stratalog.store.segment.scanner import ChunkReader, FrameScanner
from stratalog.store.testing import SimulatedDisk

from .engine import abandon, deterministic, home, open_store
from .kept import CONFIG, FIRST_MS, LOWS, NAMES, UNREAD_FRAMES, differences, load, remaining

STORE_BYTES = 8 + 4 + 16 + 4 + 8  # magic, version, id, lanes, checksum
START_BYTES = 8 + 4 + 4 + 16 + 8 + 8 + 8
SEGMENT_BYTES = 8 + 4 + 4 + 16 + 6 * 8 + 8
SEAL_BYTES = 8 + 4 + 4 + 7 * 8 + 8
SAMPLED = 64  # one byte in so many of payloads


class Range(NamedTuple):
    """Bytes of one kind. `step` is 1 where each is flipped."""

    part: str
    store: str
    path: Path
    begin: int
    end: int
    step: int = 1
    last: bool = False  # of the last frame of a store that was not closed


@dataclass
class Row:
    """What came of the flips of one part."""

    bits: int = 0
    reported: int = 0
    harmless: int = 0
    cut: int = 0
    elsewhere: int = 0  # of those reported: the error names another file
    wrong: list[str] = field(default_factory=list)


def ranges(name: str, disk: SimulatedDisk) -> Iterator[Range]:
    """All that there is to flip in a kept store."""
    for path, content in disk.files().items():
        if path.name == "STORE":
            yield Range("STORE", name, path, 0, STORE_BYTES)
        elif path.name == START_FILE:
            for copy in (0, BLOCK_BYTES):
                yield Range("START", name, path, copy, copy + START_BYTES)
        elif SegmentHeader.unpack(content[:BLOCK_BYTES]) is None:
            yield Range("spare", name, path, 0, len(content), 256 * SAMPLED)
        else:
            yield from _segment_ranges(name, disk, path, content)


def _segment_ranges(name: str, disk: SimulatedDisk, path: Path, content: bytes) -> Iterator[Range]:
    record = SealRecord.unpack(content[BLOCK_BYTES:DATA_START])
    state = "open" if record is None else "sealed" if record.state == SEALED else "closed"
    yield Range(f"{state}: segment header", name, path, 0, SEGMENT_BYTES)
    yield Range(f"{state}: seal record", name, path, BLOCK_BYTES, BLOCK_BYTES + SEAL_BYTES)
    reader = ChunkReader(disk.open(path), len(content))
    end = record.data_end if record is not None else len(content)
    headers = FrameScanner(reader, int(path.parent.name[5:]), int(path.stem), DATA_START, 0).find_later(DATA_START, end)
    reader.close()
    for index, header in enumerate(headers):
        at, last = header.position, record is None and header is headers[-1]
        kind = f"{state}: last frame" if last else f"{state}: frame"
        yield Range(f"{kind} header", name, path, at, at + FRAME_HEADER_BYTES, 1, last)
        yield Range(f"{kind} columns", name, path, at + FRAME_HEADER_BYTES, at + header.header_bytes, 1, last)
        step = 1 if header.payload_bytes < SAMPLED else SAMPLED
        unread = int(path.stem) == 1 and index in UNREAD_FRAMES
        part = f"{state}: payloads of which some are trimmed" if unread else f"{kind} payloads"
        yield Range(part, name, path, at + header.header_bytes, header.end, step, last)
        yield Range(f"{state}: padding", name, path, header.end, min(align_up(header.end), end), SAMPLED)
    if record is not None and record.state == SEALED:
        begin = record.footer_position
        yield Range("footer header", name, path, begin, begin + HEADER_BYTES)
        yield Range("footer sections", name, path, begin + HEADER_BYTES, begin + record.footer_bytes)


def flip_everything(seed: int, *, every: int = 1, console: Console | None = None) -> dict[str, Row]:
    """Flip every `every`th bit of both kept stores; what came of it, by part."""
    chance = random.Random(seed)
    rows: dict[str, Row] = {}
    with deterministic():
        for name in NAMES:
            disk = load(name)
            todo = list(ranges(name, disk))
            for part in track(todo, name, console=console) if console is not None else todo:
                row = rows.setdefault(part.part, Row())
                bits = (part.end - part.begin) * 8
                for number in range(chance.randrange(every * part.step), bits, every * part.step):
                    _flip(disk, part, part.begin + number // 8, number % 8, row)
    return rows


def _flip(disk: SimulatedDisk, part: Range, position: int, bit: int, row: Row) -> None:
    twin = disk.copy()
    twin.flip(part.path, position, bit)
    row.bits += 1
    place = f"{part.store}: {part.part}, {part.path.relative_to(home())} at byte {position}, bit {bit}"
    try:
        found = look(twin)
    except StoreCorrupt as error:
        row.reported += 1
        row.elsewhere += error.file != str(part.path)
    except Exception as error:
        row.wrong.append(f"{place}: {type(error).__name__}: {error}")
    else:
        if found == "whole":
            row.harmless += 1
        elif found == "cut" and part.last:
            row.cut += 1
        else:
            row.wrong.append(f"{place}: {found}, and not reported")


def look(disk: SimulatedDisk) -> str:
    """Open a store and read it in two ways: "whole", "cut" (a beginning of it, with right bytes), or what is wrong."""
    store = open_store(disk, CONFIG, lambda: FIRST_MS, random.Random(0))
    try:
        scanned = scan(store)
        right = remaining()
        if not differences(store):
            return "whole" if scanned == right else "scan and read differ"
        for queue, datas in scanned.items():
            if datas != right.get(queue, [])[: len(datas)]:
                return f"other bytes in {queue}"
            if [
                message.data
                for message in store.read(*queue, LOWS.get(queue, 0), max_messages=10_000, max_bytes=1 << 30)
            ] != datas:
                return f"scan and read differ in {queue}"
        return "cut"
    finally:
        abandon(store)


def scan(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    """The payloads of every queue, in the order of a scan."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for batch in store.scan():
        for index, data in enumerate(batch.payloads()):
            found.setdefault((batch.topic(index), batch.queue_id(index)), []).append(bytes(data))
    return found
