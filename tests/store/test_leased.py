"""The mapping that readers copy from: right bytes or none, and a file that others cut kills nobody."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreClosed, StoreCorrupt
from stratalog.store.device import lease as lease_module
from stratalog.store.device import leased as leased_module
from stratalog.store.device.disk import OsDisk, ReadingDisk
from stratalog.store.device.leased import WINDOW_BYTES, LeasedMap
from stratalog.store.format.layout import checksum64
from tests.store.helpers import KIB, PATIENCE_S, ROOT, flip_bit, segment_path, small, until

pytestmark = pytest.mark.disk

LENGTHS = (1, 100, 5000, 0, 70 * KIB, 3 * WINDOW_BYTES // 2, 17)
START = 8 * KIB


def has_leases(folder: Path) -> bool:
    """Whether the tests' file system knows leases, and no reader is in the way."""
    path = folder / "probe"
    path.write_bytes(b"x")
    try:
        LeasedMap(OsDisk().open_to_read(path)).let_go()
    except OSError:
        return False
    return True


@pytest.fixture(autouse=True)
def leases(tmp_path: Path) -> None:
    if not has_leases(tmp_path):
        pytest.skip("no leases on this file system")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of messages with the lengths above, back to back from START on."""
    path = tmp_path / "file"
    path.write_bytes(bytes(START) + b"".join(contents()))
    return path


def contents() -> list[bytes]:
    return [bytes([65 + index]) * length for index, length in enumerate(LENGTHS)]


def places() -> memoryview:
    flat, at = array("I"), START
    for data in contents():
        flat.extend((at, len(data), checksum64(data) & 0xFFFFFFFF))
        at += len(data)
    return memoryview(flat)


def copy(mapped: LeasedMap, entries: list[int] | None = None) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    count = mapped.copied(places(), range(len(LENGTHS)) if entries is None else entries, found)
    assert count == len(found)
    return found


def lease_of(file: Any) -> int:
    """The lease that the kernel leaves a file."""
    return fcntl.fcntl(file.fileno(), fcntl.F_GETLEASE)


def drop(path: Path) -> None:
    """Have the pages of a file that nobody maps forgotten."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_messages_are_copied_behind_those_that_were_found(path: Path) -> None:
    mapped = LeasedMap(OsDisk().open_to_read(path))
    assert copy(mapped) == dict(enumerate(contents()))
    found = {0: b"before"}
    assert mapped.copied(places(), [2, 4], found) == 2
    assert found == {0: b"before", 1: contents()[2], 2: contents()[4]}


def test_copying_ends_before_a_message_with_wrong_bytes(path: Path) -> None:
    flip_bit(path, START + 1 + 100 + 5, 0)
    assert list(copy(LeasedMap(OsDisk().open_to_read(path)))) == [0, 1]


def test_pages_that_are_not_in_memory_are_not_touched(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leased_module, "AGAIN_S", 3600.0)
    drop(path)
    mapped = LeasedMap(OsDisk().open_to_read(path))
    if mapped._is_resident(0):
        pytest.skip("this file system keeps its pages")
    assert copy(mapped) == {}
    path.read_bytes()
    assert copy(mapped) == {}  # so soon nobody looks again
    monkeypatch.setattr(leased_module, "AGAIN_S", 0.0)
    until(lambda: path.read_bytes() != b"" and len(copy(mapped)) == len(LENGTHS))  # pages may go at any time


def test_whoever_has_it_open_for_writing_keeps_it_from_being_mapped(path: Path) -> None:
    with path.open("r+b"), pytest.raises(OSError, match="Resource temporarily unavailable"):
        LeasedMap(OsDisk().open_to_read(path))
    LeasedMap(OsDisk().open_to_read(path))


def test_files_without_a_lease_of_ours_are_not_mapped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (OsDisk().open(path), ReadingDisk().open_to_read(path)):
        with pytest.raises(OSError, match="no lease"):
            LeasedMap(file)
    path.write_bytes(b"")
    with pytest.raises(OSError, match="empty"):
        LeasedMap(OsDisk().open_to_read(path))
    impatient = path.with_name("impatient")
    impatient.write_text("1\n")
    monkeypatch.setattr(lease_module, "PATIENCE", impatient)
    with pytest.raises(OSError, match="long enough"):
        LeasedMap(OsDisk().open_to_read(path))


