"""Where a sink writes to: what is there is never lost, and what cannot be a store is told before the work begins."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from stratalog.pipeline import sink_stores
from stratalog.pipeline.errors import BadOption, PipelineError
from stratalog.pipeline.sink import BatchSink, StreamSink, abort_rows, commit_rows, write_rows
from stratalog.pipeline.sink_columns import columns_of
from stratalog.pipeline.sink_stores import SinkOptions, existing, sink_options, stores_at, stores_in_place_of
from stratalog.pipeline.stream import stream_options
from stratalog.store import (
    InvalidMessage,
    MessageStore,
    ReplayDiffers,
    ScanPlanner,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreUnusable,
    commit_shards,
    note_shards,
    noted_shards,
    put_store,
    replace_store,
)
from tests.faults.mounts import tmpfs
from tests.seeds import draw_seed
from tests.store.helpers import flip_bit
from tests.store.killing import killed_at


def made(path: Path, *, rows: int = 1) -> Path:
    with MessageStore.open(path) as store:
        for _ in range(rows):
            store.append("t", 0, b"x")
    return path


def batch(**columns: object) -> pa.RecordBatch:
    given = {"topic": pa.array(["t"]), "queue_id": pa.array([0]), "data": pa.array([b"x"]), **columns}
    return pa.RecordBatch.from_pydict(given)


@pytest.mark.parametrize("path", ["folder", "store"])
def test_what_is_no_store_is_not_lost_by_an_overwrite(tmp_path: Path, path: str) -> None:
    place = tmp_path / path
    if path == "store":
        made(place)
    made(place / "inner")
    (place / "precious.txt").write_text("x")
    with pytest.raises(StoreUnusable, match=r"precious.txt|inner"):
        stores_in_place_of(sink_options({"path": str(place)}))
    fresh = made(tmp_path / "fresh")
    with pytest.raises(StoreUnusable, match=r"precious.txt|inner"):
        replace_store(place, fresh)
    assert (place / "precious.txt").read_text() == "x"
    assert fresh.exists()


def test_a_store_with_all_that_it_may_have_can_be_replaced(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        store.subscribe("t", "s")
        store.append("t", 0, b"x", deliver_at_ms=1 << 41)
        (tmp_path / "s" / "quarantine").mkdir()
        options = sink_options({"path": str(tmp_path / "s")})
        with pytest.raises(StoreLocked):
            stores_in_place_of(options)
    commit_rows(
        [write_rows(iter([batch()]), stores_at(options), "x")], stores_at(options), "x", None, keep=True, wait_ms=0
    )
    replace_store(tmp_path / "s", stores_in_place_of(options))
    with MessageStore.open(tmp_path / "s") as store:
        assert store.topics() == []


def test_the_check_before_an_overwrite_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError):
        stores_in_place_of(sink_options({"path": str(tmp_path / "file")}))
    assert os.listdir(tmp_path) == ["file"]


def test_two_drivers_that_make_the_same_store_at_once_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the store of the first would be replaced, with what was committed to it meanwhile."""
    options = sink_options({"path": str(tmp_path / "s")})
    found: list[list[Path]] = []
    all_have_made, make = threading.Barrier(6), sink_stores.make_stores
    first_has_committed = threading.Event()

    def make_with_others(options: SinkOptions) -> Path:
        fresh = make(options)
        all_have_made.wait(60)
        return fresh

    def put_one_after_the_other(path: Path, fresh: Path) -> bool:
        if not is_first.acquire(blocking=False):
            assert first_has_committed.wait(60)
        return put_store(path, fresh)

    is_first = threading.Lock()
    monkeypatch.setattr(sink_stores, "make_stores", make_with_others)
    monkeypatch.setattr(sink_stores, "put_store", put_one_after_the_other)

    def drive(number: int) -> None:
        stores = stores_at(options)
        commit_rows([write_rows(iter([batch()]), stores, "x")], stores, f"n{number}", None, keep=True, wait_ms=60_000)
        first_has_committed.set()
        found.append(stores)

    drivers = [threading.Thread(target=drive, args=(number,)) for number in range(6)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert found == [[tmp_path / "s"]] * 6
    with MessageStore.open(tmp_path / "s") as store:
        assert store.queue_bounds("t", 0) == (0, 6)
    assert os.listdir(tmp_path) == ["s"]


def test_what_a_killed_overwrite_has_left_is_removed_by_a_later_one(tmp_path: Path) -> None:
    options = sink_options({"path": str(made(tmp_path / "s"))})
    left, young = stores_in_place_of(options), stores_in_place_of(options)
    long_ago = time.time() - 3 * 86_400
    for path in [left, *left.rglob("*")]:
        os.utime(path, (long_ago, long_ago))
    fresh = stores_in_place_of(options)
    assert sorted(path for path in tmp_path.iterdir() if path.name != "s") == sorted([young, fresh])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"lanes": "0"}, "lanes is from 1 to 64"),
        ({"wait_ms": "-5"}, "wait_ms is from 0"),
        ({"wait_ms": "9" * 30}, "wait_ms is from 0"),
        ({"shards": "-1"}, "shards is from 1"),
        ({"transaction": ""}, "transaction is a name"),
        ({"transaction": " "}, "transaction is a name"),
        ({"query": "q" * 256}, "query is a name"),
        ({"transaction": "a", "query": "b"}, "one of the two"),
        ({"max_message_bytes": "0"}, "max_message_bytes"),
    ],
)
def test_options_that_say_nothing_or_contradict_are_refused(tmp_path: Path, options: dict[str, str], what: str) -> None:
    with pytest.raises(StoreError, match=what):
        sink_options({"path": str(tmp_path / "s"), **options})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("shards", [None, 2])
