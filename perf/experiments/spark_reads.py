"""Bulk reads by Spark: the data source beside a bare source of the same Arrow batches, and beside Parquet."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console

from ...pipeline import borrowed_session
from ...store import MessageStore
from ...testing import TunedConfig
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.contest import Sizes, Workload
from ..workload.filling import fill
from ..workload.settings import prewritten, space_bytes
from .experiment import Experiment, medians, queues, repeats, setting, time_limit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "topic,queue_id,offset,timestamp,data"
WITHOUT_DATA = "topic,queue_id,offset,timestamp"
SCHEMA = "topic string, queue_id int, offset bigint, timestamp timestamp, data binary"
TOUCHED = ["topic", "queue_id", "offset", "timestamp", "substring(data, 1, octet_length(data)) as data"]
MIB = 1 << 20
WARM_UP = 3
SHOWN = {"way": "way", "rows/s": "rows_per_s", "MB/s": "mb_per_s", "seconds": "seconds"}


@dataclass(frozen=True, kw_only=True)
class SparkReads(Experiment):
    """Bulk reads by Spark, beside a bare source of the same Arrow batches and beside uncompressed Parquet."""

    NAME: ClassVar[str] = "spark"
    METHOD: ClassVar[str] = (
        "local mode, each query to the sink noop; 'touched' copies each payload in a projection; files are in the page "
        "cache as far as it has room; each way runs three times before the clock starts; the bare source yields the "
        "same batches out of mapped Arrow files, and its tasks are as prompt as ours"
    )

    size_bytes: int = setting(1 << 30, "payload of the store", short=4 << 20, least=1 << 16)
    message_bytes: int = setting(8192, "bytes per message", least=16, option="message")
    cores: int = setting(2, "tasks at a time", least=1)
    part_bytes: int = setting(128 * MIB, "bytes per partition", short=1 * MIB, least=4096, option="partition")
    queues: int = queues(default=100, short=10)
    repeat: int = repeats()
    limit_s: int = time_limit()

    def need_bytes(self) -> float:
        """The space of the store, the Arrow files and Parquet."""
        return 3 * space_bytes(self.size_bytes)

    def measure(self, base: Path, run: Run) -> Figures:
        """Rows and bytes a second of each way, and ratios."""
        work = Workload(self.seed, Sizes(self.message_bytes, self.message_bytes), queues=self.queues)
        config = TunedConfig(**prewritten(self.size_bytes))
        with run.stage("filling the store"), MessageStore.open(base / "store", config) as store:
            count = fill(store, work, self.size_bytes)
        settings = {"spark.sql.shuffle.partitions": str(self.cores)}
        with borrowed_session(f"local[{self.cores}]", settings=settings) as spark:
            with run.stage("writing the same rows to Arrow files and Parquet"):
                reads = self._reads(spark, base)
            with run.stage("comparing each row"):
                run.checked(self._compared(reads, count))
            ways: dict[str, Callable[[], Figures]] = {
                name: partial(self._timed, read, count) for name, read in reads.items()
            }
            with run.stage("each way, until the JVM has compiled it"):
                for measure in WARM_UP * list(ways.values()):
                    measure()
            rows = medians(ways, self.repeat, run, self.limit_s)
        return {"ways": rows, "messages": count, **_ratios(rows)}

    def _reads(self, spark: SparkSession, base: Path) -> dict[str, Callable[[], DataFrame]]:
        from ..references.arrow_files import NAME, ArrowFiles  # noqa: PLC0415  # it imports PySpark, which is an extra

        spark.dataSource.register(ArrowFiles)
        options: dict[str, Any] = {"partition_bytes": self.part_bytes}

        def stratalog(columns: str) -> DataFrame:
            return spark.read.format("stratalog").options(columns=columns, **options).load(str(base / "store"))

        def arrow() -> DataFrame:
            return spark.read.format(NAME).options(schema=SCHEMA).load(str(base / "arrow"))

        def parquet() -> DataFrame:
            return spark.read.parquet(str(base / "parquet"))

        self._write_arrow(base)
        stratalog(COLUMNS).write.option("compression", "none").parquet(str(base / "parquet"))
        return {
            "stratalog": partial(stratalog, COLUMNS),
            "bare Arrow": arrow,
            "stratalog, touched": lambda: stratalog(COLUMNS).selectExpr(*TOUCHED),
            "Parquet, touched": lambda: parquet().selectExpr(*TOUCHED),
            "stratalog without data": partial(stratalog, WITHOUT_DATA),
        }

    def _write_arrow(self, base: Path) -> None:
        """Write the batches of the data source, one file for each partition."""
        from pyspark.sql.types import StructType  # noqa: PLC0415  # as above

        from ...pipeline.datasource import StratalogSource  # noqa: PLC0415  # as above
        from ..references.arrow_files import SUFFIX, write_arrow_file  # noqa: PLC0415  # as above

        options = {"path": str(base / "store"), "columns": COLUMNS, "partition_bytes": str(self.part_bytes)}
        schema = StructType.fromDDL(SCHEMA)
        assert isinstance(schema, StructType), "it has fields"
        reader = StratalogSource(options).reader(schema)
        (base / "arrow").mkdir()
        for number, part in enumerate(reader.partitions()):
            path = base / "arrow" / f"{number:05d}{SUFFIX}"
            write_arrow_file(path, reader.arrow_schema, reader.read(part))

    def _compared(self, reads: dict[str, Callable[[], DataFrame]], count: int) -> int:
        """Whether the sources give the same rows, and the number of compared rows."""
        parts = [f"sum(cast(xxhash64({COLUMNS}) as decimal(38,0))) as rows", "count(*) as count"]
        sums = {
            name: reads[name]().selectExpr(*parts).collect()[0]
            for name in ("stratalog", "bare Arrow", "Parquet, touched")
        }
        if len(set(sums.values())) > 1 or sums["stratalog"]["count"] != count:
            raise WrongResult(f"{count} rows were written, and the sources give: {sums}")
        return count

    def _timed(self, read: Callable[[], DataFrame], count: int) -> Figures:
        began = time.perf_counter()
        read().write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - began
        return {
            "seconds": seconds, "rows_per_s": count / seconds, "mb_per_s": count * self.message_bytes / seconds / 1e6,
        }  # fmt: skip

    def show(self, figures: Figures, console: Console) -> None:
        """Show one row for each way, and the ratios."""
        title = f"{figures['messages']:,} messages of {self.message_bytes:,} B, {self.cores} tasks at a time"
        rows = [{"way": name, **row} for name, row in figures["ways"].items()]
        console.print(report.table(title, report.chosen(rows, SHOWN)))
        console.print(
            report.pairs(
                "ratios",
                {
                    "stratalog over the bare source": figures["bare_ratio"],
                    "stratalog over Parquet, both touched": figures["parquet_ratio"],
                    "rows without data over rows with data": figures["without_data_ratio"],
                },
            )
        )


def _ratios(rows: dict[str, Figures]) -> Figures:
    def rate(name: str) -> float:
        return float(rows[name]["rows_per_s"])

    return {
        "bare_ratio": rate("stratalog") / rate("bare Arrow"),
        "parquet_ratio": rate("stratalog, touched") / rate("Parquet, touched"),
        "without_data_ratio": rate("stratalog without data") / rate("stratalog"),
    }