def test_file_is_cut_only_when_nothing_is_copied_any_more(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = LeasedMap(OsDisk().open_to_read(path))
    monkeypatch.setattr(mapped, "_look_at", float("inf"))  # nobody looks by himself
    lease = mapped._lease
    assert isinstance(lease, lease_module.OsLease)
    cutter = threading.Thread(target=os.truncate, args=(path, 0), daemon=True)
    cutter.start()
    until(lambda: lease_of(lease._owner) == fcntl.F_UNLCK)  # the kernel holds the cutter up
    assert cutter.is_alive()
    assert copy(mapped) == dict(enumerate(contents()))  # not looked at yet: the kernel waits
    assert mapped.is_wanted()
    assert copy(mapped) == {}
    assert path.stat().st_size > 0
    mapped.let_go()
    cutter.join(PATIENCE_S)
    assert copy(mapped) == {}
    assert path.stat().st_size == 0


def test_reader_looks_itself_whether_somebody_waits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = LeasedMap(OsDisk().open_to_read(path))
    assert not mapped.is_wanted()
    monkeypatch.setattr(mapped, "_look_at", 0.0)
    assert len(copy(mapped)) == len(LENGTHS)  # nobody
    cutter = threading.Thread(target=os.truncate, args=(path, START), daemon=True)
    cutter.start()
    monkeypatch.setattr(leased_module, "LOOK_S", 0.0)
    until(lambda: not copy(mapped))
    assert mapped.memory is None
    mapped.let_go()
    cutter.join(PATIENCE_S)
    assert path.stat().st_size == START


CUTTING = """
import os, sys, threading, time
from pathlib import Path
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.leased import LeasedMap
from tests.store.test_leased import LENGTHS, contents, places

path, right, rounds = Path(sys.argv[1]), dict(enumerate(contents())), [0, 0]
mapped = LeasedMap(OsDisk().open_to_read(path))

def goes_on():  # however long that takes: the test that runs this has a limit
    return min(rounds) < 100

def cut():
    whole = path.read_bytes()
    while goes_on():
        os.truncate(path, 0)
        path.write_bytes(whole)
        rounds[0] += 1
        time.sleep(0.002)

def background():
    while cutter.is_alive():  # it may wait for the lease
        one = mapped
        if one.is_wanted():
            one.let_go()
        time.sleep(0.003)

cutter, other = (threading.Thread(target=one) for one in (cut, background))
for thread in (cutter, other):
    thread.start()
while goes_on():
    found = {}
    count = mapped.copied(places(), range(len(LENGTHS)), found)
    assert all(right[index] == data for index, data in found.items())
    rounds[1] += count == len(LENGTHS)
    if mapped.memory is None:
        try:
            mapped = LeasedMap(OsDisk().open_to_read(path))
        except OSError:
            time.sleep(0.0005)
mapped.let_go()
for thread in (cutter, other):
    thread.join()
"""


def test_file_that_is_cut_again_and_again_kills_no_reader(path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", CUTTING, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


def sealed_store(folder: Path) -> list[bytes]:
    """Three sealed segments and an open one, closed; what its queue has."""
    datas = [bytes([index % 251]) * 2000 for index in range(450)]
    with MessageStore.open(folder, small()) as store:
        for begin in range(0, len(datas), 10):
            store.append_batch([("t", 0, data) for data in datas[begin : begin + 10]])
        until(lambda: store.stats()["segments"]["open"] == 1)
    return datas


def test_sealed_segments_are_read_without_a_system_call_a_message(tmp_path: Path) -> None:
    datas = sealed_store(tmp_path / "store")
    with MessageStore.open(tmp_path / "store", small()) as store:

        def read() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
            """The figures before a read and behind it."""
            before = store.stats()["reads"]
            assert store.get_range("t", 0, 0, 100) == dict(enumerate(datas[:100]))
            return before, store.stats()["reads"]

        def calls() -> int:
            before, reads = read()
            return int(reads["device_reads"] - before["device_reads"])

        until(lambda: calls() == 0)  # what the page cache lacked is in it, and has been seen there
        before, reads = read()
        assert reads["device_messages"] - before["device_messages"] == 100
        assert reads["device_bytes"] - before["device_bytes"] == 100 * 2000


def test_truncated_segment_of_an_open_store_is_damage_and_no_signal(tmp_path: Path) -> None:
    datas = sealed_store(tmp_path / "store")
    with MessageStore.open(tmp_path / "store", small()) as store:
        segment = store._lanes[0].view.sealed[0].segment
        until(lambda: len(store.get_range("t", 0, 0, 100)) == 100 and segment.leased is not None)
        os.truncate(segment_path(tmp_path / "store", 1), 64 * KIB)  # waits for the background: nobody reads
        assert segment.leased is None
        with pytest.raises(StoreCorrupt):
            store.get_range("t", 0, 80, 10)
        assert store.get_range("t", 0, 0, 20) == dict(enumerate(datas[:20]))


def test_forked_child_holds_no_lease_of_its_parent(tmp_path: Path) -> None:
    sealed_store(tmp_path / "store")
    with MessageStore.open(tmp_path / "store", small()) as store:
        segment = store._lanes[0].view.sealed[0].segment
        until(lambda: len(store.get_range("t", 0, 0, 100)) == 100 and segment.leased is not None)
        child = os.fork()
        if child == 0:
            links = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
            os._exit(links.count(str(segment.path)))
        assert os.waitpid(child, 0)[1] == 0
        assert segment.leased is not None and not segment.leased.is_wanted()
        assert len(store.get_range("t", 0, 0, 100)) == 100


def test_a_mapped_segment_holds_one_descriptor(tmp_path: Path) -> None:
    """So as many segments as there are descriptors can be mapped."""
    sealed_store(tmp_path / "store")
    with MessageStore.open(tmp_path / "store", small()) as store:
        segment = store._lanes[0].view.sealed[0].segment
        until(lambda: len(store.get_range("t", 0, 0, 100)) == 100 and segment.leased is not None)
        links = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
        assert links.count(str(segment.path)) == 1


def test_what_the_kernel_does_not_map_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    written = os.open(tmp_path / "file", os.O_WRONLY)
    try:
        with pytest.raises(PermissionError, match="cannot be mapped"):
            lease_module.mapped(written)
    finally:
        os.close(written)


def test_closed_store_leases_nothing(tmp_path: Path) -> None:
    sealed_store(tmp_path / "store")
    with MessageStore.open(tmp_path / "store", small()) as store:
        segment = store._lanes[0].view.sealed[0].segment
        until(lambda: len(store.get_range("t", 0, 0, 100)) == 100 and segment.leased is not None)
        file = segment.data
    assert segment.leased is None
    assert lease_of(file) == fcntl.F_UNLCK
    assert segment.copied([0, 1, 2], [0], {}) == 0
    segment._map_at = 0.0
    with pytest.raises(StoreClosed):
        segment.copied([0, 1, 2], [0], {})
