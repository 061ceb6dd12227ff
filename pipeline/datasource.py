"""The data source `stratalog`: a facade. Reading is in `source`, streams in `stream`, writing in `sink`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from .schema import SCHEMA


class StratalogSource(DataSource):
    """The data source `stratalog` (R41). Options and columns: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """What `spark.read.format` calls it."""
        return "stratalog"

    def schema(self) -> str:
        """All columns; a read that names fewer reads fewer."""
        return SCHEMA
