"""Writes a part's live messages as shards: segments without a place in the log yet."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import NamedTuple

from ..device.disk import Disk, OsDisk
from ..format.shard import Shard
from ..shards.writer import ShardFile
from .live import live_frames
from .plan import LivePart

MOST_BYTES = 7 << 29  # of a shard: positions of frames have 32 bits


class WrittenPart(NamedTuple):
    """The shards of a part, in order, and their folder."""

    folder: str
    shards: tuple[Shard, ...]


def write_live(part: LivePart, staging: Path, disk: Disk | None = None) -> WrittenPart:
    """Write a part's live messages to a new folder in `staging`, forced.

    Any process may call it, and several at once for the same part. Raises StoreCorrupt, OSError.
    """
    used, folder = disk or OsDisk(), staging / f"part-{secrets.token_hex(8)}"
    used.make_folder(folder)
    files: list[ShardFile] = []
    try:
        for time_ms, streams, rows in live_frames(used, part):
            if not files or files[-1].end >= MOST_BYTES:
                files.append(ShardFile(used, folder, f"{len(files):06d}", part.store_id, part.lane))
            files[-1].add(streams, rows, time_ms)
        shards = tuple(file.finish() for file in files)
    finally:
        for file in files:
            file.close()
    used.force_folder(folder)
    return WrittenPart(str(folder), shards)
