"""Streaming reads: every message once, from any start, over restarts, within limits."""

from __future__ import annotations

import pickle
import random
import shutil
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
from stratalog.pipeline.sink import StreamSink, write_rows
from stratalog.pipeline.stream import StoreStreamReader, stream_options
from stratalog.store import LogOvertaken, ScanPlanner, StoreError, compact_store
from tests.seeds import draw_seed
from tests.store.helpers import has_settled, tiny, until

from .stores import SMALL, Row, fill, make_store, rows_of, scanned_rows

KINDS = [
    ("topic", StringType()), ("queue_id", IntegerType()), ("offset", LongType()), ("timestamp", TimestampType()),
    ("deliver_at", TimestampType()), ("key", BinaryType()), ("properties", MapType(StringType(), StringType())),
    ("data", BinaryType()), ("store", StringType()),
]  # fmt: skip
SCHEMA = StructType([StructField(name, kind) for name, kind in KINDS])
WAIT_S = 60.0  # for Spark on a busy machine
SINK_SCHEMA = StructType([one for one in SCHEMA if one.name in ("topic", "queue_id", "data")])


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
    beyond = '{"orders": {"0": 20, "1": 9999999}}'
    [found] = micro_batches(reader_of(tmp_path, starting=beyond, topic="orders,bills", on_lost="skip"))
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
        for seed in range(2):
            fill(store, random.Random(seed), 250)
            progress = run(streaming(spark, tmp_path / "store", max_rows=150), checkpoint, to)
            assert [one["numInputRows"] for one in progress] == [150, 100]
        expected = scanned_rows(store)
    assert rows_of(spark.read.parquet(str(to)).toArrow()) == expected
    assert run(streaming(spark, tmp_path / "store"), checkpoint, to) == []


