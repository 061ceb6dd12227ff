"""Batch reads by Spark: row by row what a scan of the store gives."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrameReader, SparkSession

from stratalog import MessageStore
from tests.seeds import draw_seed
from tests.store.helpers import flip_bit, frames_of, segment_path

from .stores import SMALL, Row, fill, make_store, rows_of, scanned_rows

QUERIES = int(os.environ.get("STRATALOG_QUERIES", "6"))  # of the random test; 200 in the long form
ALL = ["topic", "queue_id", "offset", "timestamp", "deliver_at", "key", "properties", "data", "store"]


@pytest.fixture(scope="module")
def store(shared_path: Path) -> tuple[Path, list[Row]]:
    """A closed store, and what it has."""
    path = shared_path / "store"
    return path, make_store(path, draw_seed())


def reading(spark: SparkSession, **options: Any) -> DataFrameReader:
    return spark.read.format("stratalog").options(**options)


def test_rows_are_those_of_a_scan(spark: SparkSession, store: tuple[Path, list[Row]]) -> None:
    path, expected = store
    found = reading(spark, partition_bytes="100k").load(str(path))
    assert found.columns == ALL
    assert found.rdd.getNumPartitions() > 3
    assert rows_of(found.toArrow()) == expected
    assert [row.store for row in found.select("store").distinct().collect()] == [str(path)]


def test_store_that_a_process_writes_is_read_up_to_one_end(spark: SparkSession, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, random.Random(1), 500)
        expected = scanned_rows(store)
        found = reading(spark).load(str(tmp_path)).cache()
        assert found.count() == len(expected)
        fill(store, random.Random(2), 500)
        assert rows_of(found.toArrow()) == expected
        assert reading(spark).load(str(tmp_path)).count() == 1_000


def test_fewer_columns_read_fewer(spark: SparkSession, store: tuple[Path, list[Row]], tmp_path: Path) -> None:
    """A store with damaged payloads can be read without them."""
    path = tmp_path / "damaged"
    expected = make_store(path, 1, 300)
    frame = next(one for one in frames_of(segment_path(path, 1)) if one.header.payload_bytes > 5)
    flip_bit(segment_path(path, 1), frame.payload_start + 5)
    with pytest.raises(PySparkException, match="do not match their checksum"):
        reading(spark).load(str(path)).count()
    for found in (
        reading(spark, columns="offset,topic").load(str(path)),
        reading(spark).schema("offset bigint, topic string").load(str(path)),
    ):
        assert found.columns == ["offset", "topic"]
        rows = found.toArrow().to_pydict()
        assert sorted(zip(rows["topic"], rows["offset"], strict=True)) == sorted((r.topic, r.offset) for r in expected)


def drawn_options(chance: random.Random, rows: list[Row]) -> dict[str, Any]:
    """Options of any query."""
    low, high = sorted(chance.choices(range(500), k=2))
    first, last = sorted(chance.choices([row.timestamp for row in rows], k=2))
    possible = {
        "topic": chance.choice(["orders", "orders, é", json.dumps(["bills", "nothing"])]),
        "queue_id": chance.choice(["0", "1,70000"]),
        "start_offset": low, "end_offset": high, "start_time": first, "end_time": last,
        "partition_bytes": chance.choice(["20k", "1m"]),
    }  # fmt: skip
    return {name: possible[name] for name in chance.sample(sorted(possible), chance.randrange(1, 5))}


def meets(row: Row, options: dict[str, Any]) -> bool:
    """Whether a row is one of those that the options name."""
    if "topic" in options:
        text = str(options["topic"])
        names = json.loads(text) if text.startswith("[") else [part.strip() for part in text.split(",")]
        if row.topic not in names:
            return False
    if "queue_id" in options and row.queue_id not in [int(part) for part in str(options["queue_id"]).split(",")]:
        return False
    limits = ((row.offset, "start_offset", "end_offset"), (row.timestamp, "start_time", "end_time"))
    return all(options.get(begin, 0) <= value < options.get(end, 1 << 62) for value, begin, end in limits)


def test_options_give_what_meets_them(spark: SparkSession, store: tuple[Path, list[Row]]) -> None:
    path, rows = store
    chance = random.Random(draw_seed())
    for _ in range(QUERIES):
        options = drawn_options(chance, rows)
        found = rows_of(reading(spark, **options).load(str(path)).toArrow())
        assert found == [row for row in rows if meets(row, options)], options


def test_several_stores_and_a_folder_of_stores_are_read_as_one(spark: SparkSession, tmp_path: Path) -> None:
    paths = [tmp_path / "shards" / name for name in ("b", "a", "c,d")]
    expected = {str(path): make_store(path, seed, 50) for seed, path in enumerate(paths)}
    (tmp_path / "shards" / "notes").mkdir()
    everything = [row for rows in expected.values() for row in rows]
    for found in (
        reading(spark).load(str(tmp_path / "shards")),
        reading(spark, path=json.dumps([str(path) for path in paths])).load(),
        reading(spark).load([str(path) for path in paths]),
    ):
        counts = {row["store"]: row["count"] for row in found.groupBy("store").count().collect()}
        assert counts == {path: len(rows) for path, rows in expected.items()}
    assert sorted(map(repr, rows_of(found.toArrow()))) == sorted(map(repr, everything))
    two = reading(spark).load(f"{paths[0]},{paths[1]}")
    assert two.count() == 100


def test_empty_store_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    assert reading(spark).load(str(tmp_path)).collect() == []
    assert reading(spark, topic="nothing").load(str(tmp_path)).count() == 0


def test_damage_is_raised_skipped_or_reported(spark: SparkSession, tmp_path: Path) -> None:
    expected = make_store(tmp_path, 3)
    victim = segment_path(tmp_path, 1)  # sealed
    frame = frames_of(victim)[2]
    flip_bit(victim, frame.header.position + 20)
    with pytest.raises(PySparkException, match=f"{victim} at byte {frame.header.position}"):
        reading(spark).load(str(tmp_path)).count()
    found = rows_of(reading(spark, on_damage="skip").load(str(tmp_path)).toArrow())
    assert len(found) == len(expected) - frame.header.count and set(found) < set(expected)
    reported = reading(spark, on_damage="report", columns="topic,offset").load(str(tmp_path)).toArrow().to_pylist()
    [told] = [row for row in reported if row["damage"] is not None]
    assert told["topic"] is None and str(victim) in told["damage"] and len(reported) == len(found) + 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topics": "orders"}, "no option topics"),
        ({"queue_id": "one"}, "queue_id is an integer"),
        ({"start_offset": "-1"}, "start_offset is an integer from 0"),
        ({"start_time": "yesterday"}, "start_time is ms since the epoch"),
        ({"partition_bytes": "0"}, "partition_bytes is a number of bytes"),
        ({"partition_bytes": "5q"}, "partition_bytes is a number of bytes"),
        ({"on_damage": "ignore"}, "on_damage is one of raise, skip, report"),
        ({"columns": "offset,offset"}, "columns names some of"),
        ({"columns": "payload"}, "columns names some of"),
        ({"topic": "[1"}, "topic is no JSON list"),
        ({"path": "/nowhere"}, "/nowhere does not exist"),
    ],
)
def test_wrong_options_are_errors_that_say_what_is_right(
    spark: SparkSession, store: tuple[Path, list[Row]], options: dict[str, str], says: str
) -> None:
    with pytest.raises(AnalysisException, match=says):
        reading(spark, **{"path": str(store[0]), **options}).load()


@pytest.mark.parametrize(
    ("schema", "says"), [("price int", "no column 'price'"), ("offset int", "offset is of type bigint, not int")]
)
def test_wrong_schemas_are_errors_that_say_what_is_right(
    spark: SparkSession, store: tuple[Path, list[Row]], schema: str, says: str
) -> None:
    with pytest.raises(PySparkException, match=says):
        reading(spark).schema(schema).load(str(store[0])).count()


def test_folder_that_is_no_store_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="is not a store, and no folder in it is one"):
        reading(spark).load(str(tmp_path))
    with pytest.raises(AnalysisException, match="no path"):
        reading(spark).load()


def test_times_may_be_written_as_dates(spark: SparkSession, store: tuple[Path, list[Row]]) -> None:
    path, rows = store
    assert reading(spark, end_time="2020-01-01T00:00:00").load(str(path)).count() == 0
    assert reading(spark, start_time="2020-01-01T00:00:00+02:00").load(str(path)).count() == len(rows)
