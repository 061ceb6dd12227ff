"""A bare sink for Spark: it writes the record batches that it gets to an Arrow file a task, and forces it.

Writes with the data source `stratalog` are compared with it: the same batches, as durable, without a store.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from ...pipeline.workers import Prompt

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME = "bare_arrow_sink"


class ArrowSink(DataSource):
    """A folder of Arrow files."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return self.options["schema"]

    def writer(self, schema: StructType, overwrite: bool) -> _Writer:
        return _Writer(Path(self.options["path"]))


@dataclass
class _Written(WriterCommitMessage):
    rows: int


class _Writer(Prompt, DataSourceArrowWriter):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        rows, writer = 0, None
        path = self._folder / secrets.token_hex(8)
        with path.open("wb", buffering=0) as file:
            for batch in iterator:
                if writer is None:
                    writer = pa.ipc.new_stream(file, batch.schema)
                writer.write_batch(batch)
                rows += batch.num_rows
            if writer is not None:
                writer.close()
            os.fsync(file.fileno())
        return _Written(rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: all files are forced already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the written files stay."""
