"""Writing with Spark: each row exactly once, whatever fails, is retried or comes again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from stratalog.pipeline import BadOption
from stratalog.pipeline.sink import BatchSink
from stratalog.pipeline.sink_stores import existing
from stratalog.store import MessageStore, verify_folder

from .flaky import FlakySink

WAIT_S = 120


def rows(spark: SparkSession, count: int, partitions: int = 3, label: str = "x", queues: int = 5) -> DataFrame:
    """Rows whose data names them; in a queue they ascend with the partitions."""
    number = F.col("id")
    return spark.range(0, count, 1, partitions).select(
        F.concat(F.lit("t"), (number % 2).cast("string")).alias("topic"),
        (number % queues).cast("int").alias("queue_id"),
        F.concat(F.lit(f"{label}-"), number.cast("string")).cast("binary").alias("data"),
    )


def expected(count: int, label: str = "x", queues: int = 5) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}
    for number in range(count):
        found.setdefault((f"t{number % 2}", number % queues), []).append(f"{label}-{number}".encode())
    return found


def content(path: Path) -> dict[tuple[str, int], list[bytes]]:
    """Every queue of a store, or of a folder of stores; a queue is in one of them alone."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for folder in existing(path):
        with MessageStore.open(folder, read_only=True) as store:
            for topic in store.topics():
                for queue_id in store.queues(topic):
                    assert (topic, queue_id) not in found
                    datas = store.get_range(topic, queue_id, 0, 1_000_000)
                    found[topic, queue_id] = [datas[at] for at in range(len(datas))]
        assert verify_folder(folder).damages == []
    return found


