"""Closed stores in fewer and larger segments, in parallel; offsets, subscriptions and delays stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...store import Compacted, compact_store
from ..errors import BadOption
from ..options import paths_of, store_folders
from .part_source import Paths, paths_option
from .rebuild import in_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENT_BYTES = 1 << 30
MOST_SEGMENT_BYTES = 3 << 30  # positions in a segment have 32 bits


def compact(spark: SparkSession, paths: Paths, *, segment_bytes: int = SEGMENT_BYTES) -> list[Compacted]:
    """Write the live messages of some closed stores to fewer and larger segments, in their own folders (R41).

    Offsets, times, subscriptions and pending delays stay. Tasks read the old segments, compare every checksum, and
    write the new ones; the driver, which holds the store's lock, puts each lane in the place of the old one in one
    step. A store after the other; what it means for each is told by `stratalog.store.compact_store`.

    Args:
        spark: the session.
        paths: folders of stores, or folders that have stores in them.
        segment_bytes: about how large a new segment is, at most 3 GiB.

    Raises:
        BadOption: `segment_bytes` is wrong.
        StoreLocked: a process has a store open.
        StoreUnusable: a folder is no store, and has none; or a repair has left gaps between offsets.
        StoreCorrupt: a message, a frame or a footer is damaged.
        StoreFull: there is no space for a second copy of a lane.
        StoreUnreadable: the system refused to read or to write a file; try again.
    """
    if not 1 <= segment_bytes <= MOST_SEGMENT_BYTES:
        raise BadOption(f"segment_bytes is from 1 to {MOST_SEGMENT_BYTES}, not {segment_bytes}")
    run = in_tasks(spark)
    return [
        compact_store(store, in_parts=run, segment_bytes=segment_bytes)
        for store in store_folders(paths_of({"path": paths_option(paths)}))
    ]
