"""Bulk reads by Spark: the data source beside a bare source of the same Arrow batches, and beside Parquet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...pipeline import borrowed_session
from ..report.record import Chapter
from ..workload.checker import WrongResult
from .parts import measured
from .spark_options import Options, filled, noop, stored, warm_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "topic,queue_id,offset,timestamp,data"
WITHOUT_DATA = "topic,queue_id,offset,timestamp"
SCHEMA = "topic string, queue_id int, offset bigint, timestamp timestamp, data binary"
TOUCHED = ["topic", "queue_id", "offset", "timestamp", "substring(data, 1, octet_length(data)) as data"]
STORE, BARE, TOUCHED_STORE, PARQUET, SLIM = ("store", "bare", "touched", "parquet", "without_data")
WAYS = {
    STORE: "read a store",
    BARE: "read the same Arrow batches from mapped files",
    TOUCHED_STORE: "read a store, and copy each payload in a projection",
    PARQUET: "read uncompressed Parquet, and copy each payload in a projection",
    SLIM: "read a store without its data",
}
BESIDE = {
    STORE: (f"read.{BARE}.rows_per_s", "bare Arrow batches"),
    TOUCHED_STORE: (f"read.{PARQUET}.rows_per_s", "uncompressed Parquet, copied too"),
    SLIM: (f"read.{STORE}.rows_per_s", "with data"),
}
Reads = dict[str, Callable[[], "DataFrame"]]


def chapter(options: Options) -> Chapter:
    """All ways over the same rows. Raises WrongResult unless their rows are equal."""
    run = options.run
    with run.stage("filling the store"):
        count = filled(options, options.base / "store")
    with borrowed_session(
        f"local[{options.cores}]", settings={"spark.sql.shuffle.partitions": str(options.cores)}
    ) as spark:
        with run.stage("writing the same rows to Arrow files and Parquet"):
            reads = _reads(spark, options)
        with run.stage("comparing each row"):
            run.checked(_compared(reads, count))
        with run.stage("each way, until the JVM has compiled it"):
            warm_up([partial(_query, read) for read in reads.values()])
        parts = [
            options.part(f"read.{name}", what, count, partial(_query, reads[name]), beside=BESIDE.get(name, ("", "")))
            for name, what in WAYS.items()
        ]
        found = measured(parts, options.repeat, run)
    return Chapter(
        title="Spark reads",
        text=f"{count:,} messages of {options.message_bytes:,} B, {options.cores} tasks at a time. The rows of all "
        "sources are compared by their hashes first.",
        measures=tuple(found.values()),
    )


def _query(read: Callable[[], DataFrame]) -> None:
    noop(read())


def _reads(spark: SparkSession, options: Options) -> Reads:
    from ..references.arrow_files import NAME, ArrowFiles  # noqa: PLC0415  # it imports PySpark, which is an extra

    base = options.base
    spark.dataSource.register(ArrowFiles)

    def stratalog(columns: str) -> DataFrame:
        frame: DataFrame = stored(spark, base / "store", columns, options.part_bytes)
        return frame

    def arrow() -> DataFrame:
        return spark.read.format(NAME).options(schema=SCHEMA).load(str(base / "arrow"))

    def parquet() -> DataFrame:
        return spark.read.parquet(str(base / "parquet")).selectExpr(*TOUCHED)

    _write_arrow(options)
    stratalog(COLUMNS).write.option("compression", "none").parquet(str(base / "parquet"))
    return {
        STORE: partial(stratalog, COLUMNS), BARE: arrow,
        TOUCHED_STORE: lambda: stratalog(COLUMNS).selectExpr(*TOUCHED), PARQUET: parquet,
        SLIM: partial(stratalog, WITHOUT_DATA),
    }  # fmt: skip


def _write_arrow(options: Options) -> None:
    """Write the batches of the data source, one file for each partition."""
    from pyspark.sql.types import StructType  # noqa: PLC0415  # as above

    from ...pipeline.datasource import StratalogSource  # noqa: PLC0415  # as above
    from ..references.arrow_files import SUFFIX, write_arrow_file  # noqa: PLC0415  # as above

    base = options.base
    told: dict[str, Any] = {
        "path": str(base / "store"), "columns": COLUMNS, "partition_bytes": str(options.part_bytes),
    }  # fmt: skip
    schema = StructType.fromDDL(SCHEMA)
    assert isinstance(schema, StructType), "it has fields"
    reader = StratalogSource(told).reader(schema)
    (base / "arrow").mkdir()
    for number, part in enumerate(reader.partitions()):
        write_arrow_file(base / "arrow" / f"{number:05d}{SUFFIX}", reader.arrow_schema, reader.read(part))


def _compared(reads: Reads, count: int) -> int:
    """The number of rows. Raises WrongResult unless the sources give the same ones."""
    parts = [f"sum(cast(xxhash64({COLUMNS}) as decimal(38,0))) as rows", "count(*) as count"]
    sums = {name: reads[name]().selectExpr(*parts).collect()[0] for name in (STORE, BARE, PARQUET)}
    if len(set(sums.values())) > 1 or sums[STORE]["count"] != count:
        raise WrongResult(f"{count} rows were written, and the sources give: {sums}")
    return count
