"""Full disks and limits on files: a clear error, nothing lost, and the store works on once there is space."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreError, StoreFull, compact_store
from tests.store.helpers import contents, run_child, tiny

from .child import APIS, Order
from .life import check_recovered as check_told_recovered
from .life import lives
from .mounts import tmpfs

SETTINGS = {"segment_bytes": 64 << 10, "max_message_bytes": 64 << 10, "max_frame_bytes": 64 << 10, "recent_bytes": 0}


LIMITED = """
import json, os, resource, signal, sys
from stratalog import MessageStore, StoreError, StoreFull, StorePoisoned
from stratalog.testing import TunedConfig
from tests.store.helpers import without_marks
path, limit, prepared, durability = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def settings(segment_bytes):
    return TunedConfig(segment_bytes=segment_bytes, max_frame_bytes=65536, recent_bytes=0, durability=durability)
store = MessageStore.open(path, settings(65536))
without_marks(store)  # blocks are counted
told = {}
for index in range(prepared):
    told[store.append("t", 0, b"%d" % index * 100)] = "%d" % index
if "grow" in sys.argv:
    store.close()
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
if "grow" in sys.argv:
    store = MessageStore.open(path, settings(1 << 20))
    without_marks(store)
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
    for message in store.read("t", 0, at, max_messages=100):
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
from stratalog import MessageStore, StoreError
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
        assert store.append("works", 0, b"yes") == 0


def test_prewriting_more_than_there_is_room_for_is_store_full(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from stratalog import MessageStore, StoreFull
from stratalog.testing import TunedConfig
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    MessageStore.open(sys.argv[1], TunedConfig(segment_bytes=2 << 20, prewrite_bytes=4 << 20))
except StoreFull as error:
    print("StoreFull", error)
"""
    done = run_child(code, str(tmp_path / "store"))
    assert done.stdout.startswith("StoreFull"), done.stdout + done.stderr
    assert list((tmp_path / "store").rglob("*.seg")) == []  # nothing of it is kept


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 2 MiB."""
    with tmpfs(tmp_path / "disk", "2m") as path:
        yield path


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
from stratalog import MessageStore, StoreError
from stratalog.testing import TunedConfig
store = MessageStore.open(sys.argv[1], TunedConfig(segment_bytes=65536, max_frame_bytes=65536, recent_bytes=0))
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


@pytest.mark.parametrize("file_bytes", [9_000, 40_960, 42_000, 65_536])
def test_limit_on_files_ends_in_a_documented_error_for_every_way_to_append(tmp_path: Path, file_bytes: int) -> None:
    """Where the limit lies inside the open segment a write is short or refused; on its end a footer is.

    However the messages of a call are shared out to frames, each frame fits between the limit and the segment's end.
    """
    orders = [
        Order(str(tmp_path / api), SETTINGS, messages=160, prepared=5, api=api, file_bytes=file_bytes, largest=1500)
        for api in APIS
    ]
    for order, life in zip(orders, lives(orders), strict=True):
        assert life.poisoned == (file_bytes < 65_536), order
        check_told_recovered(Path(order.path), life.told)


@pytest.mark.parametrize("durability", ["force", "os"])
def test_short_writes_are_written_to_their_end(tmp_path: Path, durability: str) -> None:
    config = {**SETTINGS, "durability": durability}
    orders = [Order(str(tmp_path / api), config, api=api, short_writes=True, largest=20_000) for api in APIS]
    for order, life in zip(orders, lives(orders), strict=True):
        assert not life.errors, order
        assert len(life.told) == order.messages, order
        check_told_recovered(Path(order.path), life.told)


@pytest.mark.parametrize("free_bytes", [0, 4 << 10, 60 << 10, 200 << 10])
def test_compaction_on_a_full_disk_is_store_full_and_leaves_no_lock(small_disk: Path, free_bytes: int) -> None:
    home, ballast = small_disk / "store", small_disk / "ballast"
    with MessageStore.open(home, tiny()) as store:
        with store.subscribe("later", "s") as sub:
            for number in range(20):
                store.append("later", 0, b"%d" % number, deliver_at_ms=1 << 60)
            sub.receive()  # the topic has an index now
        for _ in range(15):
            store.append("t", 0, bytes(20_000))
        store.trim("t", 0, before_offset=4)
        ballast.touch()
        with ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        os.truncate(ballast, ballast.stat().st_size - free_bytes)
    with pytest.raises(StoreFull, match="Free some space"):
        compact_store(home)
    ballast.unlink()
    assert compact_store(home).segments == 2
    with MessageStore.open(home, tiny()) as store:
        assert store.queue_bounds("t", 0) == (4, 15) and store.queue_bounds("later", 0) == (0, 20)
        assert store.cancel_delayed("later", 0, 7)