def save(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("stratalog").mode(mode).options(**options).save(str(path))


def test_rows_arrive_in_the_order_of_partitions_and_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "s"
    save(rows(spark, 1000), path)
    assert content(path) == expected(1000)
    save(rows(spark, 100), path)
    assert sum(map(len, content(path).values())) == 1100
    back = spark.read.format("stratalog").load(str(path))
    assert back.count() == 1100
    assert list((path / "incoming").iterdir()) == [path / "incoming" / "LOCK"]


def test_all_columns_arrive(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [("t", 1, b"a", b"k", {"b": "2", "a": "1"}, 1_700_000_000_123), ("t", 1, b"", None, None, None)],
        "topic string, queue_id bigint, data binary, key binary, properties map<string,string>, deliver_at bigint",
    ).coalesce(1)
    save(frame, tmp_path / "s")
    with MessageStore.open(tmp_path / "s") as store:
        first, second = store.read("t", 1, 0, max_messages=9)
    assert (first.data, first.key, first.properties, first.deliver_at_ms) == (
        b"a", b"k", {"a": "1", "b": "2"}, 1_700_000_000_123
    )  # fmt: skip
    assert (second.data, second.key, second.properties, second.deliver_at_ms) == (b"", None, None, None)
    back = spark.read.format("stratalog").load(str(tmp_path / "s"))
    save(back, tmp_path / "copy")  # what a read gives, a write takes
    with MessageStore.open(tmp_path / "copy") as store:
        copied = store.read("t", 1, 0, max_messages=9)
    assert [one[:4] for one in map(_plain, copied)] == [one[:4] for one in map(_plain, (first, second))]


def _plain(message: Any) -> tuple[object, ...]:
    return message.data, message.key, message.properties, message.deliver_at_ms


def test_a_batch_with_a_transaction_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    for partitions in (3, 2):  # a re-run may cut its rows in another way
        save(rows(spark, 200, partitions), tmp_path / "s", transaction="load-7")
    assert content(tmp_path / "s") == expected(200)
    with pytest.raises(Exception, match="other rows"):
        save(rows(spark, 201), tmp_path / "s", transaction="load-7")
    save(rows(spark, 200, label="y"), tmp_path / "s", transaction="load-8")
    assert sum(map(len, content(tmp_path / "s").values())) == 400


def test_tasks_that_fail_and_are_tried_again_write_once(spark: SparkSession, tmp_path: Path) -> None:
    """Upstream of the sink, in the middle of a task's rows."""

    def fail_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber() < 2 and context.partitionId() != 1:
            raise RuntimeError("this attempt fails")

    frame = rows(spark, 300)
    save(frame.mapInArrow(fail_first, frame.schema), tmp_path / "s")
    assert content(tmp_path / "s") == expected(300)


def test_losers_of_retries_are_never_seen(spark: SparkSession, tmp_path: Path) -> None:
    """Their shards are finished, and then their tasks fail."""
    spark.dataSource.register(FlakySink)
    rows(spark, 300).write.format("flaky").mode("append").option("fault", "lose").save(str(tmp_path / "s"))
    assert content(tmp_path / "s") == expected(300)
    assert len(list((tmp_path / "s" / "incoming").iterdir())) == 1 + 3  # the losers, until they are swept


def test_a_failed_job_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    save(rows(spark, 10), tmp_path / "s")
    bad = rows(spark, 300).withColumn("queue_id", (F.col("queue_id") - 1).cast("int"))
    with pytest.raises(Exception, match="queue id"):
        save(bad, tmp_path / "s")
    assert content(tmp_path / "s") == expected(10)
    assert list((tmp_path / "s" / "incoming").iterdir()) == [tmp_path / "s" / "incoming" / "LOCK"]


@pytest.mark.parametrize("fault", ["raise before", "raise after"])
def test_a_commit_that_raises_is_done_or_not_done(spark: SparkSession, tmp_path: Path, fault: str) -> None:
    spark.dataSource.register(FlakySink)
    frame = rows(spark, 100)
    with pytest.raises(Exception, match="the commit fails"):
        options = {"fault": fault, "transaction": "x"}
        frame.write.format("flaky").mode("append").options(**options).save(str(tmp_path / "s"))
    assert content(tmp_path / "s") == ({} if fault == "raise before" else expected(100))
    save(frame, tmp_path / "s", transaction="x")
    assert content(tmp_path / "s") == expected(100)


def test_overwrite_makes_a_store_from_nothing_and_is_refused_while_it_is_open(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    save(rows(spark, 50), path)
    with MessageStore.open(path) as store:
        with pytest.raises(Exception, match="is open already"):
            save(rows(spark, 60), path, "overwrite")
        assert store.append("t0", 0, b"x") == 5
    save(rows(spark, 60), path, "overwrite")
    assert content(path) == expected(60)
    save(rows(spark, 70), path, "overwrite", shards="3")
    assert content(path) == expected(70)
    assert [one.name for one in tmp_path.iterdir()] == ["s"]


def test_streams_of_many_stores_are_in_one_each_and_are_read_back_as_one(spark: SparkSession, tmp_path: Path) -> None:
    for _ in range(2):
        save(rows(spark, 400, queues=40), tmp_path / "s", shards="4", transaction="x")
    assert len(existing(tmp_path / "s")) == 4
    assert content(tmp_path / "s") == expected(400, queues=40)
    assert spark.read.format("stratalog").load(str(tmp_path / "s")).count() == 400
    with pytest.raises(Exception, match="4 stores for good"):
        save(rows(spark, 4), tmp_path / "s", shards="5")


@pytest.mark.parametrize(
    ("columns", "what"),
    [("'t' topic, 1 queue_id", "data is missing"), ("'t' topic, 1 queue_id, cast(null as string) data", "has no data")],
    ids=["by the driver", "by a task"],
)
def test_wrong_rows_are_refused(spark: SparkSession, tmp_path: Path, columns: str, what: str) -> None:
    with pytest.raises(Exception, match=what):
        save(spark.sql(f"select {columns}"), tmp_path / "s")


@pytest.mark.parametrize(
    ("column", "options", "what"),
    [
        (StructField("colour", StringType()), {}, "no column 'colour'"),
        (StructField("queue_id", StringType()), {}, "queue_id is of type"),
        (StructField("queue_id", IntegerType()), {"shard": "3"}, "no option shard"),
        (StructField("queue_id", IntegerType()), {"shards": "0"}, "shards is from 1"),
    ],
)
def test_wrong_columns_and_options_are_refused(
    tmp_path: Path, column: StructField, options: dict[str, str], what: str
) -> None:
    named = {"topic": StructField("topic", StringType()), "queue_id": StructField("queue_id", IntegerType())}
    schema = StructType([*(named | {column.name: column}).values(), StructField("data", BinaryType())])
    with pytest.raises(BadOption, match=what):
        BatchSink({"path": str(tmp_path / "s"), **options}, schema, overwrite=False)


class Stream:
    """A query from a folder of JSON files into a store, one file a micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.source, self.sink, self.checkpoint = folder / "in", folder / "out", folder / "checkpoint"
        self.source.mkdir()
        self.files = 0

    def add(self, count: int) -> None:
        lines = [
            json.dumps({"topic": "t", "queue_id": at % 3, "data": f"{self.files}-{at}"}) for at in range(count)
        ]  # fmt: skip
        (self.source / f"{self.files:04d}.json").write_text("\n".join(lines))
        self.files += 1

    def run(self, **options: str) -> StreamingQuery:
        frame = (
            self.spark.readStream.schema("topic string, queue_id int, data string")
            .option("maxFilesPerTrigger", 1).json(str(self.source))
        )  # fmt: skip
        query = (
            frame.writeStream.format("stratalog").option("checkpointLocation", str(self.checkpoint))
            .options(path=str(self.sink), **options).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination(WAIT_S)
        return query

    def found(self) -> list[str]:
        return sorted(data.decode() for datas in content(self.sink).values() for data in datas)

    def wanted(self) -> list[str]:
        return sorted(
            json.loads(line)["data"] for path in self.source.iterdir() for line in path.read_text().splitlines()
        )


def test_a_stream_writes_each_micro_batch_once_also_when_its_commits_are_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path)
    for count in (10, 20):
        stream.add(count)
    stream.run()
    assert stream.found() == stream.wanted()
    for path in (stream.checkpoint / "commits").glob("*1*"):  # as after a power cut: Spark forces nothing of it
        path.unlink()
    stream.add(5)
    stream.run()
    assert stream.found() == stream.wanted()


def test_a_stream_with_a_name_goes_on_exactly_once_without_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    for count in (10, 20, 5):
        stream.add(count)
    stream.run(query="load")
    shutil.rmtree(stream.checkpoint)
    stream.add(7)
    stream.run(query="load")
    assert stream.found() == stream.wanted()


def test_a_micro_batch_that_comes_again_with_other_rows_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    for count in (10, 20):
        stream.add(count)
    stream.run(query="load")
    before = stream.found()
    shutil.rmtree(stream.checkpoint)
    (stream.source / "0001.json").unlink()
    stream.add(9)
    with pytest.raises(Exception, match="other rows"):
        stream.run(query="load")
    assert stream.found() == before


def test_a_stream_into_a_store_that_is_open_is_attached_by_its_writer(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    stream.add(10)
    with MessageStore.open(stream.sink) as store:
        store.append("t", 0, b"first")
        stream.run(wait_ms="60000")
        assert store.queue_bounds("t", 0) == (0, 5)
        store.append("t", 0, b"last")
    assert len(stream.found()) == 12
