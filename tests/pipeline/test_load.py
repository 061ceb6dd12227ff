"""Loading and resharding: nothing lost, nothing twice, each queue in its order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stratalog import MessageStore
from stratalog.pipeline import BadOption
from stratalog.pipeline.jobs import export, load, profile, reshard
from stratalog.pipeline.schema import MOST_MS
from stratalog.pipeline.sink_stores import existing
from stratalog.store import replace_store
from tests.seeds import draw_seed

from .stores import Row, make_store, scanned_rows

Key = Callable[[Row], Any]


def rows_in(path: Path) -> list[Row]:
    with MessageStore.open(path, read_only=True) as store:
        return scanned_rows(store)


def kept(rows: list[Row]) -> list[tuple[Any, ...]]:
    """What a copy has of each message, with its place in its queue."""
    firsts: dict[tuple[str, int], int] = {}
    for row in rows:
        firsts.setdefault(row[:2], row.offset)
    return [(*row[:2], row.offset - firsts[row[:2]], *row[4:]) for row in rows]


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_what_was_exported_can_be_loaded(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    expected = make_store(tmp_path / "store", draw_seed(), 500)
    export(spark, tmp_path / "store", tmp_path / "files", kind, partition_bytes="30k")
    done = load(spark, tmp_path / "files", tmp_path / "copy", kind, transaction="copy-1")
    assert (done.messages, done.payload_bytes) == (len(expected), sum(len(row.data) for row in expected))
    assert kept(rows_in(tmp_path / "copy")) == kept(expected)
    if kind == "parquet":
        load(spark, tmp_path / "files", tmp_path / "copy", kind, transaction="copy-1")  # again: nothing
        assert len(rows_in(tmp_path / "copy")) == len(expected)


def test_text_files_of_another_program_can_be_loaded(spark: SparkSession, tmp_path: Path) -> None:
    lines = [json.dumps({"data": f"line {at}", "key": str(at % 3), "unknown": 1}) for at in range(50)]
    (tmp_path / "in.json").write_text("\n".join(lines))
    load(spark, tmp_path / "in.json", tmp_path / "store", "json", topic="lines", queue_id=7, encoding="text")
    assert [(row[:3], row.key, row.data) for row in rows_in(tmp_path / "store")] == [
        (("lines", 7, at), b"%d" % (at % 3), b"line %d" % at) for at in range(50)
    ]


def test_column_that_few_lines_have_is_loaded(spark: SparkSession, tmp_path: Path) -> None:
    line: dict[str, Any] = {"topic": "t", "queue_id": 0, "data": "YQ=="}
    lines = [{**line, "offset": 999 - at} for at in range(1_000)]
    lines[777]["key"] = "a2V5"
    lines[778]["topic"] = None
    (tmp_path / "in.json").write_text("\n".join(map(json.dumps, lines)))
    load(spark, tmp_path / "in.json", tmp_path / "store", "json", topic="other")
    found = rows_in(tmp_path / "store")
    assert [(row.offset, row.key) for row in found if row.key is not None] == [(221, b"key")]  # 222 less one elsewhere
    assert [row.topic for row in found].count("other") == 1 and len(found) == 1_000


@pytest.mark.parametrize("shards", [None, 3])
def test_resharded_stores_have_each_live_message_in_its_order(
    spark: SparkSession, tmp_path: Path, shards: int | None
) -> None:
    make_store(tmp_path / "in" / "a", draw_seed(), 400)
    with MessageStore.open(tmp_path / "in" / "a") as store:
        store.trim("orders", 0, 10)
        store.delete_topic("bills")
        expected = scanned_rows(store)
    done = reshard(spark, tmp_path / "in", tmp_path / "out", shards)
    assert done.messages == len(expected)
    paths = existing(tmp_path / "out")
    found = [rows_in(path) for path in paths]
    assert len(paths) == (shards or 1)
    assert kept(sorted((row for rows in found for row in rows), key=lambda row: row[:3])) == kept(expected)
    names = [{row[:2] for row in rows} for rows in found]
    assert sum(map(len, names)) == len(set().union(*names))  # a queue is in one of them
    assert spark.read.format("stratalog").load(str(tmp_path / "out")).count() == len(expected)


def test_store_that_was_compacted_takes_the_place_of_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    make_store(path, draw_seed(), 1_500)
    with MessageStore.open(path) as store:
        first, end = store.queue_bounds("orders", 0)
        store.trim("orders", 0, before_offset=(first + end) // 2)
        store.append("orders", 1, b"late", deliver_at_ms=1_900_000_000_000)
        expected = scanned_rows(store)
    reshard(spark, path, tmp_path / "fresh")
    replace_store(path, tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()
    assert kept(rows_in(path)) == kept(expected)
    with MessageStore.open(path) as store:  # it goes on, and each queue begins at 0
        assert store.queue_bounds("orders", 0) == (0, end - (first + end) // 2)


def test_wrong_arguments_are_errors_that_say_what_is_right(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "store", 1, 5)
    (tmp_path / "in.csv").write_text("data,price\nYQ==,3\n")
    (tmp_path / "in.json").write_text('{"data": "YQ=="}\n')
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: load(spark, tmp_path / "in.json", tmp_path / "new", "avro"), "parquet, json, csv, not 'avro'"),
        (lambda: load(spark, tmp_path / "in.json", tmp_path / "new", "json"), "no column topic"),
        (lambda: load(spark, tmp_path / "in.csv", tmp_path / "new", "csv"), "a column 'price'"),
        (lambda: load(spark, tmp_path / "nothing", tmp_path / "new"), "there is no file"),
        (lambda: load(spark, tmp_path / "in.json", tmp_path / "new", "json", encoding="hex"), "base64 or text"),
        (lambda: reshard(spark, tmp_path / "store", tmp_path / "store"), "is there already"),
        (lambda: reshard(spark, tmp_path / "store", tmp_path / "new", segment_bytes=0), "segment_bytes is from 1"),
    ]
    for call, says in wrong:
        with pytest.raises(BadOption, match=says):
            call()
    assert not (tmp_path / "new").exists()


def test_message_for_never_is_not_due_in_a_copy(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path) as store:
        for at in (1 << 61, (1 << 62) - 1, 10**16, MOST_MS + 1, MOST_MS - 1, 1_900_000_000_123):
            store.append("t", 0, b"%d" % min(at, MOST_MS), deliver_at_ms=at)
    for kind in ("parquet", "json", "csv"):
        export(spark, path, tmp_path / kind, kind)
        load(spark, tmp_path / kind, tmp_path / f"from-{kind}", kind)
    reshard(spark, path, tmp_path / "from-reshard")
    for copy in tmp_path.glob("from-*"):
        assert [int(row.data) for row in rows_in(copy)] == [row.deliver_at for row in rows_in(copy)]
        assert len(rows_in(copy)) == 6
    [topic] = profile(spark, path).topics
    assert topic.delayed == 6 and topic.mean_delay_ms is not None and topic.mean_delay_ms > 1 << 59
    assert spark.read.format("stratalog").load(str(path)).where("year(deliver_at) = 9999").count() == 5
