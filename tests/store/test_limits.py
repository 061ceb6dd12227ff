"""Full disks, huge messages, wrong types: a clear error each, nothing lost, and the store works on."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from store import (
    InvalidMessage,
    InvalidTopic,
    MessageStore,
    MessageTooLarge,
    OffsetOutOfRange,
    StoreError,
    StoreFull,
)

from .helpers import contents, run_child, tiny

GIB = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, tiny()) as opened:
        opened.append("t", 1, b"first")
        yield opened


def works(store: MessageStore) -> None:
    """The store is usable."""
    offset = store.append("works", 0, b"yes")
    assert store.read("works", 0, offset)[0].data == b"yes"


# -- size ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["append", "submit", "append_batch"])
def test_message_of_2_gib_is_refused_without_a_copy(store: MessageStore, way: str) -> None:
    huge = memoryview(mmap.mmap(-1, 2 * GIB))
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge, match="max_message_bytes"):
            if way == "append_batch":
                store.append_batch([("t", 1, b"good"), ("t", 1, huge)])  # type: ignore[list-item]
            else:
                getattr(store, way)("t", 1, huge)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    works(store)
    assert store.queue_bounds("t", 1) == (0, 1)


def test_view_with_wide_items_counts_its_bytes(store: MessageStore) -> None:
    """len() of such a view is its number of items, not of bytes."""
    wide = memoryview(bytes(512 << 10)).cast("Q")
    assert len(wide) == 64 << 10
    with pytest.raises(MessageTooLarge):
        store.append("t", 1, wide)
    with pytest.raises(MessageTooLarge):
        store.append_batch([("t", 1, wide)])  # type: ignore[list-item]


def test_limit_is_inclusive_and_counts_key_and_properties(store: MessageStore) -> None:
    limit = store.config.max_message_bytes
    assert store.append("t", 0, bytes(limit)) == 0
    with pytest.raises(MessageTooLarge):
        store.append("t", 0, bytes(limit + 1))
    with pytest.raises(MessageTooLarge):
        store.append("t", 0, bytes(limit), key=b"k")
    with pytest.raises(MessageTooLarge):
        store.append("t", 0, b"", properties={"p": "x" * limit})
    assert store.append("t", 0, b"", key=bytes(limit)) == 1
    assert store.read("t", 0, 1)[0].key == bytes(limit)


def test_message_larger_than_a_segment_is_taken(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(max_message_bytes=1 << 20)) as store:
        datas = [bytes([index]) * (300_000 + index) for index in range(5)]
        for index, data in enumerate(datas):
            assert store.append("t", 0, data) == index
        assert [message.data for message in store.read("t", 0, 0, 10, 1 << 30)] == datas
    with MessageStore.open(tmp_path, tiny()) as store:
        assert [message.data for message in store.read("t", 0, 0, 10, 1 << 30)] == datas


# -- wrong types --------------------------------------------------------------------------------------

BAD_DATA = ["text", None, 1, 1.5, [1, 2], {"a": 1}, object()]
BAD_NAMES: list[tuple[Any, Any]] = [
    ("", 0), ("x" * 1000, 0), ("a\nb", 0), ("../\0", 0), ("\ud800", 0), (b"t", 0), (None, 0), (1, 0), (["t"], 0),
    ("t", -1), ("t", -(1 << 40)), ("t", 1 << 31), ("t", 1 << 80), ("t", "1"), ("t", None), ("t", 1.0), ("t", True),
    ("t", [1]), ("t", 1 + 0j),
]  # fmt: skip


@pytest.mark.parametrize("data", BAD_DATA, ids=lambda data: type(data).__name__)
def test_data_of_a_wrong_type_is_refused(store: MessageStore, data: Any) -> None:
    for use in (store.append, store.submit):
        with pytest.raises(InvalidMessage, match="data"):
            use("t", 1, data)
    with pytest.raises(InvalidMessage, match="data"):
        store.append_batch([("t", 1, data)])
    works(store)


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_bad_name_is_refused_everywhere(store: MessageStore, name: tuple[Any, Any]) -> None:
    """Also where a queue of the same hash exists: ("t", 1) does."""
    for use in (
        lambda: store.append(*name, b""),
        lambda: store.submit(*name, b""),
        lambda: store.append_batch([(*name, b"")]),
        lambda: store.read(*name),
        lambda: store.read_batch(*name),
        lambda: store.get_range(*name, 0, 1),
        lambda: store.queue_bounds(*name),
    ):
        with pytest.raises(InvalidTopic):
            use()
    works(store)
    assert store.queue_bounds("t", 1) == (0, 1)


@pytest.mark.parametrize(
    "facts",
    [
        {"key": "text"}, {"key": 1}, {"key": bytearray(b"k")}, {"properties": []}, {"properties": "a=b"},
        {"properties": {"a": 1}}, {"properties": {1: "a"}}, {"properties": {"a": None}}, {"deliver_at_ms": -1},
        {"deliver_at_ms": 1.5}, {"deliver_at_ms": "now"}, {"deliver_at_ms": True}, {"deliver_at_ms": 1 << 63},
    ],
    ids=ascii,
)  # fmt: skip
def test_facts_of_a_wrong_type_are_refused(store: MessageStore, facts: dict[str, Any]) -> None:
    for use in (store.append, store.submit):
        with pytest.raises(InvalidMessage, match=next(iter(facts))):
            use("t", 1, b"", **facts)
    works(store)


@pytest.mark.parametrize(
    "batch", [None, 5, "abc", [None], [()], [("t", 1)], [("t", 1, b"", 4)], [b"abc"], [{}]], ids=ascii
)
def test_batch_of_a_wrong_shape_is_refused(store: MessageStore, batch: Any) -> None:
    with pytest.raises(StoreError):
        store.append_batch(batch)
    works(store)
    assert store.queue_bounds("t", 1) == (0, 1)


@pytest.mark.parametrize("number", ["0", None, 1.0, True, -1, [0]], ids=ascii)
def test_numbers_of_a_read_are_checked(store: MessageStore, number: Any) -> None:
    for use in (
        lambda: store.read("t", 1, number),
        lambda: store.read("t", 1, 0, number),
        lambda: store.read("t", 1, 0, 1, number),
        lambda: store.read_batch("t", 1, number),
        lambda: store.read_batch("t", 1, 0, number),
        lambda: store.read_batch("t", 1, 0, 1, number),
        lambda: store.get_range("t", 1, number, 1),
        lambda: store.get_range("t", 1, 0, number),
    ):
        with pytest.raises(StoreError):
            use()
    works(store)


@pytest.mark.parametrize("wait_ms", ["10", [], {}], ids=ascii)
def test_wait_of_a_wrong_type_is_refused(store: MessageStore, wait_ms: Any) -> None:
    with pytest.raises(StoreError):
        store.read("t", 1, 1, wait_ms=wait_ms)


def test_huge_numbers_are_answered(store: MessageStore) -> None:
    assert len(store.read("t", 1, 0, 1 << 70, 1 << 70)) == 1
    assert len(store.read_batch("t", 1, 0, 1 << 70, 1 << 70)) == 1
    assert store.get_range("t", 1, 0, 1 << 70) == {0: b"first"}
    assert store.get_range("t", 1, 1 << 70, 1) == {}
    with pytest.raises(OffsetOutOfRange):
        store.read("t", 1, 1 << 70)


# -- full disks ---------------------------------------------------------------------------------------

LIMITED = """
import json, os, resource, signal, sys
from store import MessageStore, StoreConfig, StoreError, StoreFull, StorePoisoned
path, limit, prepared, durability = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def settings(segment_bytes):
    return StoreConfig(segment_bytes=segment_bytes, max_frame_bytes=65536, recent_bytes=0, durability=durability)
