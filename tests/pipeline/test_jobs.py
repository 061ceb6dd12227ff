"""Jobs: what they say of stores is what the stores' own calls say."""

from __future__ import annotations

import base64
import csv
import inspect
import json
import random
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from stratalog import MessageStore
from stratalog.pipeline import BadOption
from stratalog.pipeline.jobs import Profile, export, page_of, profile, verify
from stratalog.pipeline.jobs.profile_part import SKETCH, classes_of, groups
from stratalog.pipeline.progress import store_error_in, unwrapped, watched
from stratalog.store import InvalidMessage, StaleReceipt, StoreCorrupt, StoreError
from stratalog.store import errors as store_errors
from stratalog.store.errors import REPAIR_ADVICE
from stratalog.store.format.footer import HEADER_BYTES
from tests.seeds import draw_seed
from tests.store.helpers import flip_bit, frames_of, seal_of, segment_path

from .stores import SMALL, Row, fill, make_store, rows_of


@pytest.fixture(scope="module")
def store(shared_path: Path) -> tuple[Path, list[Row]]:
    """A closed store, and what it has."""
    path = shared_path / "store"
    return path, make_store(path, draw_seed())


# -- verify -------------------------------------------------------------------------------------------


def test_verify_counts_all_messages_of_all_stores(spark: SparkSession, tmp_path: Path) -> None:
    rows = {str(tmp_path / name): make_store(tmp_path / name, ord(name), 300) for name in "ab"}
    with MessageStore.open(tmp_path / "b") as store:  # a process has it open
        found = verify(spark, tmp_path)
        assert store.queue_bounds("nothing", 0) == (0, 0)
    assert found.ok and found.messages == 600
    assert [(row["store"], row["messages"], row["payload_bytes"]) for row in found.stores] == [
        (path, 300, sum(len(row.data) for row in expected)) for path, expected in rows.items()
    ]


def test_verify_lists_each_damaged_place(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "payload", 1)
    make_store(tmp_path / "unreadable", 2)
    victim = segment_path(tmp_path / "payload", 1)
    frame = next(one for one in frames_of(victim) if one.header.payload_bytes)
    flip_bit(victim, frame.payload_start)
    record = seal_of(victim)
    assert record is not None
    flip_bit(victim, record.footer_position + 200)  # it is made again of the frames, and told all the same
    flip_bit(segment_path(tmp_path / "unreadable", 2), 0)  # nobody knows where the log goes on
    tables = record.footer_position + HEADER_BYTES + 2 * 8  # after the checksums of two chunks
    found = verify(spark, tmp_path, partition_bytes="50k")
    assert not found.ok
    places = {(row["file"], row["position"]): row["what"] for row in found.damages}
    assert places.keys() == {
        (str(victim), frame.payload_start), (str(victim), tables),
        (str(segment_path(tmp_path / "unreadable", 2)), 0),
    }  # fmt: skip
    damages = {Path(row["store"]).name: (row["messages"], row["damages"]) for row in found.stores}
    assert damages == {"payload": (1_999, 2), "unreadable": (0, 1)}


# -- export -------------------------------------------------------------------------------------------


