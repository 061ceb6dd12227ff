"""A bare source for Spark: it yields record batches that lie ready in Arrow files, and does nothing else.

The data source `stratalog` is compared with it: the same batches, from the same file system, without a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ...pipeline.workers import Prompt

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME = "bare_arrow"
SUFFIX = ".arrow"


class ArrowFiles(DataSource):
    """The Arrow files of a folder, one partition for each."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return self.options["schema"]

    def reader(self, schema: StructType) -> _Reader:
        return _Reader(Path(self.options["path"]))


class _Reader(Prompt, DataSourceReader):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(self._folder.glob(f"*{SUFFIX}"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as source, pa.ipc.open_file(source) as file:
            for number in range(file.num_record_batches):
                yield file.get_batch(number)


def write_arrow_file(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    """Write batches for the bare source. Returns the number of rows."""
    rows = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