store = MessageStore.open(path, settings(65536))
told = {}
for index in range(prepared):
    told[store.append("t", 0, b"%d" % index * 100)] = "%d" % index
if "grow" in sys.argv:
    store.close()
    store = MessageStore.open(path, settings(1 << 20))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
errors = []
for index in range(prepared, prepared + 400):
    try:
        told[store.append("t", 0, b"%d" % index * 100)] = "%d" % index
    except StoreError as error:
        errors.append(type(error).__name__)
        if len(errors) == 5:
            break
found = {}
at = 0
while at < store.queue_bounds("t", 0)[1]:
    for message in store.read("t", 0, at, 100):
        found[message.offset] = message.data
        at = message.offset + 1
bad = [offset for offset, text in told.items() if found.get(offset) != text.encode() * 100]
after = []
if "free" in sys.argv:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        told[store.append("t", 0, b"after" * 100)] = "after"
        after.append("appended")
    except StoreError as error:
        after.append(type(error).__name__)
try:
    store.close()
    closed = "closed"
except StoreError as error:
    closed = type(error).__name__
print(json.dumps({"told": told, "errors": errors, "bad": bad, "closed": closed, "after": after}))
"""


def run_limited(path: Path, *arguments: object) -> dict[str, Any]:
    done = run_child(LIMITED, str(path), *map(str, arguments))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["bad"] == [], "reads of what was acknowledged must go on"
    return found


def check_recovered(path: Path, told: dict[str, str]) -> None:
    with MessageStore.open(path, tiny()) as store:
        found = contents(store, [("t", 0)])["t", 0]
        assert {offset: found.get(int(offset)) for offset in told} == {
            offset: text.encode() * 100 for offset, text in told.items()
        }
        assert store.append("t", 0, b"on") == len(found)


@pytest.mark.parametrize("durability", ["force", "os"])
def test_no_room_for_a_segment_is_store_full_and_the_store_works_on(tmp_path: Path, durability: str) -> None:
    """Files may not reach the size of the next segment: it cannot be made."""
    found = run_limited(tmp_path, 200_000, 5, durability, "free", "grow")
    assert set(found["errors"]) == {"StoreFull"}
    assert found["after"] == ["appended"]
    assert len(found["told"]) > 10
    check_recovered(tmp_path, found["told"])


def test_closing_a_full_store_is_no_strangers_error(tmp_path: Path) -> None:
    found = run_limited(tmp_path, 65_536, 30, "force")  # footers lie beyond
    assert found["closed"] in ("closed", "StoreFull", "StorePoisoned", "StoreError")
    check_recovered(tmp_path, found["told"])


@pytest.mark.parametrize("durability", ["force", "os"])
def test_device_that_refuses_a_write_poisons_and_loses_nothing(tmp_path: Path, durability: str) -> None:
    """The limit lies inside of the segment that is open already: the write itself fails."""
    found = run_limited(tmp_path, 40_960 + 2000, 5, durability, "free")
    assert found["errors"][0] == "StorePoisoned"
    assert found["after"] == ["StorePoisoned"]
    check_recovered(tmp_path, found["told"])


def test_no_room_at_all_is_an_error_at_open(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from store import MessageStore, StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    store = MessageStore.open(sys.argv[1])
    store.append("t", 0, b"x")
except StoreError as error:
    print("StoreError", error)
"""
    done = run_child(code, str(tmp_path / "store"))
    assert done.stdout.startswith("StoreError"), done.stderr
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        works(store)


