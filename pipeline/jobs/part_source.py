"""A data source of figures: a function reads each part of a plan, and only its rows go to Spark.

So a job that only counts moves no payload out of the Python processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from ...store import ScanPart, StoreCorrupt, plan_scan
from ..options import ReadOptions, read_options
from ..workers import Prompt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAME = "stratalog_parts"
JOB, SCHEMA = "job", "schema"
ROWS_AT_ONCE = 4096
Paths = str | Path | Iterable[str | Path]  # of stores, or of folders of stores


class PartSource(DataSource):
    """Rows that a function makes from each part. Options: `job` (MODULE:FUNCTION), `schema`, and those of reads."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return NAME

    def schema(self) -> str:
        """The schema of the function's rows."""
        return self.options[SCHEMA]

    def reader(self, schema: StructType) -> PartReader:
        """A read of all parts."""
        options = {name: value for name, value in self.options.items() if name.lower() not in (JOB, SCHEMA)}
        return PartReader(self.options[JOB], read_options(options), schema)


class PartReader(Prompt, DataSourceReader):
    """Calls the function as `function(part)`; it yields rows as tuples.

    A store that cannot be planned, because damage hides a part of its log, is one row of `function(error)`.
    """

    def __init__(self, job: str, options: ReadOptions, schema: StructType) -> None:
        self._job, self._options = job, options
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        """One for each part, or an error in place of a store's parts."""
        found: list[InputPartition] = []
        for store in self._options.stores:
            try:
                plan = plan_scan(store, self._options.wanted, part_bytes=self._options.part_bytes)
            except StoreCorrupt as error:
                found.append(InputPartition((store, error)))
                continue
            found += [InputPartition(part) for part in plan]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        if partition.value is None:  # given by Spark if there are no partitions
            return
        module, _, name = self._job.partition(":")
        rows: list[tuple[Any, ...]] = []
        for row in getattr(import_module(module), name)(partition.value):
            rows.append(row)
            if len(rows) == ROWS_AT_ONCE:
                yield self._batch(rows)
                rows = []
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        values = zip(*rows, strict=True)
        columns = [pa.array(column, field.type) for column, field in zip(values, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def rows_of_parts(spark: SparkSession, paths: Paths, job: str, schema: str, options: Mapping[str, Any]) -> DataFrame:
    """The rows that a function makes from all parts of some stores."""
    spark.dataSource.register(PartSource)
    given = {**checked_options(paths, options), JOB: job, SCHEMA: schema}
    return spark.read.format(NAME).options(**given).load()


def checked_options(paths: Paths, options: Mapping[str, Any]) -> dict[str, str]:
    """The options of a read of some stores. Raises BadOption here, and not in a process of Spark."""
    given = {"path": paths_option(paths), **{name: str(value) for name, value in options.items()}}
    read_options(given)
    return given


def paths_option(paths: Paths) -> str:
    """The option `path` for some paths."""
    return json.dumps([str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths])


def single_ranges(part: ScanPart) -> Iterator[ScanPart]:
    """Yield each range of a part as a part of its own."""
    for one in part.ranges:
        yield replace(part, ranges=(one,))
