"""Damage to the segment files of a simulated disk, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from stratalog.store.format.layout import SEGMENT_SUFFIX
from stratalog.store.testing import BLOCK_BYTES, SimulatedDisk

from .engine import home

Harm = Literal["flip", "zeroed", "truncated", "deleted", "exchanged", "old copy"]
HARMS: tuple[Harm, ...] = get_args(Harm)


def segment_paths(disk: SimulatedDisk) -> list[Path]:
    """The segment files of all lanes of the store, spares as well."""
    return [path for path in disk.sizes() if path.suffix == SEGMENT_SUFFIX and home() in path.parents]


def harm(disk: SimulatedDisk, chance: random.Random, old: Mapping[Path, bytes]) -> tuple[Harm, str, set[int]] | None:
    """Damage one file, or two; which way, in words, and in which lanes. None if there is nothing to damage.

    `old` are earlier bytes of some files.
    """
    paths = segment_paths(disk)
    if not paths:
        return None
    path, how = chance.choice(paths), chance.choice(HARMS)
    copies = [path for path in paths if path in old]
    if how == "old copy" and copies:
        path = chance.choice(copies)
        disk.put(path, old[path])
    elif how == "exchanged" and len(paths) > 1:
        other = chance.choice([other for other in paths if other != path])
        mine, its = disk.bytes_of(path), disk.bytes_of(other)
        disk.put(path, its)
        disk.put(other, mine)
        return how, f"{_name(path)} and {_name(other)} exchanged", {lane_of(path), lane_of(other)}
    elif how == "deleted" or not disk.bytes_of(path):
        how = "deleted"
        disk.take_away(path)
    elif how in ("zeroed", "truncated"):
        data = bytearray(disk.bytes_of(path))
        begin = _place(chance, data) & -BLOCK_BYTES
        if how == "truncated":
            del data[begin:]
        else:
            data[begin : begin + BLOCK_BYTES] = bytes(len(data[begin : begin + BLOCK_BYTES]))
        disk.put(path, bytes(data))
        return how, f"{_name(path)} {how} at {begin}", {lane_of(path)}
    else:
        how = "flip"
        position, bit = _place(chance, disk.bytes_of(path)), chance.randrange(8)
        disk.flip(path, position, bit)
        return how, f"bit {bit} of byte {position} of {_name(path)} flipped", {lane_of(path)}
    return how, f"{_name(path)}: {how}", {lane_of(path)}


def lane_of(path: Path) -> int:
    """The lane that a segment's file belongs to."""
    return int(path.parent.name.removeprefix("lane-"))


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _place(chance: random.Random, data: bytes | bytearray) -> int:
    """A position: in the header, the record, what was written, anywhere, or in the footer."""
    draw, size = chance.random(), len(data)
    used = max(1, len(data.rstrip(b"\0")))
    if draw < 0.1:
        return chance.randrange(min(size, 2 * BLOCK_BYTES))
    if draw < 0.3:
        return chance.randrange(max(0, used - BLOCK_BYTES // 2), used)
    return chance.randrange(used if draw < 0.95 else size)
