"""Writes messages to files for other programs: Parquet, JSON lines, CSV."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadOption
from .part_source import Paths, checked_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "json", "csv")
NULL = "\\N"  # in CSV: an empty field is an empty text
TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
CSV_OPTIONS = {"header": "true", "quote": '"', "escape": '"', "nullValue": NULL, "emptyValue": ""}
_AS_TEXT = {
    "data": "base64(data) as data",
    "key": "base64(key) as key",
    "properties": "to_json(properties) as properties",
}


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export.

    Attributes:
        messages: the number of messages.
        files, size_bytes: the number of files with messages, and their size.
    """

    messages: int
    files: int
    size_bytes: int


def export(spark: SparkSession, paths: Paths, to: str | Path, format: str = "parquet", **options: Any) -> Exported:
    """Write the messages of some stores to a new folder of files.

    Parquet has all columns as they are. JSON lines have bytes as base64. CSV has bytes as base64, properties as
    JSON, \\N for a missing value, and a first line of names. Times are UTC with milliseconds.

    Args:
        spark: the session.
        paths: folders of stores, or folders that have stores in them.
        to: the folder. It must not exist.
        format: "parquet", "json" or "csv".
        options: of a read, such as `topic`, `columns` or `start_time`.

    Raises:
        BadOption: the format is unknown, or the folder is there.
    """
    from pyspark.sql import Observation  # noqa: PLC0415  # an extra: the command imports this module without it
    from pyspark.sql.functions import expr  # noqa: PLC0415  # as above

    if format not in FORMATS:
        raise BadOption(f"an export has the format {', '.join(FORMATS)}, not {format!r}")
    if Path(to).exists():
        raise BadOption(f"{to} is there already; an export makes a new folder")
    found = spark.read.format("stratalog").options(**checked_options(paths, options)).load()
    counted = Observation("exported")
    writer = _for_format(found, format).observe(counted, expr("count(*) as messages")).write
    if format != "parquet":
        writer = writer.options(timestampFormat=TIME_FORMAT, timeZone="UTC")
    if format == "csv":
        writer = writer.options(**CSV_OPTIONS, quoteAll="true")
    writer.format(format).save(str(to))
    files = [path for path in Path(to).glob(f"part-*.{format}*") if path.stat().st_size]
    return Exported(int(counted.get["messages"]), len(files), sum(path.stat().st_size for path in files))


def _for_format(found: DataFrame, format: str) -> DataFrame:
    if format != "csv":
        return found
    return found.selectExpr(*[_AS_TEXT.get(name, name) for name in found.columns])
