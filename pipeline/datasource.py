"""The data source `stratalog`: a facade. Reading is in `source`, streams in `stream`, writing in `sink`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from .options import check_batch_read, check_schema, read_options
from .schema import schema_of
from .sink import BatchSink, StreamSink
from .source import StoreReader
from .stream import StoreStreamReader, stream_options
from .workers import settle

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class StratalogSource(DataSource):
    """The data source `stratalog`. Options and columns: docs/how-to/spark.md."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return "stratalog"

    def schema(self) -> str:
        """The columns of the option `columns`, else all; then `damage`, if damage is reported."""
        settle()
        options = read_options(self.options)
        return schema_of(options.columns, with_damage=options.on_damage == "report")

    def reader(self, schema: StructType) -> StoreReader:
        """A batch read of the columns in the schema."""
        settle()
        check_batch_read(self.options)
        options = read_options(self.options)
        check_schema(options, schema.fieldNames())
        return StoreReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """A batch write."""
        settle()
        return BatchSink(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """A streaming write."""
        settle()
        return StreamSink(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> StoreStreamReader:
        """A stream of the columns in the schema."""
        return StoreStreamReader(stream_options(self.options), schema)
