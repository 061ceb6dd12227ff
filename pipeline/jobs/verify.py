"""Checks every checksum of some stores, in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...store import ScanPart, StoreCorrupt, read_part
from .part_source import Paths, rows_of_parts, single_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "store string, lane int, segment bigint, messages bigint, payload_bytes bigint, file string, position bigint, "
    "what string"
)
_SEGMENTS = [
    "sum(if(what is null, messages, 0)) as messages", "sum(if(what is null, payload_bytes, 0)) as payload_bytes",
    "count(distinct file, position) as damages",
]  # fmt: skip
Row = tuple[str, int | None, int | None, int, int, str | None, int | None, str | None]


@dataclass(frozen=True, slots=True)
class Verified:
    """The findings of a check.

    Attributes:
        stores: for each store its `store`, `segments`, `messages`, `payload_bytes` and `damages`.
        damages: for each damaged place its `store`, `file`, `position` (bytes) and `what`.
    """

    stores: list[dict[str, Any]]
    damages: list[dict[str, Any]]

    @property
    def ok(self) -> bool:
        """True if nothing is damaged."""
        return not self.damages

    @property
    def messages(self) -> int:
        """The number of whole messages."""
        return sum(row["messages"] for row in self.stores)


def verify(spark: SparkSession, paths: Paths, **options: Any) -> Verified:
    """Read all of some stores and check it: each frame, each message, each footer. It changes no file.

    A store may be open in another process; then all durable bytes are checked. `verify_folder` checks more of a closed
    store, such as zeros after the log's end.

    Args:
        spark: the session.
        paths: folders of stores, or folders that have stores in them.
        options: of a read, such as `topic` or `partition_bytes`.
    """
    rows = checked_segments(spark, paths, **options).cache()
    try:
        by_segment = rows.groupBy("store", "lane", "segment")
        totals = by_segment.agg(*_expressions(_SEGMENTS)).groupBy("store")
        found = totals.agg(*_expressions([
            "count(segment) as segments", "sum(messages) as messages", "sum(payload_bytes) as payload_bytes",
            "sum(damages) as damages",
        ])).orderBy("store").collect()  # fmt: skip
        places = rows.where("what is not null").select("store", "file", "position", "what")
        damages = places.distinct().orderBy("store", "file", "position").collect()
    finally:
        rows.unpersist()
    return Verified([row.asDict() for row in found], [row.asDict() for row in damages])


def checked_segments(spark: SparkSession, paths: Paths, **options: Any) -> DataFrame:
    """The findings as a table: a row for each segment's whole messages, and one for each damaged place (`what`)."""
    return rows_of_parts(spark, paths, f"{__name__}:check_part", SCHEMA, options)


def check_part(part: ScanPart | tuple[str, StoreCorrupt]) -> Iterator[Row]:
    """The rows of a part, or of a store that cannot be planned."""
    if isinstance(part, tuple):
        store, error = part
        yield (store, None, None, 0, 0, error.file, error.position, error.what)
        return
    for single in single_ranges(part):
        [one] = single.ranges
        damages: list[StoreCorrupt] = []
        messages = size = 0
        for batch in read_part(single, on_damage=damages.append, on_rebuilt=damages.append):
            messages += len(batch)
            size += int(batch.lengths.sum())
        yield (part.store, one.lane, one.sequence, messages, size, None, None, None)
        for error in damages:
            yield (part.store, one.lane, one.sequence, 0, 0, error.file, error.position, error.what)


def _expressions(texts: list[str]) -> list[Any]:
    from pyspark.sql.functions import expr  # noqa: PLC0415  # an extra: the command imports this module without it

    return [expr(text) for text in texts]
