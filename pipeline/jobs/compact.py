"""Rewrites closed stores to fewer and larger segments, in parallel; offsets, subscriptions and delays stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...store import Compacted, InvalidMessage, compact_store
from ..errors import BadOption
from ..options import paths_of, store_folders
from .part_source import Paths, paths_option
from .rebuild import in_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(spark: SparkSession, paths: Paths, *, segment_bytes: int | None = None) -> list[Compacted]:
    """Write the live messages of some closed stores to fewer and larger segments, in their own folders.

    Offsets, times, subscriptions and pending delays stay. Tasks read the old segments, compare every checksum, and
    write the new ones; the driver, which holds the store's lock, replaces each lane in one step. It compacts one store
    after another; `stratalog.store.compact_store` says more of each.

    Args:
        spark: the session.
        paths: folders of stores, or folders that have stores in them.
        segment_bytes: about how large a new segment is, at most 3 GiB; None for 1 GiB.

    Raises:
        BadOption: `segment_bytes` is wrong.
        StoreLocked: a process has a store open.
        StoreUnusable: a folder is no store, and has none; or a repair has left gaps between offsets.
        StoreCorrupt: a message, a frame or a footer is damaged.
        StoreFull: there is no space for a second copy of a lane.
        StoreUnreadable: the system refused to read or to write a file; try again.
    """
    run, chosen = in_tasks(spark), {} if segment_bytes is None else {"segment_bytes": segment_bytes}
    try:
        return [
            compact_store(store, in_parts=run, **chosen)
            for store in store_folders(paths_of({"path": paths_option(paths)}))
        ]
    except InvalidMessage as error:  # raised before the first store is looked at
        raise BadOption(str(error)) from error
