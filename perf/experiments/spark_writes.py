"""Bulk writes by Spark: the data source beside a bare forced sink of the same Arrow batches, and beside Parquet."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from rich.console import Console

from ...pipeline import borrowed_session
from ...store import MessageStore, ShardWriter, commit_shards
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.settings import space_bytes
from .experiment import Experiment, medians, queues, repeats, setting, time_limit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "topic string, queue_id int, data binary"
SUMS = ("count(*) as count", "sum(cast(xxhash64(topic, queue_id, data) as decimal(38,0))) as rows")
MIB = 1 << 20
BATCH_BYTES = 4 * MIB
MOST_ROWS = 10_000  # of a batch
TOPIC = "orders"
SHOWN = {"way": "way", "rows/s": "rows_per_s", "MB/s": "mb_per_s", "seconds": "seconds"}


@dataclass(frozen=True, kw_only=True)
class SparkWrites(Experiment):
    """Bulk writes by Spark, beside a bare forced Arrow sink and beside uncompressed Parquet; and attaching alone."""

    NAME: ClassVar[str] = "sparkwrite"
    METHOD: ClassVar[str] = (
        "local mode; the rows come from mapped Arrow files, one a task; each way writes them all to a new folder, and "
        "what it wrote is removed behind it; the bare sink forces its files, Spark forces none of Parquet's; attaching "
        "is the commit of shards that are durable, to a store that nobody has open, until it is closed again"
    )

    size_bytes: int = setting(1 << 30, "payload that is written", short=4 << 20, least=1 << 16)
    message_bytes: int = setting(8192, "bytes per message", least=16, option="message")
    cores: int = setting(2, "tasks at a time", least=1)
    queues: int = queues(default=100, short=10)
    attach_bytes: int | None = setting(None, "payload that is attached (default: as much as --size)", least=1 << 16)
    repeat: int = repeats()
    limit_s: int = time_limit()

    def need_bytes(self) -> float:
        """The space of the Arrow files and two ways, or of the attached store."""
        return max(3 * space_bytes(self.size_bytes), space_bytes(self._attached_bytes))

    @property
    def _attached_bytes(self) -> int:
        return self.size_bytes if self.attach_bytes is None else self.attach_bytes

    def measure(self, base: Path, run: Run) -> Figures:
        """Rows and bytes a second of each way, ratios, and the seconds of attaching."""
        from ..references.arrow_files import NAME, ArrowFiles  # noqa: PLC0415  # it imports PySpark, which is an extra
        from ..references.arrow_sink import ArrowSink  # noqa: PLC0415  # it imports PySpark

        with run.stage("writing the rows to Arrow files"):
            count = self._write_source(base)
        settings = {"spark.sql.shuffle.partitions": str(self.cores), "spark.sql.parquet.compression.codec": "none"}
        with borrowed_session(f"local[{self.cores}]", settings=settings) as spark:
            spark.dataSource.register(ArrowFiles)
            spark.dataSource.register(ArrowSink)
            rows = spark.read.format(NAME).options(schema=SCHEMA).load(str(base / "source"))
            with run.stage("writing once, and comparing each row"):
                self._compared(spark, rows, base / "warm", count)
            run.checked(count)
            ways: dict[str, Callable[[], Figures]] = {
                name: partial(self._timed, save, rows, base / "out", count) for name, save in self._ways().items()
            }
            measured = medians(ways, self.repeat, run, self.limit_s)
        shutil.rmtree(base / "source")
        with run.stage("attaching"):
            attach = self._attach(base, run)
        return {"ways": measured, "messages": count, **_ratios(measured), "attach": attach}

    def _compared(self, spark: SparkSession, rows: DataFrame, path: Path, count: int) -> None:
        """Raises WrongResult if the store has other rows than those written."""
        self._save(rows, path)
        stored = spark.read.format("stratalog").options(columns="topic,queue_id,data").load(str(path))
        found, wanted = (frame.selectExpr(*SUMS).collect()[0] for frame in (stored, rows))
        if found != wanted or found["count"] != count:
            raise WrongResult(f"{count} rows were written: {wanted}; the store has: {found}")
        shutil.rmtree(path)

    def _ways(self) -> dict[str, Callable[[DataFrame, Path], None]]:
        from ..references.arrow_sink import NAME  # noqa: PLC0415  # it imports PySpark, which is an extra

        def bare(rows: DataFrame, path: Path) -> None:
            rows.write.format(NAME).mode("append").options(schema=SCHEMA).save(str(path))

        def parquet(rows: DataFrame, path: Path) -> None:
            rows.write.parquet(str(path))

        return {"stratalog": self._save, "bare Arrow, forced": bare, "Parquet": parquet}

    def _save(self, rows: DataFrame, path: Path) -> None:
        rows.write.format("stratalog").mode("append").save(str(path))

    def _timed(self, save: Callable[[DataFrame, Path], None], rows: DataFrame, path: Path, count: int) -> Figures:
        began = time.perf_counter()
        save(rows, path)
        seconds = time.perf_counter() - began
        shutil.rmtree(path)
        rate = count / seconds
        return {"seconds": seconds, "rows_per_s": rate, "mb_per_s": rate * self.message_bytes / 1e6}

    def _batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Rows of random bytes; the batches share them, shifted."""
        import pyarrow as pa  # noqa: PLC0415  # an extra

        size, most = self.message_bytes, max(1, min(MOST_ROWS, BATCH_BYTES // self.message_bytes))
        pool = np.random.default_rng(self.seed).integers(0, 256, most * size + most, dtype=np.uint8).tobytes()
        for at in range(0, rows, most):
            count = min(most, rows - at)
            ends = (np.arange(count + 1) * size).astype(np.int32)
            shift = at // most % most
            data = pa.Array.from_buffers(
                pa.binary(), count, [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(pool[shift:])]
            )  # fmt: skip
            numbers = pa.array((np.arange(at, at + count) % self.queues).astype(np.int32))
            yield pa.RecordBatch.from_arrays([pa.array([TOPIC] * count), numbers, data], ["topic", "queue_id", "data"])

    def _write_source(self, base: Path) -> int:
        """Write the rows, one file for each task. Returns their number."""
        from ..references.arrow_files import SUFFIX, write_arrow_file  # noqa: PLC0415  # it imports PySpark

        (base / "source").mkdir()
        each = -(-self.size_bytes // self.message_bytes // self.cores)
        schema = next(self._batches(1)).schema
        for number in range(self.cores):
            write_arrow_file(base / "source" / f"{number}{SUFFIX}", schema, self._batches(each))
        return each * self.cores

    def _attach(self, base: Path, run: Run) -> Figures:
        """Seconds of a commit of durable shards, and of the first read after it."""
        path = base / "attach"
        MessageStore.open(path).close()
        rows = self._attached_bytes // self.message_bytes
        streams: list[tuple[str, int]] = [(TOPIC, number) for number in range(self.queues)]
        with ShardWriter(path) as writer:
            for batch in self._batches(rows):
                columns: dict[str, Any] = {"lengths": np.full(batch.num_rows, self.message_bytes)}
                used = self.message_bytes * batch.num_rows
                columns["payload"] = memoryview(batch.column(2).buffers()[2])[:used]
                writer.append_columns(streams, batch.column(1).to_numpy(), **columns)
            shards = writer.finish()
        began = time.perf_counter()
        commit_shards(path, shards, name="attach")
        attached = time.perf_counter()
        with MessageStore.open(path, read_only=True) as store:
            found = store.get_range(TOPIC, 0, 0, 1)
            first_read = time.perf_counter()
            if store.queue_bounds(TOPIC, 0) != (0, -(-rows // self.queues)) or len(found[0]) != self.message_bytes:
                raise WrongResult("what was attached is not what was written")
        run.checked(rows)
        shutil.rmtree(path)
        return {"bytes": rows * self.message_bytes, "seconds": attached - began, "first_read_s": first_read - attached}

    def show(self, figures: Figures, console: Console) -> None:
        """Show one row for each way, the ratios, and attaching."""
        title = f"{figures['messages']:,} messages of {self.message_bytes:,} B, {self.cores} tasks at a time"
        rows = [{"way": name, **row} for name, row in figures["ways"].items()]
        console.print(report.table(title, report.chosen(rows, SHOWN)))
        attach = figures["attach"]
        console.print(
            report.pairs(
                "ratios and attaching",
                {
                    "stratalog over the bare sink": figures["bare_ratio"],
                    "stratalog over Parquet": figures["parquet_ratio"],
                    "seconds to attach": attach["seconds"],
                    "GiB attached": attach["bytes"] / (1 << 30),
                },
            )
        )


def _ratios(rows: dict[str, Figures]) -> Figures:
    def rate(name: str) -> float:
        return float(rows[name]["rows_per_s"])

    return {
        "bare_ratio": rate("stratalog") / rate("bare Arrow, forced"),
        "parquet_ratio": rate("stratalog") / rate("Parquet"),
    }
