"""`inspect_folder`: what a folder holds, as plain data, without changing it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreCorrupt, StoreUnusable, inspect_folder
from stratalog.store.format.layout import BLOCK_BYTES, DATA_START, SealRecord, align_up
from stratalog.store.testing import TunedConfig

from .helpers import crash_copy, has_settled, until

CONFIG = TunedConfig(lanes=2, segment_bytes=262_144, max_message_bytes=65_536, max_frame_bytes=65_536, recent_bytes=0)
TOPICS = 25
SIZE_BYTES = 2_500
MESSAGES = 400


def fill(store: MessageStore) -> None:
    for number in range(0, MESSAGES, 4):
        four = range(number, number + 4)
        store.append_batch([(f"topic-{n % TOPICS:02d}", n % 2, bytes([n % 256]) * SIZE_BYTES) for n in four])


@pytest.fixture(scope="module")
def original(shared_path: Path) -> Path:
    """A store of two lanes, copied while it was open (`crashed`) and closed (`closed`)."""
    with MessageStore.open(shared_path / "closed", CONFIG) as store:
        fill(store)
        crash_copy(shared_path / "closed", shared_path / "crashed")
    return shared_path


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of the closed store."""
    return Path(shutil.copytree(original / "closed", tmp_path / "store"))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for lane in inspect_folder(folder)["lanes"] for row in lane["segments"]]


def in_use(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["state"] != "spare"]


def test_closed_store_is_described_whole(folder: Path) -> None:
    found = inspect_folder(str(folder))
    assert json.loads(json.dumps(found)) == found
    assert len(bytes.fromhex(found["store_id"])) == 16
    assert (found["format_version"], len(found["lanes"])) == (1, 2)
    disk_bytes = sum(path.stat().st_size for path in folder.rglob("*.seg"))
    totals = {"messages": MESSAGES, "payload_bytes": MESSAGES * SIZE_BYTES, "disk_bytes": disk_bytes}
    assert found["totals"] == totals
    assert found["streams"] == 2 * TOPICS
    assert len(found["topics"]) == 20 and set(found["topics"]) <= {f"topic-{n:02d}" for n in range(TOPICS)}


def test_each_segment_has_its_figures(folder: Path) -> None:
    for lane in inspect_folder(folder)["lanes"]:
        rows = in_use(lane["segments"])
        assert [row["sequence"] for row in rows] == list(range(1, len(rows) + 1))
        assert {row["state"] for row in rows[:-1]} == {"sealed"}
        for row in rows:
            path = folder / row["file"]
            record = SealRecord.unpack(path.read_bytes()[BLOCK_BYTES:DATA_START])
            assert record is not None
            figures = (row["data_end"], row["entries"], row["footer_bytes"])
            assert figures == (record.data_end, record.entries, record.footer_bytes)
            assert row["capacity_bytes"] == 262_144 and row["problem"] is None
            assert row["frames"] > 0 and 0 < row["streams"] <= 2 * TOPICS
            assert 0 < row["time_min_ms"] <= row["time_max_ms"]
            assert (row["footer_bytes"] > 0) == (row["state"] == "sealed")


def test_states_of_a_store_that_was_closed_crashed_and_never_used(original: Path, tmp_path: Path) -> None:
    assert {row["state"] for row in in_use(rows_of(original / "closed"))} == {"sealed", "closed"}
    crashed = inspect_folder(original / "crashed")
    states = [in_use(lane["segments"])[-1]["state"] for lane in crashed["lanes"]]
    assert states == ["open", "open"]
    assert crashed["totals"]["messages"] == MESSAGES
    assert crashed["totals"]["payload_bytes"] == MESSAGES * SIZE_BYTES
    assert crashed["streams"] == 2 * TOPICS
    fresh = TunedConfig(segment_bytes=262_144, prewrite_bytes=500_000)
    MessageStore.open(tmp_path / "fresh", fresh).close()
    found = inspect_folder(tmp_path / "fresh")
    assert {row["state"] for row in found["lanes"][0]["segments"]} == {"spare"}
    assert (found["totals"]["messages"], found["streams"], found["topics"]) == (0, 0, [])
    assert found["totals"]["disk_bytes"] > 0


def bounds_of(found: dict[str, Any]) -> dict[tuple[str, int], Any]:
    return {(row["topic"], row["queue"]): (row["first"], row["next_offset"]) for row in found["queues"]}


def test_every_queue_has_the_bounds_that_the_store_gives(original: Path, folder: Path) -> None:
    closed, crashed = bounds_of(inspect_folder(folder)), bounds_of(inspect_folder(original / "crashed"))
    with MessageStore.open(folder, CONFIG) as store:
        assert closed == {key: store.queue_bounds(*key) for key in closed}
    assert len(closed) == 2 * TOPICS
    assert crashed == closed