def test_prewriting_more_than_there_is_room_for_is_store_full(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    if free > 1 << 45:
        pytest.skip("the disk is too large to ask for more than it has")
    before = shutil.disk_usage(tmp_path).free
    code = """
import resource, signal, sys
from store import MessageStore, StoreConfig, StoreFull
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    MessageStore.open(sys.argv[1], StoreConfig(segment_bytes=2 << 20, prewrite_bytes=4 << 20))
except StoreFull as error:
    print("StoreFull", error)
"""
    done = run_child(code, str(tmp_path / "store"))
    assert done.stdout.startswith("StoreFull"), done.stdout + done.stderr
    assert shutil.disk_usage(tmp_path).free > before - (64 << 20)


MANY_SEGMENTS = """
import resource, sys
from store import MessageStore, StoreConfig
config = StoreConfig(segment_bytes=65536, max_message_bytes=65536, max_frame_bytes=65536, recent_bytes=0)
with MessageStore.open(sys.argv[1], config) as store:
    for index in range(220):
        store.append("t", 0, bytes(40_000))
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
with MessageStore.open(sys.argv[1], config) as store:
    print(store.stats()["segments"]["sealed"] > 150, sum(map(len, store.scan())))
    print(sum(len(store.get_range("t", 0, at, 1)) for at in range(220)), store.append("t", 0, b"x"))
"""


def test_store_of_many_segments_needs_few_file_descriptors(tmp_path: Path) -> None:
    done = run_child(MANY_SEGMENTS, str(tmp_path))
    assert done.stdout.split() == ["True", "220", "220", "220"], done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 2 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not permitted: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize("lanes", [1, 2])
def test_full_disk_loses_nothing_and_works_on_when_there_is_space(small_disk: Path, lanes: int) -> None:
    home = small_disk / "store"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(600 << 10))
    told: dict[int, dict[int, bytes]] = {queue: {} for queue in range(4)}
    with MessageStore.open(home, tiny(lanes=lanes)) as store:
        with pytest.raises(StoreFull, match="space"):
            for index in range(2000):
                data = b"%05d" % index * 600
                told[index % 4][store.append("t", index % 4, data)] = data
        for _ in range(3):
            with pytest.raises(StoreError):
                for queue in range(4):
                    store.append("t", queue, bytes(60_000))
        check_told(store, told)
        ballast.unlink()
        for queue in range(4):
            offset = store.append("t", queue, b"free again")
            told[queue][offset] = b"free again"
        check_told(store, told)
    with MessageStore.open(home, tiny()) as store:
        check_told(store, told)


def test_full_disk_can_be_recovered_from_once_there_is_space(small_disk: Path) -> None:
    """The child dies on a full disk; opening says so, or works; with space it works."""
    home = small_disk / "store"
    code = """
import os, sys
from store import MessageStore, StoreConfig, StoreError
store = MessageStore.open(sys.argv[1], StoreConfig(segment_bytes=65536, max_frame_bytes=65536, recent_bytes=0))
count = 0
try:
    while True:
        store.append("t", 0, b"%05d" % count * 600)
        count += 1
except StoreError:
    print(count, flush=True)
    os._exit(0)
"""
    count = int(run_child(code, str(home)).stdout)
    try:
        MessageStore.open(home, tiny()).close()
    except StoreError:
        subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    with MessageStore.open(home, tiny()) as store:
        assert store.queue_bounds("t", 0)[0] == 0
        rows = contents(store, [("t", 0)])["t", 0]
        assert [rows[index] for index in range(count)] == [b"%05d" % index * 600 for index in range(count)]


def check_told(store: MessageStore, told: dict[int, dict[int, bytes]]) -> None:
    found = contents(store, [("t", queue) for queue in told])
    for queue, rows in told.items():
        assert {offset: found["t", queue].get(offset) for offset in rows} == rows