def test_micro_batch_that_was_not_committed_fails_behind_a_restart_without_one_of_its_stores(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, checkpoint, to = tmp_path / "s", tmp_path / "checkpoint", tmp_path / "out"
    two_stores(source)
    run(streaming(spark, source), checkpoint, to)
    (checkpoint / "commits" / "0").unlink()  # as if it was killed before
    (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    shutil.rmtree(to)
    (source / "b").rename(tmp_path / "b")
    with pytest.raises(PySparkException, match="the checkpoint has a position in the store with the id"):
        run(streaming(spark, source), checkpoint, to)
    (tmp_path / "b").rename(source / "b")
    run(streaming(spark, source), checkpoint, to)
    assert [row.data for row in rows_of(spark.read.parquet(str(to)).toArrow())] == [b"a", b"b"]


def test_start_options_that_contradict_are_refused(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    for name in ("start_offset", "start_time"):
        for starting in ("latest", "earliest", "1700000000000", '{"orders": {"0": 1}}'):
            with pytest.raises(BadOption, match=f"starting and {name} both say"):
                reader_of(tmp_path, starting=starting, **{name: "5"})


@pytest.mark.parametrize(("queue", "offset", "end"), [(0, 4, 3), (1, 1, 0), (0, 1 << 40, 3)])
def test_a_start_beyond_the_end_of_a_queue_is_an_error_unless_the_query_goes_on(
    tmp_path: Path, queue: int, offset: int, end: int
) -> None:
    for name in ("a", "b"):
        with MessageStore.open(tmp_path / name) as store:
            for _ in range(3 if name == "b" else 1):
                store.append("orders", 0, b"x")
    starting = f'{{"orders": {{"{queue}": {offset}}}}}'
    with pytest.raises(BadOption, match=f"offset {offset} of queue {queue} of 'orders', which ends at {end}"):
        reader_of(tmp_path, starting=starting).initialOffset()
    reader = reader_of(tmp_path, starting=starting, on_lost="skip", queue_id=queue)
    assert [row for found in micro_batches(reader) for row in found] == []


def test_a_start_at_the_end_of_a_queue_gets_what_comes(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append("orders", 0, b"old")
        reader = reader_of(tmp_path, starting='{"orders": {"0": 1, "7": 0}}')
        begin = reader.initialOffset()
        store.append("orders", 0, b"new")
    end = reader.latestOffset(begin, ReadAllAvailable())
    rows = [batch for part in reader.partitions(begin, end) for batch in reader.read(part)]
    assert [row.data for row in rows_of(pa.Table.from_batches(rows))] == [b"new"]


def test_a_query_that_goes_on_asks_for_no_start(tmp_path: Path) -> None:
    """Its checkpoint says where it is; retention or a trim may have changed what its start named."""
    with MessageStore.open(tmp_path) as store:
        store.append("orders", 0, b"x")
    reader = reader_of(tmp_path)
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader_of(tmp_path, starting='{"orders": {"0": 9}}').latestOffset(at, ReadAllAvailable()) == at


def test_a_start_of_a_queue_that_other_options_leave_out_is_refused(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    some: list[dict[str, Any]] = [{"topic": "bills"}, {"queue_id": 5}]
    for options in some:
        with pytest.raises(BadOption, match="which the options topic and queue_id leave out"):
            reader_of(tmp_path, starting='{"orders": {"0": 1}}', **options)


def test_columns_and_a_schema_that_differ_are_refused(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    with pytest.raises(BadOption, match="the option columns and the schema name other columns"):
        reader_of(tmp_path, columns="offset,data")
    reader_of(tmp_path, columns=",".join(name for name, _ in KINDS))
    with pytest.raises(BadOption, match="a column damage"):
        reader_of(tmp_path, on_damage="report")


def test_checkpoint_of_a_store_that_is_gone_is_an_error_unless_the_query_goes_on(tmp_path: Path) -> None:
    make_store(tmp_path / "old", 1, 50)
    reader = reader_of(tmp_path / "old")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.stop()
    expected = make_store(tmp_path / "new", 2, 50)
    with pytest.raises(LogOvertaken, match=r"none of .*/new is it"):
        reader_of(tmp_path / "new").latestOffset(end, ReadAllAvailable())
    reader = reader_of(tmp_path / "new", on_lost="skip")
    after = reader.latestOffset(end, ReadAllAvailable())
    rows = [batch for part in reader.partitions(end, after) for batch in reader.read(part)]
    assert rows_of(pa.Table.from_batches(rows)) == expected


def two_stores(folder: Path) -> None:
    """The stores a and b, with one message each, which is the store's name."""
    for name in ("a", "b"):
        append(folder / name, name)


def append(path: Path, data: str) -> None:
    with MessageStore.open(path) as store:
        store.append("orders", 0, data.encode())


def datas_between(reader: StoreStreamReader, begin: Any, end: Any) -> list[bytes]:
    batches = [batch for part in reader.partitions(begin, end) for batch in reader.read(part)]
    return sorted(data for batch in batches for data in batch.column("data").to_pylist())


def test_micro_batch_that_is_run_again_fails_if_a_store_of_it_is_gone(tmp_path: Path) -> None:
    """A query that starts again asks for the parts of its last micro-batch, and not before for its end."""
    two_stores(tmp_path / "s")
    reader = reader_of(tmp_path / "s")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    reader.stop()
    (tmp_path / "s" / "b").rename(tmp_path / "b")
    with pytest.raises(LogOvertaken, match="the checkpoint has a position in the store with the id"):
        reader_of(tmp_path / "s").partitions(begin, end)
    assert datas_between(reader_of(tmp_path / "s", on_lost="skip"), begin, end) == [b"a"]
    (tmp_path / "b").rename(tmp_path / "s" / "b")
    assert datas_between(reader_of(tmp_path / "s"), begin, end) == [b"a", b"b"]


def test_store_that_was_away_goes_on_where_it_was(tmp_path: Path) -> None:
    two_stores(tmp_path / "s")
    at, found = None, []
    for step in ("both are there", "b is gone", "nothing is new", "b is back"):
        if step == "b is gone":
            (tmp_path / "s" / "b").rename(tmp_path / "b")
            append(tmp_path / "s" / "a", "a2")
        if step == "b is back":
            append(tmp_path / "b", "b2")
            (tmp_path / "b").rename(tmp_path / "s" / "b")
        reader = reader_of(tmp_path / "s", on_lost="skip")
        begin = at or reader.initialOffset()
        at = reader.latestOffset(begin, ReadAllAvailable())
        assert (at == begin) is (step == "nothing is new")
        found.append(datas_between(reader, begin, at))
        reader.stop()
    assert found == [[b"a", b"b"], [b"a2"], [], [b"b2"]]


def test_two_copies_of_one_store_are_refused_and_nothing_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions are by the store's id: of two with one id, one would be passed over."""
    append(tmp_path / "s" / "a", "a")
    shutil.copytree(tmp_path / "s" / "a", tmp_path / "s" / "a-copy")
    closed: list[ScanPlanner] = []
    close = ScanPlanner.close

    def noted(self: ScanPlanner) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(ScanPlanner, "close", noted)
    with pytest.raises(BadOption, match=r"/a and .*/a-copy are one store, or copies of one; give one of them"):
        reader_of(tmp_path / "s").initialOffset()
    assert len(closed) == 2
    (tmp_path / "s" / "a-copy" / "STORE").write_bytes(b"no store")
    with pytest.raises(StoreError):
        reader_of(tmp_path / "s").initialOffset()
    assert len(closed) == 3


def test_checkpoint_that_is_ahead_of_a_restored_store_is_an_error(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 1, 50)
    shutil.copytree(tmp_path / "s", tmp_path / "backup")
    with MessageStore.open(tmp_path / "s", SMALL) as store:
        fill(store, random.Random(2), 50)
    reader = reader_of(tmp_path / "s")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.stop()
    with pytest.raises(LogOvertaken, match=r"has 50 messages, and the read goes on after 100"):
        reader_of(tmp_path / "backup").latestOffset(end, ReadAllAvailable())


def test_query_of_a_compacted_store_fails_and_goes_on_anew_at_its_offsets(tmp_path: Path) -> None:
    make_store(tmp_path, 1)
    reader = reader_of(tmp_path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.stop()
    compact_store(tmp_path)
    with MessageStore.open(tmp_path, SMALL) as store:
        offset = store.append("orders", 0, b"new")
    for on_lost in ("raise", "skip"):
        with pytest.raises(LogOvertaken, match="was compacted since"):
            reader_of(tmp_path, on_lost=on_lost).latestOffset(end, ReadAllAvailable())
    [found] = micro_batches(
        reader_of(tmp_path, topic="orders", queue_id=0, starting=f'{{"orders": {{"0": {offset}}}}}')
    )
    assert [row.data for row in found] == [b"new"]


# -- a stream that reads and writes one store ---------------------------------------------------------


def cleaned(source: StoreStreamReader, begin: Any, end: Any, path: Path, batch: int) -> int:
    """Write what lies between to another topic of the store, as a micro-batch of Spark's does it; how many rows."""
    sink = StreamSink({"path": str(path), "query": "clean", "wait_ms": "0"}, SINK_SCHEMA, overwrite=False)
    found = [rows for part in source.partitions(begin, end) for rows in source.read(part)]
    made = [
        pa.RecordBatch.from_pydict(
            {"topic": ["clean"] * len(rows), "queue_id": rows.column("queue_id"), "data": rows.column("data")}
        )
        for rows in found
    ]
    sink.commit([write_rows(iter(made), sink._stores, "clean", sink._options.config)], batch)
    return sum(map(len, found))


def test_stream_that_writes_the_store_that_it_reads_comes_to_rest(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        reader = reader_of(tmp_path, topic="raw")
        rows: list[int] = []
        at = reader.initialOffset()
        for came in (10, 0, 5, 0, 2_000, 0):
            store.append_batch([("raw", 0, bytes(100))] * came)
            for _ in range(4):
                end = reader.latestOffset(at, ReadAllAvailable())
                if end == at:
                    break
                rows.append(cleaned(reader, at, end, tmp_path, len(rows)))
                at = end
                store.attach_pending()
            else:
                pytest.fail(f"it does not come to rest: {rows}")
        assert sum(rows) == 2_015 == store.queue_bounds("clean", 0)[1]
        assert rows[:2] == [10, 5]
        reader.stop()


def test_acknowledgements_start_no_micro_batch(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        sub = store.subscribe("raw", "s")
        store.append_batch([("raw", 0, b"x")] * 10)
        reader = reader_of(tmp_path, max_rows=100)
        at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        end = reader.reportLatestOffset()
        for one in sub.receive(10, wait_ms=1_000):
            sub.ack(one)
        assert reader.reportLatestOffset() != end
        for limit in (ReadAllAvailable(), ReadMaxRows(100)):
            assert reader.latestOffset(at, limit) == at
        reader.stop()


def test_query_from_one_topic_into_another_of_its_store_comes_to_rest(spark: SparkSession, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"

    def batches() -> int:
        return len([one for one in (checkpoint / "offsets").iterdir() if one.name.isdigit()])

    with MessageStore.open(path) as store:
        store.append_batch([("raw", 3, b"a"), ("raw", 3, b"b")])
        rows = streaming(spark, path, topic="raw", columns="queue_id,data").selectExpr("'clean' topic", "*")
        query = (
            rows.writeStream.format("stratalog").option("checkpointLocation", str(checkpoint)).start(str(path))
        )  # fmt: skip

        def rest(count: int) -> None:
            until(lambda: query.exception() is not None or store.queue_bounds("clean", 3)[1] == count, WAIT_S)
            assert query.exception() is None
            until(lambda: query.status["message"] == "Waiting for data to arrive", WAIT_S)

        try:
            rest(2)
            assert batches() == 1
            store.append("raw", 3, b"c")
            rest(3)
            assert batches() == 2
        finally:
            query.stop()
        assert store.get_range("clean", 3, 0, 9) == {0: b"a", 1: b"b", 2: b"c"}
