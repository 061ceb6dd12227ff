"""A driver of Spark as a process of its own: it takes jobs as lines of JSON, and answers each with a line.

`python -m tests.pipeline.driver MASTER`. A job is a batch or a stream, see `Job`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F

from stratalog.pipeline import spark_session

from ..checkout import ROOT
from .flaky import FlakySink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM_S = 900
SETTINGS = {
    "spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false", "spark.driver.memory": "512m",
    "spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
    "spark.executorEnv.PYTHONPATH": str(ROOT), "spark.task.maxFailures": "20",
    # Whoever runs the rounds beside other work may stop their processes for minutes.
    "spark.network.timeout": "1800s", "spark.executor.heartbeatInterval": "60s",
    "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5", "spark.speculation.minTaskRuntime": "300ms",
}  # fmt: skip


@dataclass
class Job:
    """What to write. `slow`: the first attempt of the first task takes so many seconds more, and is speculated on."""

    kind: str  # batch, stream
    path: str
    name: str
    label: str = ""
    rows: int = 0
    partitions: int = 1
    source: str = ""  # of a stream: a folder of JSON files
    checkpoint: str = ""
    slow_s: float = 0.0
    fails: bool = False  # tasks fail in their first attempts, upstream of the sink
    options: dict[str, str] = field(default_factory=dict)

    def line(self) -> str:
        """As a line."""
        return json.dumps(asdict(self)) + "\n"


def troubled(frame: DataFrame, job: Job) -> DataFrame:
    """The same rows, by tasks that are slow or fail."""
    slow_s, fails = job.slow_s, job.fails

    def trouble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        first = context.attemptNumber() == 0
        for batch in batches:
            if first and slow_s and context.partitionId() == 0:
                time.sleep(slow_s)  # so that another attempt overtakes this one, or its executor is killed in it
            yield batch
        if first and fails:
            raise RuntimeError("this attempt fails")

    return frame.mapInArrow(trouble, frame.schema)


def run(spark: SparkSession, job: Job) -> None:
    """Do a job. Raises whatever Spark raises."""
    if job.kind == "batch":
        number = F.col("id")
        frame = spark.range(0, job.rows, 1, job.partitions).select(
            F.lit("t").alias("topic"),
            (number % 3).cast("int").alias("queue_id"),
            F.concat(F.lit(f"{job.label}-"), number.cast("string")).cast("binary").alias("data"),
        )
        options = {"transaction": job.name, **job.options}
        troubled(frame, job).write.format("flaky").mode("append").options(**options).save(job.path)
        return
    lines = spark.readStream.schema("topic string, queue_id int, data string").option("maxFilesPerTrigger", 1)
    query = (
        troubled(lines.json(job.source), job).writeStream.format("flaky")
        .option("checkpointLocation", job.checkpoint).options(path=job.path, query=job.name, **job.options)
        .trigger(availableNow=True).start()
    )  # fmt: skip
    if not query.awaitTermination(STREAM_S):
        query.stop()
        raise TimeoutError("the stream did not end")


def main() -> int:
    """The command."""
    spark = spark_session(sys.argv[1], app_name="rounds", settings=SETTINGS)
    spark.dataSource.register(FlakySink)
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            run(spark, Job(**json.loads(line)))
            print("done", flush=True)
        except Exception as error:  # whatever it is, the one who gave the job decides
            print("failed " + " ".join(str(error).split())[-400:], flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