def test_another_number_of_lanes_than_the_stores_have_is_refused(tmp_path: Path, shards: int | None) -> None:
    path, many = str(tmp_path / "s"), {} if shards is None else {"shards": str(shards)}
    found = stores_at(sink_options({"path": path, "lanes": "3", **many}))
    assert stores_at(sink_options({"path": path, "lanes": "3"})) == found
    assert stores_at(sink_options({"path": path})) == found
    with pytest.raises(BadOption, match="has 3 lanes for good, and lanes is 1"):
        stores_at(sink_options({"path": path, "lanes": "1"}))
    with MessageStore.open(stores_in_place_of(sink_options({"path": path, "lanes": "1"}))) as store:
        assert store.stats()["lanes"] == 1


def test_a_batch_write_with_a_checkpoint_is_refused(tmp_path: Path) -> None:
    schema = StructType([StructField("topic", StringType()), StructField("queue_id", IntegerType())])
    schema.add("data", BinaryType())
    options = {"path": str(tmp_path / "s"), "checkpointLocation": "c"}
    with pytest.raises(BadOption, match="no stream has no checkpointlocation"):
        BatchSink(options, schema, False)
    assert os.listdir(tmp_path) == []
    StreamSink(options, schema, False)


@pytest.mark.parametrize("inside", ["incoming/x", "lane-00", "sub/deep"])
def test_a_path_inside_of_a_store_is_refused(tmp_path: Path, inside: str) -> None:
    made(tmp_path / "s")
    with pytest.raises(BadOption, match="inside the store"):
        sink_options({"path": str(tmp_path / "s" / inside)})


@pytest.mark.parametrize("path", ["file", "file/deep", "foreign", "/proc/nothing/here"])
def test_a_path_that_cannot_be_a_store_is_an_error_that_says_so(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "a").write_text("x")
    with pytest.raises(StoreError, match=r"give another path|cannot be used"):
        stores_at(sink_options({"path": str(tmp_path / path)}))
    assert sorted(os.listdir(tmp_path)) == ["file", "foreign"]
    assert existing(tmp_path) == []


