"""Zeros are written ahead of the log and nowhere else; what was never written is not read after a crash."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest

from stratalog.store import MessageStore, StoreCorrupt, StorePoisoned
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.log_file import Buffer
from stratalog.store.device.os_file import OsFile
from stratalog.store.format.layout import BLOCK_BYTES, align_up
from stratalog.store.log.ahead import LEAST_AHEAD_BYTES, REST_S, Ahead
from stratalog.store.segment import scanner
from stratalog.store.segment.writer import prewrite
from stratalog.store.segment.zeros import STEP_BYTES, Zeros
from stratalog.store.testing import Fault, SimulatedDisk, TunedConfig, VirtualClock
from stratalog.store.testing.content import Content

from .helpers import KIB, payload, segment_path, simulated_home, small, until

MIB = 1 << 20
QUEUE = ("t", 0)
PACED = small(segment_bytes=4 * MIB)  # one that is pre-written in steps


@pytest.fixture
def no_background() -> Iterator[None]:
    """No zeros are written in the background: the test writes them."""
    with mock.patch.object(Ahead, "keep", lambda *_: None):
        yield


@pytest.fixture
def home() -> Path:
    return simulated_home("zeros")


def zeros_of(store: MessageStore) -> Zeros:
    segment = store._lanes[0].segment
    assert segment is not None
    assert segment.writer.zeros is not None
    return segment.writer.zeros


def write_all(zeros: Zeros) -> int:
    total = 0
    while written := zeros.step():
        total += written
    return total


def looked_for(path: Path, *, direct: bool = True) -> Zeros | None:
    """The zeros of a file whose log begins at its beginning."""
    disk = OsDisk()
    return Zeros.of(disk.open(path, direct=direct), 0, lambda: disk.open(path, direct=True))


def reserved(path: Path, size: int, first: int) -> OsFile:
    """A file whose first part is pre-written, and the rest reserved."""
    prewrite(OsDisk(), path, size, direct=True, first_bytes=first)
    return OsDisk().open(path, direct=True)


# -- the zeros of one file -------------------------------------------------------------------------------


@pytest.mark.disk
def test_a_file_is_pre_written_in_part_and_reserved_as_a_whole(tmp_path: Path) -> None:
    file = reserved(tmp_path / "f", 8 * MIB, MIB)
    assert os.stat(tmp_path / "f").st_blocks * 512 >= 8 * MIB
    assert file.hole_from(0) == MIB
    zeros = looked_for(tmp_path / "f")
    assert zeros is not None
    assert zeros.ready == MIB
    assert write_all(zeros) == 7 * MIB
    assert file.hole_from(0) == 8 * MIB
    assert looked_for(tmp_path / "f") is None, "all of it is written"
    assert (tmp_path / "f").read_bytes() == bytes(8 * MIB)


def test_a_file_that_cannot_be_reserved_or_is_in_the_page_cache_is_pre_written_as_a_whole(tmp_path: Path) -> None:
    with mock.patch.object(OsFile, "reserve", lambda *_: False):
        assert prewrite(OsDisk(), tmp_path / "f", MIB, direct=True, first_bytes=64 * KIB) == MIB
        sparse = tmp_path / "sparse"
        sparse.touch()
        os.truncate(sparse, MIB)
        assert looked_for(sparse) is None
    reserved_in_part = reserved(tmp_path / "h", MIB, 64 * KIB)
    assert prewrite(OsDisk(), tmp_path / "g", MIB, direct=False, first_bytes=64 * KIB) == MIB
    assert looked_for(sparse, direct=False) is None
    assert os.stat(sparse).st_blocks * 512 >= MIB, "its space is reserved: a full disk is no surprise to its log"
    with mock.patch.object(OsDisk, "open", side_effect=OSError(errno.EMFILE, "none left")):
        assert Zeros.of(reserved_in_part, 0, lambda: OsDisk().open(tmp_path / "h", direct=True)) is None


@pytest.mark.disk
def test_zeros_never_overwrite_what_a_log_writes_beside_them(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance, size = random.Random(seed), 16 * MIB
    file = reserved(tmp_path / "f", size, 64 * KIB)
    zeros, ended = Zeros(file, file, file.hole_from(0), size), threading.Event()

    def writes_zeros() -> None:
        while not ended.is_set() and zeros.step():
            pass

    other = threading.Thread(target=writes_zeros)
    other.start()
    at = 0
    while at < size:
        end = min(size, at + BLOCK_BYTES * chance.choice((1, 3, 16, 100)))
        if end > zeros.ready:
            zeros.claim(end)
        file.write([b"x" * (end - at)], at)
        at = end
    ended.set()
    other.join()
    assert (tmp_path / "f").read_bytes() == b"x" * size


class _SlowFile(OsFile):
    """A file whose next write of zeros waits."""

    begun, may_end = threading.Event(), threading.Event()

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        if not any(bytes(parts[0])):
            self.begun.set()
            self.may_end.wait(5)
        super().write(parts, position, force=force)


def test_a_claim_and_a_stop_wait_for_the_step_that_is_under_way(tmp_path: Path) -> None:
    reserved(tmp_path / "f", 4 * MIB, 64 * KIB).close()
    for act in (lambda zeros: zeros.claim(2 * MIB), Zeros.stop):
        _SlowFile.begun, _SlowFile.may_end = threading.Event(), threading.Event()
        file = _SlowFile(tmp_path / "f", create=False, direct=True)
        zeros = Zeros(file, file, 64 * KIB, 4 * MIB)
        step, acts = threading.Thread(target=zeros.step), threading.Thread(target=act, args=(zeros,))
        step.start()
        assert _SlowFile.begun.wait(20)
        acts.start()
        acts.join(0.1)
        assert acts.is_alive()
        assert zeros.is_outrun == (act is not Zeros.stop), "so there is no other step before the claim"
        _SlowFile.may_end.set()
        step.join()
        acts.join()
        assert zeros.ready == (64 * KIB + STEP_BYTES if act is Zeros.stop else 2 * MIB)
    assert zeros.step() == 0, "it was stopped"


def test_a_step_that_fails_is_the_last_one(tmp_path: Path) -> None:
    file = reserved(tmp_path / "f", 4 * MIB, 64 * KIB)
    zeros = Zeros(file, file, 64 * KIB, 4 * MIB)
    with mock.patch.object(OsFile, "write", side_effect=OSError(errno.EIO, "bad")), pytest.raises(OSError, match="bad"):
        zeros.step()
    assert zeros.ready == 64 * KIB
    assert zeros.step() == 0
    zeros.claim(MIB)
    assert zeros.ready == MIB


def test_zeros_end_when_the_log_or_they_leave_o_direct(tmp_path: Path) -> None:
    """As after a write that was cut short. Through the page cache a page of the log may reach into the zeros."""
    log = reserved(tmp_path / "f", 4 * MIB, 64 * KIB)
    for leaves in ("log", "zeros"):
        other = OsDisk().open(tmp_path / "f", direct=True)
        zeros = Zeros(log, other, 64 * KIB, 4 * MIB)
        assert zeros.step()
        (log if leaves == "log" else other).direct = False
        assert zeros.step() == 0
        log.direct = True


# -- how far ahead ---------------------------------------------------------------------------------------


class _Lane:
    """What `Ahead` looks at of a lane, with a segment of 256 MiB that is written at no cost."""

    def __init__(self) -> None:
        self.tail, self.ready, self.is_outrun = 0, 4 * MIB, False
        self.segment = mock.Mock(base=0)
        self.segment.header.capacity_bytes = 256 * MIB
        self.segment.writer.zeros = self

    def step(self) -> int:
        self.ready += MIB
        return MIB

    def append(self, size: int) -> None:
        self.tail += size
        if self.tail > self.ready:
            self.ready, self.is_outrun = self.tail, True


def test_zeros_are_as_far_ahead_as_the_last_second_appended() -> None:
    clock, lane = VirtualClock(), _Lane()
    ahead = Ahead(clock)

    def look() -> int:
        ahead.keep(lane, lambda: True)  # type: ignore[arg-type]
        return lane.ready - lane.tail

    assert look() == LEAST_AHEAD_BYTES
    for _ in range(20):  # 40 MiB/s
        clock.advance(ms=100)
        lane.append(4 * MIB)
        left = look()
    assert 36 * MIB <= left <= 45 * MIB
    assert not lane.is_outrun
    clock.advance(ms=5_000)
    lane.append(MIB)
    assert look() <= 45 * MIB, "nothing is written for a log that rests"
    assert ahead.written_bytes == lane.ready - 4 * MIB


def test_zeros_rest_while_the_log_outruns_them() -> None:
    clock, lane = VirtualClock(), _Lane()
    ahead = Ahead(clock)
    lane.append(20 * MIB)
    ahead.keep(lane, lambda: True)  # type: ignore[arg-type]
    clock.advance(ms=int(500 * REST_S))
    ahead.keep(lane, lambda: True)  # type: ignore[arg-type]
    assert not ahead.written_bytes
    clock.advance(ms=int(1000 * REST_S))
    ahead.keep(lane, lambda: True)  # type: ignore[arg-type]
    assert lane.ready - lane.tail >= LEAST_AHEAD_BYTES


def test_zeros_come_again_before_a_slow_log_that_outran_them() -> None:
    """Without zeros it comes to their end with each append: that alone must not have them rest for ever."""
    clock, lane = VirtualClock(), _Lane()
    ahead = Ahead(clock)
    lane.append(20 * MIB)
    for _ in range(8):
        lane.append(4 * KIB)
        ahead.keep(lane, lambda: True)  # type: ignore[arg-type]
        clock.advance(ms=100)
    assert lane.ready - lane.tail >= LEAST_AHEAD_BYTES
    assert not lane.is_outrun


def test_zeros_rest_for_as_long_as_the_log_is_fast() -> None:
    clock, lane = VirtualClock(), _Lane()
    ahead = Ahead(clock)
    lane.append(8 * MIB)
    for _ in range(40):
        clock.advance(ms=50)
        lane.append(2 * MIB)
        ahead.keep(lane, lambda: True)  # type: ignore[arg-type]
    assert not ahead.written_bytes
    for _ in range(2):
        clock.advance(ms=int(1000 * REST_S))
        ahead.keep(lane, lambda: True)  # type: ignore[arg-type]
    assert ahead.written_bytes


def test_zeros_end_when_the_store_closes() -> None:
    lane, ahead = _Lane(), Ahead(VirtualClock())
    ahead.keep(lane, lambda: ahead.written_bytes < 3 * MIB)  # type: ignore[arg-type]
    assert ahead.written_bytes == 3 * MIB


# -- in a store ------------------------------------------------------------------------------------------


@pytest.mark.disk
def test_a_fresh_store_is_pre_written_only_a_little_ahead_of_its_log(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for number in range(60):  # 6 MB, into segments of 4 and 16 MiB
            store.append(*QUEUE, payload(number, 100_000))
        until(lambda: zeros_of(store).ready >= 5 * MIB)
        assert store.stats()["log"]["prewritten_bytes"] <= 16 * MIB
        assert store.stats()["last_background_error"] is None


def test_a_log_that_outruns_its_zeros_is_whole_and_zeros_come_after_it(home: Path, no_background: None) -> None:
    disk = SimulatedDisk()
    config = TunedConfig(segment_bytes=4 * MIB, recent_bytes=0, max_frame_bytes=64 * KIB, max_message_bytes=64 * KIB)
    with MessageStore.open(home, config, disk=disk) as store:
        store.append(*QUEUE, payload(0, 50_000))
        zeros = zeros_of(store)
        first = zeros.ready
        for number in range(1, 40):
            store.append(*QUEUE, payload(number, 50_000))
        segment, lane = store._lanes[0].segment, store._lanes[0]
        assert segment is not None
        assert segment.base is not None
        assert first < zeros.ready == align_up(lane.issued - segment.base)
        assert zeros.is_outrun
        assert write_all(zeros) > MIB
        left = disk.crash(random.Random(1), "none")
    with MessageStore.open(home, config, disk=left) as store:
        assert store.get_range(*QUEUE, 0, 50) == {number: payload(number, 50_000) for number in range(40)}


def test_no_zeros_are_written_into_a_segment_that_has_its_footer(home: Path, no_background: None) -> None:
    disk = SimulatedDisk()
    with MessageStore.open(home, PACED, disk=disk) as store:
        store.append(*QUEUE, payload(0, 50_000))
        first, zeros, path = store._lanes[0].segment, zeros_of(store), segment_path(home, 1)
        number = 1
        while store._lanes[0].segment is first:
            store.append_batch([(*QUEUE, payload(one, 50_000)) for one in range(number, number + 10)])
            number += 10
        zeros.is_outrun = False
        until(lambda: bool(store._lanes[0].view.sealed))
        whole = disk.bytes_of(path)
        assert zeros.step() == 0
        assert disk.bytes_of(path) == whole
        assert store.get_range(*QUEUE, 0, 500) == {one: payload(one, 50_000) for one in range(number)}


def sparse_copy(path: Path) -> None:
    """Replace a file by a copy without its blocks of zeros, as `cp --sparse=always` makes it."""
    data = path.read_bytes()
    path.unlink()
    with path.open("wb") as file:
        for at in range(0, len(data), BLOCK_BYTES):
            if any(block := data[at : at + BLOCK_BYTES]):
                file.seek(at)
                file.write(block)
        file.truncate(len(data))


@pytest.mark.disk
def test_a_sparse_copy_of_a_closed_store_goes_on_behind_its_log(tmp_path: Path, no_background: None) -> None:
    messages = [bytes(200_000), payload(1, 50_000), bytes(100_000), payload(2, 50_000)]
    with MessageStore.open(tmp_path) as store:
        for message in messages:
            store.append(*QUEUE, message)
    sparse_copy(segment_path(tmp_path, 1))
    with MessageStore.open(tmp_path) as store:
        lane = store._lanes[0]
        assert lane.segment is not None
        assert lane.segment.base is not None
        assert zeros_of(store).ready >= lane.tail - lane.segment.base > 400_000
        assert os.stat(segment_path(tmp_path, 1)).st_blocks * 512 >= 4 * MIB, "its space is reserved again"
        write_all(zeros_of(store))
        assert list(store.get_range(*QUEUE, 0, 9).values()) == messages
        store.append(*QUEUE, b"more")
    with MessageStore.open(tmp_path) as store:
        assert list(store.get_range(*QUEUE, 0, 9).values()) == [*messages, b"more"]


class _CachedFile(OsFile):
    """On a file system that takes O_DIRECT and goes through the page cache all the same.

    Each open file is told once, by its next force, that something of the inode could not be written back.
    """

    lost = 0
    meanwhile: Callable[[], object] | None = None  # while the next write is lost, before its own force

    def __init__(self, path: Path, *, create: bool, direct: bool, write: bool = True) -> None:
        super().__init__(path, create=create, direct=direct, write=write)
        self._told = _CachedFile.lost

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        super().write(parts, position)
        meanwhile, _CachedFile.meanwhile = _CachedFile.meanwhile, None
        if meanwhile is not None:
            _CachedFile.lost += 1
            meanwhile()
        if force:
            self.force()

    def force(self) -> None:
        super().force()
        told, self._told = self._told, _CachedFile.lost
        if told < _CachedFile.lost:
            raise OSError(errno.EIO, "could not be written back", str(self.path))


class _CachedDisk(OsDisk):
    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return _CachedFile(path, create=create, direct=direct)


@pytest.mark.disk
def test_a_step_of_zeros_does_not_hear_in_the_logs_place_that_a_write_was_lost(
    tmp_path: Path, no_background: None
) -> None:
    with MessageStore.open(tmp_path, PACED, disk=_CachedDisk()) as store:
        store.append(*QUEUE, b"kept")
        zeros, stepped = zeros_of(store), list[bool]()

        def step() -> None:
            with contextlib.suppress(OSError):
                zeros.step()
            stepped.append(True)

        _CachedFile.meanwhile = step
        with pytest.raises(StorePoisoned):
            store.append(*QUEUE, b"lost")
        assert stepped


def test_zeros_that_the_device_refuses_lose_nothing(home: Path) -> None:
    disk = SimulatedDisk()
    with MessageStore.open(home, PACED, disk=disk) as store:
        store.append(*QUEUE, payload(0, 50_000))
        zeros = zeros_of(store)
        disk.inject(Fault("write"))
        with contextlib.suppress(OSError):  # else the background met it, or a message
            zeros.step()
        for number in range(1, 50):
            store.append(*QUEUE, payload(number, 50_000))
        left = disk.crash(random.Random(2), "none")
    with MessageStore.open(home, PACED, disk=left) as store:
        assert store.get_range(*QUEUE, 0, 100) == {number: payload(number, 50_000) for number in range(50)}


# -- after a crash ---------------------------------------------------------------------------------------


def killed_in_a_large_segment(home: Path, messages: int) -> SimulatedDisk:
    disk = SimulatedDisk()
    config = TunedConfig(segment_bytes=64 * MIB, prewrite_bytes=0, recent_bytes=0)
    with (
        mock.patch("stratalog.store.log.spares.FIRST_SEGMENT_BYTES", 64 * MIB),
        MessageStore.open(home, config, disk=disk) as store,
    ):
        for number in range(messages):
            store.append(*QUEUE, payload(number, 50_000))
        return disk.kill()


def test_an_opening_after_a_kill_searches_nothing_that_was_never_written(home: Path) -> None:
    with mock.patch.object(Ahead, "keep", lambda *_: None):
        left = killed_in_a_large_segment(home, 20)
    searched = list[int]()
    real = scanner.find_magic

    def noting(view: memoryview) -> list[int]:
        searched.append(len(view))
        return real(view)

    with mock.patch.object(scanner, "find_magic", noting), MessageStore.open(home, disk=left) as store:
        assert len(store.get_range(*QUEUE, 0, 50)) == 20
    assert 0 < sum(searched) <= 2 * scanner.CHUNK_BYTES


def test_a_hole_in_the_log_is_damage_where_a_frame_behind_it_says_so(home: Path) -> None:
    """What was never written lies between the break of the chain and the proof."""
    left = killed_in_a_large_segment(home, 200)
    path = segment_path(home, 1)
    content: Content = left._named(path)
    begins = scanner.find_magic(memoryview(left.bytes_of(path)[: 16 * MIB]))
    low, high = begins[5] // BLOCK_BYTES, begins[-1] // BLOCK_BYTES
    written = {index: block for index, block in content.written.items() if not low <= index < high}
    content.written, content.forced, content.unforced = written, dict(written), {}
    assert content.data_from(begins[5]) == begins[-1] > 2 * scanner.CHUNK_BYTES
    with pytest.raises(StoreCorrupt) as found:
        MessageStore.open(home, disk=left)
    assert begins[4] < found.value.position <= begins[5]