def test_bounds_begin_where_retention_has_left_off(tmp_path: Path) -> None:
    config = replace(CONFIG, lanes=1, retention_bytes=300_000)
    with MessageStore.open(tmp_path / "store", config) as store:
        store.append("gone", 0, b"x")
        for _ in range(3):
            fill(store)
        until(lambda: has_settled(store))
    found = bounds_of(inspect_folder(tmp_path / "store"))
    assert found["gone", 0] == (1, 1)
    with MessageStore.open(tmp_path / "store", replace(config, retention_bytes=None)) as store:
        assert found == {key: store.queue_bounds(*key) for key in found}


def test_bounds_of_a_damaged_lane_are_none_and_of_the_others_right(folder: Path) -> None:
    before = bounds_of(inspect_folder(folder))
    path = folder / "lane-00" / "000000000002.seg"
    path.unlink()
    found = inspect_folder(folder)
    assert found["problems"] == [{"what": "a segment is missing", "file": str(path), "position": 0}]
    assert (found["totals"]["messages"], found["totals"]["payload_bytes"]) == (None, None)
    after = bounds_of(found)
    assert after.keys() == before.keys()
    known = {key: bounds for key, bounds in after.items() if bounds != (None, None)}
    assert 0 < len(known) < len(after)
    assert known.items() <= before.items()


def test_missing_lane_is_a_problem(folder: Path) -> None:
    shutil.rmtree(folder / "lane-01")
    found = inspect_folder(folder)
    assert found["problems"] == [{"what": "a lane is missing", "file": str(folder / "lane-01"), "position": 0}]
    assert found["totals"]["messages"] is None


def test_damaged_seal_record_before_a_sealed_segment_is_a_problem(folder: Path) -> None:
    path = folder / "lane-00" / "000000000001.seg"
    raw = bytearray(path.read_bytes())
    raw[BLOCK_BYTES + 9] ^= 1
    path.write_bytes(raw)
    (problem,) = inspect_folder(folder)["problems"]
    assert problem == {"what": "the segment's seal record is damaged", "file": str(path), "position": BLOCK_BYTES}


def test_nothing_on_disk_is_changed(folder: Path) -> None:
    def contents() -> dict[str, bytes]:
        paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "LOCK"]
        return {str(path): path.read_bytes() for path in paths}

    before = contents()
    inspect_folder(folder)
    assert contents() == before


def test_open_store_is_described_as_far_as_it_is_durable(folder: Path) -> None:
    closed = inspect_folder(folder)
    with MessageStore.open(folder, CONFIG) as store:
        beside = inspect_folder(folder)
        store.append("new", 5, b"x" * 77)
        more = inspect_folder(folder)
    assert (closed["open_in"], beside["open_in"]) == (None, str(os.getpid()))
    assert beside.keys() == closed.keys()
    for name in ("store_id", "format_version", "verdict", "streams", "topics", "queues", "problems"):
        assert beside[name] == closed[name], name
    for name in ("messages", "payload_bytes"):
        assert beside["totals"][name] == closed["totals"][name]
    assert more["totals"]["messages"] == closed["totals"]["messages"] + 1
    assert more["totals"]["payload_bytes"] == closed["totals"]["payload_bytes"] + 77
    rows = {row["file"]: row for lane in closed["lanes"] for row in lane["segments"]}
    for lane in beside["lanes"]:
        for row in lane["segments"]:
            before = rows[row["file"]]
            if row["state"] == "sealed":
                assert row == before
            for name in ("entries", "frames", "streams", "time_min_ms", "time_max_ms", "capacity_bytes"):
                assert row[name] == before[name], name


def test_records_of_the_store_are_no_messages_open_and_closed_alike(folder: Path) -> None:
    with MessageStore.open(folder, CONFIG) as store:
        store.trim("topic-00", 0, 2)
        fill(store)
        store.trim("topic-00", 0, 3)
        beside = inspect_folder(folder)
    closed = inspect_folder(folder)
    assert closed["totals"]["messages"] == beside["totals"]["messages"] == 2 * MESSAGES
    streams = [
        {row["file"]: row["streams"] for lane in found["lanes"] for row in lane["segments"] if row["frames"]}
        for found in (closed, beside)
    ]
    assert streams[0] == streams[1]


def test_what_is_no_store_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable):
        inspect_folder(tmp_path / "nowhere")
    (tmp_path / "letters").mkdir()
    with pytest.raises(StoreUnusable):
        inspect_folder(tmp_path / "letters")
    assert not list((tmp_path / "letters").iterdir())


@pytest.mark.parametrize(
    ("position", "what"),
    [
        (40, "the segment's header is damaged"),
        (None, "the footer is damaged"),
        (DATA_START, "a frame's header is damaged"),
    ],
)
def test_damage_is_said_and_unknown_figures_are_none(folder: Path, position: int | None, what: str) -> None:
    row = rows_of(folder)[0]
    path = folder / row["file"]
    raw = bytearray(path.read_bytes())
    footer_end = align_up(row["data_end"]) + row["footer_bytes"]
    raw[(position if position is not None else footer_end - 9)] ^= 4
    path.write_bytes(raw)
    found = inspect_folder(folder)
    problem = found["lanes"][0]["segments"][0]["problem"]
    assert problem.startswith(what) and str(path) in problem
    assert found["totals"]["payload_bytes"] is None
    assert all(other["problem"] is None for other in rows_of(folder)[1:])