def test_a_message_above_the_limit_can_be_allowed(tmp_path: Path) -> None:
    large = batch(data=pa.array([bytes(5 << 20)]))
    for options, fits in (({}, False), ({"max_message_bytes": str(8 << 20)}, True)):
        chosen = sink_options({"path": str(tmp_path / "s"), **options})
        stores = stores_at(chosen)
        if not fits:
            with pytest.raises(StoreError, match="max_message_bytes"):
                write_rows(iter([large]), stores, "x", chosen.config)
            continue
        commit_rows([write_rows(iter([large]), stores, "x", chosen.config)], stores, "x", None, keep=True, wait_ms=0)
    with MessageStore.open(tmp_path / "s") as store:
        assert len(store.read("t", 0, 0)[0].data) == 5 << 20


def test_a_property_without_a_value_is_refused_with_its_row(tmp_path: Path) -> None:
    kind = pa.map_(pa.string(), pa.string())
    with pytest.raises(InvalidMessage, match="row 1 of a batch has a property 'b' without a value"):
        columns_of(
            batch(
                topic=pa.array(["t"] * 2), queue_id=pa.array([0] * 2), data=pa.array([b"x"] * 2),
                properties=pa.array([[("a", "1")], [("a", "1"), ("b", None)]], kind),
            )
        )  # fmt: skip


@pytest.mark.parametrize("offset", ["1.5", "true", '"3"', "null"])
def test_an_offset_to_start_at_is_an_integer(tmp_path: Path, offset: str) -> None:
    made(tmp_path / "s")
    with pytest.raises(BadOption, match="starting is JSON"):
        stream_options({"path": str(tmp_path / "s"), "starting": f'{{"t": {{"0": {offset}}}}}'})


