"""Bulk writes by Spark: the data source beside a bare forced sink of the same Arrow batches, and beside Parquet."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...pipeline import borrowed_session
from ..report.record import Chapter
from ..workload.checker import WrongResult
from .parts import Part, measured
from .spark_options import Options, warm_up

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "topic string, queue_id int, data binary"
SUMS = ("count(*) as count", "sum(cast(xxhash64(topic, queue_id, data) as decimal(38,0))) as rows")
BATCH_BYTES = 4 << 20
MOST_ROWS = 10_000  # of a batch
TOPIC = "orders"
WAYS = {
    "store": "write a store",
    "bare": "write Arrow files and force them",
    "parquet": "write uncompressed Parquet",
}
Save = Callable[["DataFrame", Path], None]


def chapter(options: Options) -> Chapter:
    """All ways from the same rows. Raises WrongResult unless the store has what was written."""
    from ..references.arrow_files import NAME, ArrowFiles  # noqa: PLC0415  # it imports PySpark, which is an extra
    from ..references.arrow_sink import ArrowSink  # noqa: PLC0415  # it imports PySpark

    base, run = options.base, options.run
    with run.stage("writing the rows to Arrow files"):
        count = _write_source(options)
    settings = {"spark.sql.shuffle.partitions": str(options.cores), "spark.sql.parquet.compression.codec": "none"}
    with borrowed_session(f"local[{options.cores}]", settings=settings) as spark:
        spark.dataSource.register(ArrowFiles)
        spark.dataSource.register(ArrowSink)
        rows = spark.read.format(NAME).options(schema=SCHEMA).load(str(base / "source"))
        with run.stage("writing once, and comparing each row"):
            _compared(spark, rows, base / "warm", count)
        run.checked(count)
        ways = _ways()
        with run.stage("each way, until the JVM has compiled it"):
            warm_up([partial(_saved_once, save, rows, base / "warm") for save in ways.values()])
        found = measured(_parts(options, ways, rows, count), options.repeat, run)
    return Chapter(
        title="Spark writes",
        text=f"{count:,} messages of {options.message_bytes:,} B from mapped Arrow files, {options.cores} tasks at a "
        "time, to a new folder each time. The bare sink forces its files; Spark forces none of Parquet's.",
        measures=tuple(found.values()),
    )


def _ways() -> dict[str, Save]:
    from ..references.arrow_sink import NAME  # noqa: PLC0415  # it imports PySpark, which is an extra

    def bare(rows: DataFrame, path: Path) -> None:
        rows.write.format(NAME).mode("append").options(schema=SCHEMA).save(str(path))

    def parquet(rows: DataFrame, path: Path) -> None:
        rows.write.parquet(str(path))

    return {"store": _save, "bare": bare, "parquet": parquet}


def _parts(options: Options, ways: Mapping[str, Save], rows: DataFrame, count: int) -> list[Part]:
    found = []
    for name, save in ways.items():
        path = options.base / "out"
        found.append(
            options.part(
                f"write.{name}",
                WAYS[name],
                count,
                partial(save, rows, path),
                after=partial(shutil.rmtree, path),
                beside=("write.bare.rows_per_s", "bare Arrow files, forced") if name == "store" else ("", ""),
                mb_beside=("write.parquet.mb_per_s", "uncompressed Parquet") if name == "store" else ("", ""),
            )
        )
    return found


def _saved_once(save: Save, rows: DataFrame, path: Path) -> None:
    save(rows, path)
    shutil.rmtree(path)


def _save(rows: DataFrame, path: Path) -> None:
    rows.write.format("stratalog").mode("append").save(str(path))


def _compared(spark: SparkSession, rows: DataFrame, path: Path, count: int) -> None:
    """Raises WrongResult if the store has other rows than those written."""
    _save(rows, path)
    stored = spark.read.format("stratalog").options(columns="topic,queue_id,data").load(str(path))
    found, wanted = (frame.selectExpr(*SUMS).collect()[0] for frame in (stored, rows))
    if found != wanted or found["count"] != count:
        raise WrongResult(f"{count} rows were written: {wanted}; the store has: {found}")
    shutil.rmtree(path)


def _batches(options: Options, rows: int) -> Iterator[pa.RecordBatch]:
    """Rows of random bytes; the batches share them, shifted."""
    import pyarrow as pa  # noqa: PLC0415  # an extra

    size, most = options.message_bytes, max(1, min(MOST_ROWS, BATCH_BYTES // options.message_bytes))
    pool = np.random.default_rng(options.seed).integers(0, 256, most * size + most, dtype=np.uint8).tobytes()
    for at in range(0, rows, most):
        count = min(most, rows - at)
        ends = (np.arange(count + 1) * size).astype(np.int32)
        shift = at // most % most
        data = pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(pool[shift:])]
        )  # fmt: skip
        numbers = pa.array((np.arange(at, at + count) % options.queues).astype(np.int32))
        yield pa.RecordBatch.from_arrays([pa.array([TOPIC] * count), numbers, data], ["topic", "queue_id", "data"])


def _write_source(options: Options) -> int:
    """Write the rows, one file for each task. Returns their number."""
    from ..references.arrow_files import SUFFIX, write_arrow_file  # noqa: PLC0415  # it imports PySpark

    folder = options.base / "source"
    folder.mkdir()
    each = -(-options.size_bytes // options.message_bytes // options.cores)
    schema = next(_batches(options, 1)).schema
    for number in range(options.cores):
        write_arrow_file(folder / f"{number}{SUFFIX}", schema, _batches(options, each))
    return each * options.cores
