"""Appends files of other programs as messages: Parquet, JSON lines, CSV."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadOption
from .export import CSV_OPTIONS, FORMATS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ENCODINGS = ("base64", "text")
# For files without types; an export has these columns.
TEXT_SCHEMA = (
    "topic string, queue_id int, offset bigint, timestamp timestamp, deliver_at timestamp, key string, "
    "properties {properties}, data string, store string"
)
TAKEN = ("topic", "queue_id", "data", "key", "properties", "deliver_at")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load: `messages` and their `payload_bytes`."""

    messages: int
    payload_bytes: int


def load(
    spark: SparkSession, files: str | Path | Iterable[str | Path], to: str | Path, format: str = "parquet", *,
    topic: str | None = None, queue_id: int | None = None, encoding: str = "base64", transaction: str | None = None,
    shards: int | None = None,
) -> Loaded:  # fmt: skip
    """Append the rows of files to a store, which is made if there is none: all of them by one commit, or none.

    A folder of stores (`shards`) gets a commit for each store, one after another. A load that fails between two of
    them leaves its rows in the first ones, and raises. So give it a `transaction`: the same load again then changes
    nothing in those, and adds the rows to the others. Without one, it would add all rows again.

    The files have the columns `topic`, `queue_id` and `data`, and may have `key`, `properties` and `deliver_at`, as
    files of `export` do. With a column `offset`, each queue's rows are appended in its order; else in the order of the
    files and their rows. The messages get new offsets and times.

    Args:
        spark: the session.
        files: files or folders of files.
        to: the store, or the folder of stores.
        format: "parquet", "json" (lines) or "csv" (with a first line of names; \\N is a missing value).
        topic, queue_id: for rows without these.
        encoding: of `data` and `key` in JSON and CSV: "base64", or "text" for UTF-8.
        transaction: a name of this load. A load that is repeated with its name changes nothing.
        shards: the number of stores in the folder, if it is made.

    Raises:
        BadOption: an argument or a column is wrong.
    """
    if format not in FORMATS:
        raise BadOption(f"a load takes the formats {', '.join(FORMATS)}, not {format!r}")
    if encoding not in ENCODINGS:
        raise BadOption(f"the encoding is {' or '.join(ENCODINGS)}, not {encoding!r}")
    names = [str(files)] if isinstance(files, str | Path) else [str(name) for name in files]
    missing = [name for name in names if not Path(name).exists()]
    if missing or not names:
        raise BadOption(f"there is no file {missing[0] if missing else 'to load'}")
    rows = _messages(_read(spark, names, format), format, encoding, topic, queue_id)
    options = {"transaction": transaction, "shards": None if shards is None else str(shards)}
    return written(rows, to, "append", {name: value for name, value in options.items() if value is not None})


def written(rows: DataFrame, to: str | Path, mode: str, options: dict[str, str]) -> Loaded:
    """Write rows to a store, and count them."""
    from pyspark.sql import Observation  # noqa: PLC0415  # an extra: the command imports this module without it
    from pyspark.sql.functions import expr  # noqa: PLC0415  # as above

    counted = Observation("loaded")
    figures = expr("count(*) as messages"), expr("coalesce(sum(octet_length(data)), 0) as bytes")
    rows.observe(counted, *figures).write.format("stratalog").mode(mode).options(**options).save(str(to))
    return Loaded(int(counted.get["messages"]), int(counted.get["bytes"]))


def in_order(rows: DataFrame, partitions: int | None = None) -> DataFrame:
    """Rows so that each queue's are in one partition, in the order of their offsets."""
    spread = ["topic", "queue_id"]
    parted = rows.repartition(*spread) if partitions is None else rows.repartition(partitions, *spread)
    return parted.sortWithinPartitions(*spread, "offset")


def _read(spark: SparkSession, names: list[str], format: str) -> DataFrame:
    if format == "parquet":
        return spark.read.parquet(*names)
    if format == "json":
        schema = TEXT_SCHEMA.format(properties="map<string,string>")
        rows = spark.read.schema(schema).json(names)
        # A line need not have each column: all of the lines together say which columns exist.
        counts = rows.selectExpr(*[f"count({name}) as {name}" for name in rows.columns]).first()
        assert counts is not None, "an aggregate has a row"
        return rows.select(*[name for name in rows.columns if counts[name]])
    columns = {part.split()[0]: part for part in TEXT_SCHEMA.format(properties="string").split(", ")}
    there = spark.read.csv(names, header=True).columns
    unknown = [name for name in there if name not in columns]
    if unknown:
        raise BadOption(f"{names[0]} has a column {unknown[0]!r}; the columns of messages are {', '.join(TAKEN)}")
    schema = ", ".join(columns[name] for name in there)
    return spark.read.schema(schema).options(**CSV_OPTIONS, multiLine="true").csv(names)


def _messages(rows: DataFrame, format: str, encoding: str, topic: str | None, queue_id: int | None) -> DataFrame:
    """Rows with the columns of a store, in the order of their offsets if they have some."""
    from pyspark.sql import functions  # noqa: PLC0415  # an extra: the command imports this module without it

    there = rows.columns
    for name, value in (("topic", topic), ("queue_id", queue_id)):
        if value is not None:
            given = functions.lit(value)
            rows = rows.withColumn(name, functions.coalesce(functions.col(name), given) if name in there else given)
    missing = [name for name in TAKEN[:3] if name not in rows.columns]
    if missing:
        raise BadOption(f"the files have no column {missing[0]}; their columns are {', '.join(there)}")
    if "offset" in there:
        rows = in_order(rows)
    columns: list[Column] = []
    for name in TAKEN:
        if name not in rows.columns:
            continue
        column = functions.col(name)
        if format != "parquet" and name in ("data", "key"):
            column = functions.unbase64(column) if encoding == "base64" else column.cast("binary")
        if format == "csv" and name == "properties":
            column = functions.from_json(column, "map<string,string>")
        columns.append(column.alias(name))
    return rows.select(*columns)