def test_exported_parquet_has_every_column_as_it_is(
    spark: SparkSession, store: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    path, expected = store
    done = export(spark, path, tmp_path / "out")
    assert done.messages == len(expected) and done.files >= 1 and done.size_bytes > 0
    table = pyarrow.parquet.read_table(tmp_path / "out")
    assert rows_of(table) == expected


def test_exported_json_and_csv_say_the_same(spark: SparkSession, store: tuple[Path, list[Row]], tmp_path: Path) -> None:
    path, expected = store
    wanted = [row for row in expected if row.topic == "orders"]
    for kind in ("json", "csv"):
        assert export(spark, path, tmp_path / kind, kind, topic="orders").messages == len(wanted)
    lines = [json.loads(line) for file in (tmp_path / "json").glob("*.json") for line in file.open(encoding="utf-8")]
    assert sorted((one["queue_id"], one["offset"], one["data"]) for one in lines) == [
        (row.queue_id, row.offset, base64.b64encode(row.data).decode()) for row in wanted
    ]
    keyed = {(one["queue_id"], one["offset"]): one["key"] for one in lines if "key" in one}
    assert keyed == {row[1:3]: base64.b64encode(row.key).decode() for row in wanted if row.key is not None}
    csv.field_size_limit(1 << 20)
    read = [row for file in (tmp_path / "csv").glob("*.csv") for row in csv.DictReader(file.open(encoding="utf-8"))]
    assert sorted((int(one["queue_id"]), int(one["offset"]), base64.b64decode(one["data"])) for one in read) == [
        (row.queue_id, row.offset, row.data) for row in wanted
    ]
    given = [one for one in read if one["properties"] != r"\N"]
    properties = {(int(one["queue_id"]), int(one["offset"])): one["properties"] for one in given}
    assert {at: tuple(sorted(json.loads(text).items())) for at, text in properties.items()} == {
        row[1:3]: row.properties for row in wanted if row.properties is not None
    }
    assert {len(one["timestamp"]) for one in read} <= {24, 29}  # milliseconds and a zone


def test_export_refuses_a_folder_that_is_there_and_an_unknown_format(
    spark: SparkSession, store: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    with pytest.raises(BadOption, match="is there already"):
        export(spark, store[0], tmp_path)
    with pytest.raises(BadOption, match="parquet, json, csv, not 'avro'"):
        export(spark, store[0], tmp_path / "new", "avro")
    with pytest.raises(BadOption, match="no option tipoc"):
        export(spark, store[0], tmp_path / "new", tipoc="orders")


# -- profile ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profiled(spark: SparkSession, store: tuple[Path, list[Row]]) -> Profile:
    """The profile of that store."""
    return profile(spark, store[0])


def test_profile_says_what_the_messages_are_like(profiled: Profile, store: tuple[Path, list[Row]]) -> None:
    rows, found = store[1], profiled
    assert [topic.topic for topic in found.topics] == [
        name for name, _ in sorted(Counter(row.topic for row in rows).items(), key=lambda item: (-item[1], item[0]))
    ]
    for topic in found.topics:
        own = [row for row in rows if row.topic == topic.topic]
        sizes, times = [len(row.data) for row in own], [row.timestamp for row in own]
        assert (topic.messages, topic.bytes) == (len(own), sum(sizes))
        assert (topic.least_bytes, topic.most_bytes) == (min(sizes), max(sizes))
        assert (topic.first_ms, topic.last_ms) == (min(times), max(times))
        queues = Counter(row.queue_id for row in own)
        assert {one["queue_id"]: one["messages"] for one in topic.queues} == queues
        assert topic.skew == pytest.approx(max(queues.values()) * len(queues) / len(own))
        keys = [row.key for row in own if row.key is not None]
        assert (topic.keyed, topic.keys) == (len(keys), len(set(keys)))
        due = [row.deliver_at - row.timestamp for row in own if row.deliver_at is not None]
        assert topic.delayed == len(due) == sum(count for _, count in topic.delays)
        assert sum(count for _, _, count in [(0, 0, one[1]) for one in topic.rate]) == len(own)
        assert dict(topic.sizes) == Counter(0 if size == 0 else 1 << (size.bit_length() - 1) for size in sizes)


def test_profile_reads_no_payload_and_estimates_many_keys(spark: SparkSession, tmp_path: Path) -> None:
    count = 20_000
    keys = [b"key-%d" % at for at in range(count)]
    lengths = np.array([len(key) for key in keys])
    with MessageStore.open(tmp_path, SMALL) as store:
        store.append_columns(
            [("t", 0)], np.zeros(count, np.int64), np.ones(count, np.int64), bytes(count),
            keys=(lengths, b"".join(keys)),
        )  # fmt: skip
    for path in (tmp_path / "lane-00").glob("*.seg"):
        for frame in frames_of(path)[:3]:
            flip_bit(path, frame.payload_start)
    [topic] = profile(spark, tmp_path).topics
    assert topic.keyed == count and abs(topic.keys - count) < 0.15 * count and topic.keys != SKETCH


def test_profile_of_a_long_time_has_few_steps_and_every_message(spark: SparkSession, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        now = 1_600_000_000_000
        store._lanes[0]._clock_ms = lambda: now
        for day in range(30):
            now = 1_600_000_000_000 + 86_400_000 * day
            fill(store, random.Random(day), 10)
    for topic in profile(spark, tmp_path).topics:
        assert len(topic.rate) <= 120 and topic.step_ms % 60_000 == 0
        assert sum(messages for _, messages, _ in topic.rate) == topic.messages


def test_profile_has_the_lag_of_each_subscription(spark: SparkSession, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.append_batch([("orders", at % 2, b"%d" % at) for at in range(10)])
        with store.subscribe("orders", "billing", start="earliest") as billing:
            for delivery in billing.receive(max_messages=4):
                billing.ack(delivery)
            [topic] = profile(spark, tmp_path).topics
        store.subscribe("orders", "mail", start="latest").close()
    assert topic.lags == {"billing": 6}
    found = profile(spark, tmp_path)
    [topic] = found.topics
    assert topic.lags == {"billing": 6, "mail": 0}
    assert "have not acknowledged" in page_of(found)


def test_page_is_well_formed_and_names_every_topic(profiled: Profile) -> None:
    found = profiled
    page = page_of(found)
    assert all(f"<h2>{topic.topic}</h2>" in page for topic in found.topics)
    pictures = page.split("<svg")[1:]
    assert len(pictures) >= 3 * len(found.topics)
    assert "<script" not in page and "http" not in page
    for picture in pictures:
        inside = picture.partition(">")[2].partition("</svg>")[0]
        assert "NaN" not in inside and "nan" not in inside
        ElementTree.fromstring(f"<g>{quoted(inside)}</g>")


def quoted(html: str) -> str:
    """XML wants quotes where HTML takes bare words."""
    names = ("x", "y", "fill", "text-anchor")
    for name in names:
        parts = html.split(f" {name}=")
        html = f" {name}=".join([parts[0], *[part if part[0] == '"' else _quoted(part) for part in parts[1:]]])
    return html


def _quoted(part: str) -> str:
    end = min(at for at in (part.find(" "), part.find(">"), part.find("/")) if at >= 0)
    return f'"{part[:end]}"{part[end:]}'


def test_groups_and_classes() -> None:
    values = np.array([5, 1, 5, 0, 8, 7])
    assert [(value, rows.tolist()) for value, rows in groups(values)] == [
        (0, [3]), (1, [1]), (5, [0, 2]), (7, [5]), (8, [4]),
    ]  # fmt: skip
    assert list(groups(np.empty(0, np.int64))) == []
    assert classes_of(np.array([0, 1, 2, 3, 4, 1023, 1024])).tolist() == [0, 1, 2, 2, 4, 512, 1024]


# -- progress and errors ------------------------------------------------------------------------------


def test_progress_is_told_while_tasks_run(spark: SparkSession) -> None:
    told: list[tuple[int, int]] = []
    with watched(spark, lambda done, total: told.append((done, total))):
        spark.range(4, numPartitions=4).selectExpr("java_method('java.lang.Thread', 'sleep', 800L)").collect()
    assert told and all(0 <= done <= total == 4 for done, total in told)


def test_error_of_the_store_is_raised_as_what_it_was(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path, 1, 100)
    frame = next(one for one in frames_of(segment_path(tmp_path, 1)) if one.header.payload_bytes)
    flip_bit(segment_path(tmp_path, 1), frame.payload_start)
    with pytest.raises(StoreCorrupt, match=r"do not match their checksum in .*seg at byte \d+") as raised, unwrapped():
        spark.read.format("stratalog").load(str(tmp_path)).count()
    assert raised.value.file == str(segment_path(tmp_path, 1)) and raised.value.position > frame.header.position
    with pytest.raises(Exception, match="nonsense"), unwrapped():
        spark.sql("select nonsense")


def test_error_in_a_text_of_spark() -> None:
    text = "Traceback\nstratalog.store.errors.InvalidMessage: it is wrong\n SQLSTATE: 38000"
    found = store_error_in(text)
    assert isinstance(found, InvalidMessage) and str(found) == "it is wrong"
    assert store_error_in("stratalog.somewhere.Surprise: no") is None
    assert store_error_in("java.lang.Error: no") is None


@pytest.mark.parametrize("advice", [REPAIR_ADVICE, "Move it, with its shards, to that store."])
@pytest.mark.parametrize("file", ["/d/lane-00/000000000001.seg", "/a folder in /b at byte 3. x/STORE"])
def test_damage_in_a_text_of_spark_has_its_place(file: str, advice: str) -> None:
    told = StoreCorrupt("a byte in a frame is damaged", file, 8192, advice)
    found = store_error_in(f"Job aborted\nstratalog.store.errors.StoreCorrupt: {told}\n\tat org.apache")
    assert isinstance(found, StoreCorrupt) and str(found) == str(told)
    assert (found.what, found.file, found.position) == (told.what, told.file, told.position)


KINDS = [
    one
    for one in vars(store_errors).values()
    if inspect.isclass(one) and issubclass(one, StoreError) and one.__name__[0] != "_"
]


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_out_of_a_text_of_spark_lacks_an_attribute(kind: type[StoreError]) -> None:
    """Where the sentence does not have them, it is an error without any."""
    found = store_error_in(f"stratalog.store.errors.{kind.__name__}: of another version")
    assert str(found) == "of another version"
    for name in ("what", "file", "position", "first", "next_offset", "receipts"):
        is_there = (name, kind) in (("receipts", StaleReceipt), ("position", InvalidMessage))
        assert hasattr(found, name) is is_there
        assert not getattr(found, name, None)
