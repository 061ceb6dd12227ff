"""Batch reads: a plan of each store, a partition for each part, and record batches from each partition."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..store import ScanPart, StoreCorrupt, plan_scan, read_part
from .arrow import damage_batch, joined, record_batch
from .options import ReadOptions
from .schema import arrow_schema
from .workers import Prompt, settle

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("stratalog.pipeline")
OPTIONAL = ("key", "properties", "deliver_at")


class StoreReader(Prompt, DataSourceReader):
    """Reads stores up to their ends when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self.arrow_schema = arrow_schema(schema, with_damage=options.on_damage == "report")

    def partitions(self) -> list[InputPartition]:
        """One for each part of each store's plan; a list, as Spark takes no other sequence."""
        options, payload = self._options, "data" in self.arrow_schema.names
        plans = (
            plan_scan(store, options.wanted, part_bytes=options.part_bytes, payload=payload) for store in options.stores
        )
        return [InputPartition(part) for plan in plans for part in plan]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a part."""
        part = partition.value
        if part is None:  # given by Spark if there are no partitions
            return iter(())
        return batches_of(part, self.arrow_schema, self._options.on_damage)


def batches_of(part: ScanPart, schema: pa.Schema, on_damage: str) -> Iterator[pa.RecordBatch]:
    """The messages of a part as record batches; payloads are read if the schema has them."""
    settle()
    places: list[str] = []

    def note(error: StoreCorrupt) -> None:
        places.append(f"{error.what} in {error.file} at byte {error.position}")
        if on_damage == "skip":
            _log.warning("stepped over: %s", places.pop())

    names = schema.names
    payload = "data" in names
    found = read_part(
        part, payload=payload, lengths=payload, optional=any(name in names for name in OPTIONAL),
        on_damage=None if on_damage == "raise" else note,
    )  # fmt: skip
    for batch in joined(found):
        yield record_batch(batch, schema, part.store)
    if places:
        yield damage_batch(places, schema, part.store)
