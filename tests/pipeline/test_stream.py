"""Streaming reads: every message once, from any start, over restarts, within limits."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from stratalog import MessageStore
from stratalog.pipeline import BadOption
from stratalog.pipeline.stream import StoreStreamReader, stream_options
from tests.seeds import draw_seed
from tests.store.helpers import has_settled, tiny, until

from .stores import SMALL, Row, fill, make_store, rows_of, scanned_rows

KINDS = [
    ("topic", StringType()), ("queue_id", IntegerType()), ("offset", LongType()), ("timestamp", TimestampType()),
    ("deliver_at", TimestampType()), ("key", BinaryType()), ("properties", MapType(StringType(), StringType())),
    ("data", BinaryType()), ("store", StringType()),
]  # fmt: skip
SCHEMA = StructType([StructField(name, kind) for name, kind in KINDS])


# -- the reader by itself -----------------------------------------------------------------------------


def reader_of(path: Path, **options: Any) -> StoreStreamReader:
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    return StoreStreamReader(stream_options(given), SCHEMA)


def micro_batches(reader: StoreStreamReader, limit: Any = None) -> Iterator[list[Row]]:
    """Micro-batches as Spark asks for them, until nothing is left."""
    at = reader.initialOffset()
    while True:
        end = reader.latestOffset(at, limit or reader.getDefaultReadLimit())
        if end == at:
            return
        parts = reader.partitions(at, end)
        copy = pickle.loads(pickle.dumps(reader))  # a task's
        batches = [batch for part in parts for batch in copy.read(pickle.loads(pickle.dumps(part)))]
        yield rows_of(pa.Table.from_batches(batches, reader._schema)) if batches else []
        at = end


def test_micro_batches_give_each_message_once_within_the_limit(tmp_path: Path) -> None:
    expected = make_store(tmp_path, draw_seed())
    some: list[dict[str, Any]] = [{"max_rows": 300}, {"max_bytes": "50k"}, {"max_rows": 500, "max_bytes": "100k"}, {}]
    for options in some:
        reader = reader_of(tmp_path, **options)
        found = list(micro_batches(reader))
        assert sorted(row for rows in found for row in rows) == expected
        assert all(len(rows) <= options.get("max_rows", 1 << 30) for rows in found)
        assert (len(found) > 1) is bool(options)
        reader.stop()


def test_limits_are_told_to_spark(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    assert reader_of(tmp_path).getDefaultReadLimit() == ReadAllAvailable()
    assert reader_of(tmp_path, max_rows=7).getDefaultReadLimit() == ReadMaxRows(7)
    assert reader_of(tmp_path, max_bytes="2k").getDefaultReadLimit() == ReadMaxBytes(2048)
    assert reader_of(tmp_path, max_bytes="2k", max_rows=7).getDefaultReadLimit() == ReadMaxRows(7)


def test_trigger_that_wants_everything_gets_it_whatever_the_options_say(tmp_path: Path) -> None:
    expected = make_store(tmp_path, 5, 300)
    [found] = micro_batches(reader_of(tmp_path, max_rows=10), ReadAllAvailable())
    assert found == expected


def test_available_now_leaves_what_comes_later(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, random.Random(1), 200)
        expected = scanned_rows(store)
        reader = reader_of(tmp_path, max_rows=60)
        reader.prepareForTriggerAvailableNow()
        found: list[Row] = []
        for rows in micro_batches(reader):
            found += rows
            fill(store, random.Random(2), 50)
        assert sorted(found) == expected
        assert reader.reportLatestOffset() != reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        reader.stop()


def test_several_stores_share_a_limit(tmp_path: Path) -> None:
    expected = [row for name in "ab" for row in make_store(tmp_path / name, ord(name), 300)]
    found = list(micro_batches(reader_of(tmp_path, max_rows=100)))
    assert all(len(rows) <= 100 for rows in found) and len(found) <= 8
    assert sorted(map(repr, (row for rows in found for row in rows))) == sorted(map(repr, expected))


def test_start_at_the_end_at_offsets_and_at_a_time(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, random.Random(3), 300)
        latest = reader_of(tmp_path, starting="latest")
        begin = latest.initialOffset()
        before = scanned_rows(store)
        fill(store, random.Random(4), 100)
        after = scanned_rows(store)
    end = latest.latestOffset(begin, ReadAllAvailable())
    rows = [batch for part in latest.partitions(begin, end) for batch in latest.read(part)]
    assert rows_of(pa.Table.from_batches(rows)) == sorted(set(after) - set(before))
    [found] = micro_batches(reader_of(tmp_path, starting='{"orders": {"0": 20, "1": 9999999}}', topic="orders,bills"))
    first = {("orders", 0): 20, ("orders", 1): 9_999_999}
    assert found == [row for row in after if row.topic in ("orders", "bills") and row.offset >= first.get(row[:2], 0)]
    time = sorted(row.timestamp for row in after)[200]
    [found] = micro_batches(reader_of(tmp_path, starting=time))
    assert found == [row for row in after if row.timestamp >= time]


def overtaken(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """A store whose retention has removed what lies behind a position; that, and what is left."""
    with MessageStore.open(path, tiny()) as store:
        store.append("orders", 0, bytes(100))
        reader = reader_of(path)
        begin = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        reader.stop()
        for _ in range(40):
            store.append("orders", 0, bytes(10_000))
    with MessageStore.open(path, tiny(retention_bytes=64 << 10)) as store:
        until(lambda: has_settled(store))
        return begin, scanned_rows(store)


def test_stream_that_retention_overtakes_is_an_error_unless_it_is_told_to_go_on(tmp_path: Path) -> None:
    begin, left = overtaken(tmp_path)
    with pytest.raises(Exception, match=r"retention removed \d+ messages .* on_lost=skip"):
        reader_of(tmp_path).latestOffset(begin, ReadAllAvailable())
    reader = reader_of(tmp_path, on_lost="skip")
    end = reader.latestOffset(begin, ReadAllAvailable())
    rows = [batch for part in reader.partitions(begin, end) for batch in reader.read(part)]
    assert rows_of(pa.Table.from_batches(rows)) == left
    with pytest.raises(Exception, match="retention removed"):
        reader_of(tmp_path).partitions(begin, end)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"starting": "newest"}, "starting is earliest, latest"),
        ({"starting": '{"orders": 5}'}, "starting is JSON such as"),
        ({"starting": '{"orders": {"0": -5}}'}, "an offset is an integer from 0"),
        ({"max_rows": "0"}, "max_rows is an integer from 1"),
        ({"max_bytes": "lots"}, "max_bytes is a number of bytes"),
        ({"on_lost": "ignore"}, "on_lost is one of raise, skip"),
    ],
)
def test_wrong_options_are_errors_that_say_what_is_right(tmp_path: Path, options: dict[str, str], says: str) -> None:
    MessageStore.open(tmp_path).close()
    with pytest.raises(Exception, match=says):
        reader_of(tmp_path, **options)


def test_positions_of_another_source_are_an_error(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    with pytest.raises(BadOption, match="the checkpoint has positions"):
        reader_of(tmp_path).latestOffset({"part-0": 7}, ReadAllAvailable())


# -- with Spark ---------------------------------------------------------------------------------------


def run(stream: DataFrame, checkpoint: Path, to: Path) -> list[dict[str, Any]]:
    """Run a query with what is there; the progress of its micro-batches."""
    query = (
        stream.writeStream.format("parquet").option("checkpointLocation", str(checkpoint)).option("path", str(to))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return [dict(one) for one in query.recentProgress if one["numInputRows"]]


def streaming(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.readStream.format("stratalog").options(**options).load(str(path))


def test_queries_that_go_on_from_a_checkpoint_give_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint, to = tmp_path / "checkpoint", tmp_path / "out"
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        for seed in range(3):
            fill(store, random.Random(seed), 400)
            progress = run(streaming(spark, tmp_path / "store", max_rows=150), checkpoint, to)
            assert [one["numInputRows"] for one in progress] == [150, 150, 100]
        expected = scanned_rows(store)
    assert rows_of(spark.read.parquet(str(to)).toArrow()) == expected
    assert run(streaming(spark, tmp_path / "store"), checkpoint, to) == []


def test_query_beside_a_writer_gives_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        query = (
            streaming(spark, tmp_path / "store", max_rows=1_000).writeStream.format("memory").queryName("live")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        )  # fmt: skip
        chance = random.Random(draw_seed())
        for _ in range(8):
            fill(store, chance, 200)
        expected = scanned_rows(store)
        until(lambda: query.exception() is not None or spark.table("live").count() >= len(expected), 200)
        query.stop()
    assert rows_of(spark.table("live").toArrow()) == expected


def test_query_that_retention_overtakes_fails_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        store.append("orders", 0, bytes(100))
        run(streaming(spark, tmp_path / "store"), tmp_path / "checkpoint", tmp_path / "out")
        for _ in range(40):
            store.append("orders", 0, bytes(10_000))
    with MessageStore.open(tmp_path / "store", tiny(retention_bytes=64 << 10)) as store:
        until(lambda: has_settled(store))
    with pytest.raises(PySparkException, match="retention removed"):
        run(streaming(spark, tmp_path / "store"), tmp_path / "checkpoint", tmp_path / "out")
    assert run(streaming(spark, tmp_path / "store", on_lost="skip"), tmp_path / "checkpoint", tmp_path / "out")