@pytest.mark.parametrize("missing", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
def test_a_folder_of_stores_that_lost_some_takes_no_rows(tmp_path: Path, missing: tuple[int, ...]) -> None:
    """Queues would be in other stores than before, and have two offsets 0."""
    stores_at(sink_options({"path": str(tmp_path / "s"), "shards": "3"}))
    names = [f"shard-000{number}" for number in missing]
    for name in names:
        (tmp_path / "s" / name).rename(tmp_path / name)
    with pytest.raises(BadOption, match=f"a folder of 3 stores, and {names[0]} is not there"):
        stores_at(sink_options({"path": str(tmp_path / "s")}))
    for name in names:
        (tmp_path / name).rename(tmp_path / "s" / name)
    assert len(stores_at(sink_options({"path": str(tmp_path / "s")}))) == 3
    made(tmp_path / "s" / "other")
    with pytest.raises(BadOption, match="other is none of them"):
        stores_at(sink_options({"path": str(tmp_path / "s")}))


def test_a_folder_of_stores_without_a_noted_number_is_taken_as_it_is(tmp_path: Path) -> None:
    """It was made before the number was noted: only a gap between its stores tells that one is gone."""
    path = tmp_path / "s"
    stores_at(sink_options({"path": str(path), "shards": "3"}))
    (path / "SHARDS").unlink()
    assert len(stores_at(sink_options({"path": str(path)}))) == 3
    (path / "shard-0001").rename(tmp_path / "shard-0001")
    with pytest.raises(BadOption, match="shard-0001 is not there"):
        stores_at(sink_options({"path": str(path)}))


def test_a_number_that_no_folder_of_stores_can_have_is_refused_and_leaves_no_note(tmp_path: Path) -> None:
    for count in (0, -1, 1 << 32, True, 2.0, "2"):
        with pytest.raises(InvalidMessage):
            note_shards(tmp_path, count)  # type: ignore[arg-type]
    assert noted_shards(tmp_path) is None
    with pytest.raises(StoreUnusable):
        note_shards(tmp_path / "missing", 2)
    note_shards(tmp_path, 2)
    assert noted_shards(tmp_path) == 2


def test_a_damaged_number_of_stores_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "s"
    stores_at(sink_options({"path": str(path), "shards": "2"}))
    (path / "SHARDS").write_bytes(bytes(4096))
    with pytest.raises(StoreCorrupt, match="if all are there, remove this file"):
        stores_at(sink_options({"path": str(path)}))
    (path / "SHARDS").unlink()
    assert len(stores_at(sink_options({"path": str(path)}))) == 2


def test_a_folder_of_stores_can_be_overwritten_and_has_its_new_number(tmp_path: Path) -> None:
    path = tmp_path / "s"
    stores_at(sink_options({"path": str(path), "shards": "3"}))
    replace_store(path, stores_in_place_of(sink_options({"path": str(path), "shards": "2"})))
    assert len(stores_at(sink_options({"path": str(path)}))) == 2
    replace_store(path, stores_in_place_of(sink_options({"path": str(path)})))
    assert stores_at(sink_options({"path": str(path)})) == [path]


def test_one_store_of_such_a_folder_takes_rows_by_itself(tmp_path: Path) -> None:
    stores_at(sink_options({"path": str(tmp_path / "s"), "shards": "2"}))
    alone = tmp_path / "s" / "shard-0001"
    assert stores_at(sink_options({"path": str(alone)})) == [alone]


def test_an_overwrite_that_is_killed_at_any_step_leaves_the_old_store_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "out" / "s"
    chosen = sink_options({"path": str(path), "shards": "2"})

    def overwrite() -> None:
        fresh = stores_in_place_of(chosen)
        stores = existing(fresh)
        commit_rows([write_rows(iter([batch(data=pa.array([b"new"]))]), stores, "x")], stores, "x", None, keep=False,
                    wait_ms=0)  # fmt: skip
        replace_store(path, fresh)

    def found() -> list[bytes]:
        datas = []
        for folder in existing(path):
            with MessageStore.open(folder) as store:
                datas += [one.data for topic in store.topics() for one in store.read(topic, 0, 0)]
        return datas

    made(path)
    steps = killed_at(-1, overwrite, tmp_path / "steps")
    assert found() == [b"new"] and len(existing(path)) == 2
    for step in random.Random(draw_seed()).sample(range(steps), 6):
        shutil.rmtree(path.parent)
        made(path)
        killed_at(step, overwrite, tmp_path / "steps")
        assert found() in ([b"x"], [b"new"])
        overwrite()
        assert found() == [b"new"]


def test_what_killed_tasks_of_a_failed_write_have_left_is_removed(tmp_path: Path) -> None:
    path = made(tmp_path / "s")
    for name in ("write-1", "write-12"):
        write_rows(iter([batch()]), [path], name)
    shards = write_rows(iter([batch()]), [path], "write-1")
    commit_shards(path, shards.shards[str(path)], name="committed all the same", wait_ms=0)
    abort_rows([], [path], "write-1")
    assert [name[:9] for name in sorted(os.listdir(path / "incoming"))] == ["LOCK", "write_12-"]
    with MessageStore.open(path) as store:
        assert store.queue_bounds("t", 0) == (0, 2)


def test_a_store_on_a_read_only_file_system_is_refused_before_the_work_begins(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "mount", "24m") as folder:
        made(folder / "s")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        with pytest.raises(StoreUnusable, match="cannot be written to"):
            stores_at(sink_options({"path": str(folder / "s")}))
        with pytest.raises(StoreError, match="Read-only file system"):
            stores_in_place_of(sink_options({"path": str(folder / "s")}))


def test_a_full_disk_is_an_error_and_what_is_there_stays(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "mount", "24m") as folder:
        path = made(folder / "s")
        large = [batch(data=pa.array([bytes(4 << 20)])) for _ in range(8)]
        with pytest.raises(StoreFull, match="No space left"):
            write_rows(iter(large), [path], "x")
        assert os.listdir(path / "incoming") in ([], ["LOCK"])
        commit_rows([write_rows(iter([batch()]), [path], "y")], [path], "y", None, keep=True, wait_ms=0)
        with MessageStore.open(path) as store:
            assert store.queue_bounds("t", 0) == (0, 2)


SCHEMA = StructType(
    [StructField("topic", StringType()), StructField("queue_id", IntegerType()), StructField("data", BinaryType())]
)


def stream_sink(path: Path, **options: str) -> StreamSink:
    return StreamSink({"path": str(path), "wait_ms": "0", **options}, SCHEMA, overwrite=False)


def committed(sink: StreamSink, number: int, *batches: pa.RecordBatch) -> None:
    """A micro-batch of one task, as Spark does it."""
    sink.commit([write_rows(iter(batches), sink._stores, "stream", sink._options.config)], number)


def test_rows_of_a_stream_without_a_name_are_an_error_and_not_dropped(tmp_path: Path) -> None:
    sink = stream_sink(tmp_path / "s")
    committed(sink, 0)  # no rows: there is nothing to name
    with pytest.raises(PipelineError, match=r"batch 1 has no name and was not written; .* the option query"):
        committed(sink, 1, batch())


def test_micro_batch_without_rows_leaves_nothing(tmp_path: Path) -> None:
    made(tmp_path)
    sink = stream_sink(tmp_path, query="q")
    with MessageStore.open(tmp_path) as store, ScanPlanner(tmp_path) as planner:
        committed(sink, 0, batch())
        store.attach_pending()
        end = planner.end()
        for number in (1, 2):
            committed(sink, number)
        store.attach_pending()
        assert planner.end() == end
        assert [*(tmp_path / "incoming").iterdir()] == [tmp_path / "incoming" / "LOCK"]
        committed(sink, 3, batch())
        store.attach_pending()
        assert store.queue_bounds("t", 0) == (0, 3)


@pytest.mark.parametrize("is_open", [True, False])
def test_micro_batch_that_had_rows_or_none_is_refused_if_it_comes_again_otherwise(
    tmp_path: Path, is_open: bool
) -> None:
    made(tmp_path)
    sink = stream_sink(tmp_path, query="q")
    with MessageStore.open(tmp_path) if is_open else nullcontext():
        committed(sink, 0, batch())
        committed(sink, 1)
        committed(sink, 2, batch())
        for number, rows, says in ((0, [], "other rows"), (2, [], "other rows"), (1, [batch()], "after batch 2")):
            with pytest.raises(ReplayDiffers, match=says):
                committed(sink, number, *rows)
        for number, rows in ((0, [batch()]), (1, []), (2, [batch()])):
            committed(sink, number, *rows)  # these are replays
    with MessageStore.open(tmp_path) as store:
        assert store.queue_bounds("t", 0) == (0, 3)


def test_micro_batch_without_rows_is_refused_where_nobody_can_tell_what_it_had(tmp_path: Path) -> None:
    made(tmp_path)
    sink = stream_sink(tmp_path, query="q")
    for number in range(2, 68):
        committed(sink, number, batch())
    with pytest.raises(ReplayDiffers, match="after batch 67"):
        committed(sink, 2)


def test_micro_batch_with_rows_is_noted_in_each_store_of_a_folder(tmp_path: Path) -> None:
    sink = stream_sink(tmp_path / "s", query="q", shards="3")
    committed(sink, 0, batch())
    for queue in range(1, 9):
        with pytest.raises(ReplayDiffers, match="other rows"):
            committed(sink, 0, batch(queue_id=pa.array([queue])))
    assert sum(_rows_in(path) for path in sink._stores) == 1


def _rows_in(path: Path) -> int:
    with MessageStore.open(path, read_only=True) as store:
        return sum(map(len, store.scan()))


def test_write_to_several_stores_that_failed_in_between_adds_the_rest_when_it_comes_again(tmp_path: Path) -> None:
    stores = stores_at(sink_options({"path": str(tmp_path / "s"), "shards": "2"}))
    rows = [batch(queue_id=pa.array([queue])) for queue in range(20)]
    written = write_rows(iter(rows), stores, "load-1")
    [shard] = written.shards[str(stores[1])]
    flip_bit(stores[1] / "incoming" / shard.folder / f"{shard.file}.index", 100)
    with pytest.raises(StoreCorrupt):
        commit_rows([written], stores, "load-1", None, keep=True, wait_ms=0)
    first = _rows_in(stores[0])
    assert first > 0 == _rows_in(stores[1])
    again = write_rows(iter(rows), stores, "load-1")
    commit_rows([again], stores, "load-1", None, keep=True, wait_ms=0)
    assert _rows_in(stores[0]) == first and _rows_in(stores[1]) == 20 - first
