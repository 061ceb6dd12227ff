"""Copies the live messages of some stores to new ones: another number of stores, fewer and larger segments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...store import plan_scan
from ..errors import BadOption
from ..options import read_options
from .load import Loaded, in_order, written
from .part_source import Paths, checked_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENT_BYTES = 1 << 30
MOST_SEGMENT_BYTES = 3 << 30  # positions in a segment have 32 bits
TAKEN = ("topic", "queue_id", "data", "key", "properties", "deliver_at")


def reshard(
    spark: SparkSession, paths: Paths, to: str | Path, shards: int | None = None, *, lanes: int | None = None,
    segment_bytes: int = SEGMENT_BYTES, **options: Any,
) -> Loaded:  # fmt: skip
    """Write the live messages of some stores to a new store, or to a new folder of stores. The old ones stay.

    Messages that were trimmed, deleted or given up by a repair are not copied. Each queue keeps its order. Its offsets
    begin at 0, and the times are those of this write.

    Args:
        spark: the session.
        paths: folders of stores, or folders that have stores in them.
        to: the folder. It must not exist.
        shards: the number of stores in the folder, each queue in one of them; None makes `to` itself a store.
        lanes: of each new store; None for one.
        segment_bytes: about how large a new segment is, at most 3 GiB.
        options: of a read, such as `topic`.

    Raises:
        BadOption: an argument is wrong, or the folder exists.
    """
    if Path(to).exists():
        raise BadOption(f"{to} is there already; reshard makes a new folder")
    if not 1 <= segment_bytes <= MOST_SEGMENT_BYTES:
        raise BadOption(f"segment_bytes is from 1 to {MOST_SEGMENT_BYTES}, not {segment_bytes}")
    given = checked_options(paths, options)
    wanted = read_options(given)
    size = sum(part.size_bytes for store in wanted.stores for part in plan_scan(store, wanted.wanted))
    rows = spark.read.format("stratalog").options(**given).load()
    ordered = in_order(rows, max(1, -(-size // segment_bytes), shards or 1))
    writing = {"shards": shards, "lanes": lanes}
    chosen = {name: str(value) for name, value in writing.items() if value is not None}
    return written(ordered.select(*TAKEN), to, "overwrite", chosen)