def test_damaged_frame_of_a_closed_segment_is_said(folder: Path) -> None:
    row = next(row for row in rows_of(folder) if row["state"] == "closed")
    path = folder / row["file"]
    raw = bytearray(path.read_bytes())
    raw[DATA_START + 90] ^= 4
    path.write_bytes(raw)
    after = next(other for other in rows_of(folder) if other["file"] == row["file"])
    assert after["problem"] == f"a frame is damaged or missing in {path} at byte {DATA_START}"
    assert (after["entries"], after["frames"]) == (row["entries"], None)


def test_damaged_store_file_is_raised(folder: Path) -> None:
    raw = bytearray((folder / "STORE").read_bytes())
    raw[20] ^= 1
    (folder / "STORE").write_bytes(raw)
    with pytest.raises(StoreCorrupt):
        inspect_folder(folder)


HOUR_MS = 3_600_000
WAITING = {"orders": 4, "plain": 1}


def fill_delayed(store: MessageStore) -> None:
    """Two subscriptions; of the topic orders 4 delayed messages are pending, and of plain, that has no index, one."""
    now_ms = store._clock.wall_ms()
    sub = store.subscribe("orders", "a")
    store.subscribe("orders", "b", mode="ordered")
    store.append_batch([("orders", 0, b"ready") for _ in range(5)])
    later = [store.append("orders", n % 3, b"later", deliver_at_ms=now_ms + HOUR_MS) for n in range(6)]
    store.append("orders", 0, b"over", deliver_at_ms=now_ms - HOUR_MS)
    store.append("plain", 0, b"later", deliver_at_ms=now_ms + HOUR_MS)
    assert store.cancel_delayed("orders", 0, later[0])
    assert store.reschedule_delayed("orders", 1, later[1], now_ms + 9 * HOUR_MS)
    assert store.reschedule_delayed("orders", 2, later[2], now_ms - 1)
    sub.ack(sub.receive(1)[0])


def subscriptions_of(found: dict[str, Any]) -> dict[str, tuple[int, int]]:
    assert [(row["topic"], row["mode"], row["in_flight"]) for row in found["subscriptions"]] == [
        ("orders", "shared", None),
        ("orders", "ordered", None),
    ]
    return {row["name"]: (row["ready"], row["delayed"]) for row in found["subscriptions"]}


@pytest.mark.parametrize("state", ["closed", "crashed", "beside a writer"])
@pytest.mark.parametrize("is_sealed", [False, True], ids=["open segment", "sealed segments"])
def test_subscriptions_and_delayed_messages_are_counted(tmp_path: Path, state: str, is_sealed: bool) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        fill_delayed(store)
        if is_sealed:
            fill(store)
        beside = inspect_folder(store.path)
        crash_copy(store.path, tmp_path / "crashed")
    found = {
        "closed": inspect_folder(tmp_path / "store"),
        "crashed": inspect_folder(tmp_path / "crashed"),
        "beside a writer": beside,
    }[state]
    assert found["delayed"] == WAITING
    assert subscriptions_of(found) == {"a": (6, 4), "b": (7, 4)}
    assert json.loads(json.dumps(found)) == found


def test_a_delayed_message_that_is_acknowledged_is_not_delayed_for_its_subscription(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        fill_delayed(store)
        store.subscribe("orders", "a").skip_all()
    found = inspect_folder(tmp_path / "store")
    assert found["delayed"] == WAITING
    assert subscriptions_of(found) == {"a": (0, 0), "b": (7, 4)}


def test_trimmed_messages_are_not_delayed_any_more(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        fill_delayed(store)
        store.trim("orders", 1, store.queue_bounds("orders", 1)[1])
        store.delete_topic("plain")
    assert inspect_folder(tmp_path / "store")["delayed"] == {"orders": 2}


def test_a_writer_lists_the_same_delayed_messages_as_a_reader(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        fill_delayed(store)
        with MessageStore.open(store.path, read_only=True) as reader:
            seen = [info.backlog.delayed for info in reader.subscriptions()]
        assert [info.backlog.delayed for info in store.subscriptions("orders")] == seen == [4, 4]


def test_damage_that_may_hide_delayed_messages_makes_their_counts_unknown(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        fill_delayed(store)
        fill(store)
    path = tmp_path / "store" / "lane-00" / "000000000001.seg"
    raw = bytearray(path.read_bytes())
    raw[40] ^= 4
    path.write_bytes(raw)
    found = inspect_folder(tmp_path / "store")
    assert (found["subscriptions"], found["delayed"]) == (None, None)
    assert found["verdict"] != "healthy"
