"""Reads past the page cache, many at once: right bytes or none; and which messages the store reads so."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreCorrupt
from stratalog.store.device.direct_reads import SLOT_BYTES, SLOT_REQUESTS, DirectReads, Range
from stratalog.store.device.os_file import OsFile
from stratalog.store.read import lane_tables, log_bytes
from stratalog.store.read.log_bytes import LogBytes
from stratalog.store.segment.windows import REGION_BYTES, WINDOW_BYTES, Windows
from stratalog.store.testing import TunedConfig
from tests.store.helpers import KIB, flip_bit, segment_path, until
from tests.store.test_by_parts import by_parts

from ..seeds import draw_seed

pytestmark = pytest.mark.disk

FILE_BYTES = 4 << 20


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """What the file has."""
    data = random.Random(draw_seed()).randbytes(FILE_BYTES)
    (tmp_path / "file").write_bytes(data)
    return data


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> OsFile:
    """A file that takes O_DIRECT."""
    file = OsFile(tmp_path / "file", create=False, direct=True, write=False)
    if not file.direct or DirectReads().read([(file, 0, 1)]) is None:
        pytest.skip("no asynchronous reads past the page cache here")
    return file


def expected(content: bytes, ranges: list[Range]) -> list[bytes]:
    return [content[position : position + length] for _, position, length in ranges]


def test_each_range_has_its_bytes_wherever_it_begins_and_ends(file: OsFile, content: bytes) -> None:
    rng, reads = random.Random(draw_seed()), DirectReads()
    for _ in range(50):
        count = rng.randrange(1, 3 * SLOT_REQUESTS)
        lengths = rng.choice(((0, 1, 100), (4095, 4096, 4097), (20_000, 3)))
        places = [(rng.randrange(FILE_BYTES - 20_000), rng.choice(lengths)) for _ in range(count)]
        if rng.random() < 0.5:
            places.sort()
        ranges: list[Range] = [(file, position, length) for position, length in places]
        found = reads.read(ranges)
        assert found is not None
        assert found[0] == expected(content, ranges)


def test_neighbours_are_one_request_and_a_shared_block_is_read_once(file: OsFile, content: bytes) -> None:
    ranges: list[Range] = [(file, 4000, 1000), (file, 5000, 3000), (file, 8192, 10), (file, 100_000, 10)]
    found = DirectReads().read(ranges)
    assert found == (expected(content, ranges), 3 * 4096 + 4096, 2)


def test_ranges_of_several_files_are_kept_apart(file: OsFile, content: bytes, tmp_path: Path) -> None:
    other = OsFile(tmp_path / "file", create=False, direct=True, write=False)
    ranges: list[Range] = [(file, 4000, 1000), (other, 5000, 3000), (file, 8000, 10)]
    found = DirectReads().read(ranges)
    assert found is not None
    assert found[0] == expected(content, ranges)
    assert found[2] == 3


def test_more_than_the_memory_is_read_in_turns_and_a_range_that_is_longer_not_at_all(
    file: OsFile, content: bytes
) -> None:
    reads, part = DirectReads(), SLOT_BYTES // 2
    ranges: list[Range] = [(file, position, part) for position in range(0, FILE_BYTES - part, part)]
    found = reads.read(ranges)
    assert found is not None
    assert found[0] == expected(content, ranges)
    assert reads.read([(file, 0, SLOT_BYTES + 1)]) is None


def test_nothing_is_given_of_what_lies_behind_the_end_of_a_file(file: OsFile, content: bytes) -> None:
    reads = DirectReads()
    assert reads.read([(file, 0, 10), (file, FILE_BYTES - 10, 20)]) is None
    found = reads.read([(file, FILE_BYTES - 10, 10)])
    assert found is not None
    assert found[0] == [content[-10:]]


def test_a_descriptor_that_was_closed_gives_nothing_and_harms_no_other_read(file: OsFile, content: bytes) -> None:
    class Closed:
        def fileno(self) -> int:
            return 1 << 20  # no file

    reads = DirectReads()
    assert reads.read([(file, 0, 10), (Closed(), 0, 10), (file, 9000, 10)]) is None
    found = reads.read([(file, 0, 10)])
    assert found is not None
    assert found[0] == [content[:10]]


def test_threads_do_not_get_each_others_bytes(file: OsFile, content: bytes) -> None:
    reads, wrong, seed = DirectReads(), [], draw_seed()

    def work(number: int) -> None:
        rng = random.Random(seed + number)
        for _ in range(100):
            ranges: list[Range] = [
                (file, rng.randrange(FILE_BYTES - 20_000), rng.randrange(20_000)) for _ in range(rng.randrange(1, 12))
            ]
            found = reads.read(ranges)
            if found is None or found[0] != expected(content, ranges):
                wrong.append(ranges)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class _Interrupted(Exception):
    """What the handler of the timer raises."""


def test_a_read_that_is_interrupted_anywhere_leaves_later_ones_right(file: OsFile, content: bytes) -> None:
    def interrupt(*_: object) -> None:
        raise _Interrupted

    rng, reads, interrupted, tries = random.Random(draw_seed()), DirectReads(), 0, 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while tries < 100 or interrupted < 10:
            tries += 1
            ranges: list[Range] = [(file, rng.randrange(FILE_BYTES - 20_000), 12_000) for _ in range(8)]
            found = None
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 300e-6))
                found = reads.read(ranges)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except _Interrupted:
                interrupted += 1
            assert found is None or found[0] == expected(content, ranges)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not reads.is_refused


def test_a_forked_child_can_let_go_of_its_parents_memory(file: OsFile, content: bytes) -> None:
    reads = DirectReads()
    assert reads.read([(file, 0, 10)]) is not None
    child = os.fork()
    if not child:
        reads.clear()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    found = reads.read([(file, 0, 10)])
    assert found is not None
    assert found[0] == [content[:10]]


# -- the store --------------------------------------------------------------------------------------

QUEUES = 400
CONFIG = TunedConfig(recent_bytes=0, segment_bytes=8 << 20, max_frame_bytes=256 * KIB, max_message_bytes=256 * KIB)


def fill(store: MessageStore, rng: random.Random) -> dict[int, list[bytes]]:
    """Two messages of each queue, far apart, and something behind them that the ring has; the content by queue."""
    rows: dict[int, list[bytes]] = {queue: [] for queue in range(QUEUES)}
    for _ in range(2):
        for queue in range(QUEUES):
            rows[queue].append(rng.randbytes(rng.randrange(1, 17 * KIB)))
            store.append("t", queue, rows[queue][-1])
    for _ in range(200):
        store.append("other", 0, bytes(100 * KIB))
    until(lambda: store.stats()["segments"]["open"] == 1)
    return rows


def drop(folder: Path) -> None:
    """Have the pages of all files forgotten."""
    for path in folder.rglob("*.seg"):
        with path.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def log_of(store: MessageStore) -> LogBytes:
    """What the store fetches bytes with."""
    fetch = store._fetcher.reader.bytes
    assert isinstance(fetch, LogBytes)
    return fetch


def direct(store: MessageStore) -> DirectReads:
    """What the store reads with; a test that cannot tell anything without it is skipped."""
    log = log_of(store)
    segment = store._lanes[0].view.sealed[0].segment
    reads = log._direct or segment.range_reads()
    if not isinstance(reads, DirectReads) or segment.past_cache() is None or reads.is_refused:
        pytest.skip("no reads past the page cache here")
    log._direct = reads
    return reads


def test_messages_far_apart_are_read_by_themselves(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng)
        reads = direct(store)
        drop(tmp_path)
        payload = 0
        for queue in rng.sample(range(QUEUES), 40):
            assert store.get_range("t", queue, 0, 5) == dict(enumerate(rows[queue]))
            payload += sum(map(len, rows[queue]))
        figures = store.stats()["reads"]
        assert reads._spare
        assert figures["device_messages"] == 80
        assert figures["device_payload_bytes"] == payload
        assert figures["device_bytes"] <= payload + 80 * 2 * 4096


def test_the_table_of_places_is_not_made_for_what_it_cannot_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_tables, "LEAST_CALLS", 1)
    monkeypatch.setattr(lane_tables, "MESSAGES_A_CALL", 1 << 30)
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng)
        direct(store)
        drop(tmp_path)
        for queue in range(20):
            assert store.get_range("t", queue, 0, 5) == dict(enumerate(rows[queue]))
        assert not store._lanes[0].index_memory.places
        for path in tmp_path.rglob("*.seg"):
            path.read_bytes()
        for sealed in store._lanes[0].view.sealed:
            sealed.segment.ask([0], [1])  # from now on it is looked whether the page cache has a message
        for queue in range(20, 40):
            assert store.get_range("t", queue, 0, 5) == dict(enumerate(rows[queue]))
        assert store._lanes[0].index_memory.places


def test_windows_that_others_asked_for_do_not_make_more_of_them(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng)
        direct(store)
        drop(tmp_path)
        segment = store._lanes[0].view.sealed[0].segment
        segment.ask([1 << 20], [1])
        asked = segment.windows.asked()
        assert asked
        for queue in range(QUEUES):
            assert store.get_range("t", queue, 0, 2) == dict(enumerate(rows[queue]))
        assert segment.windows.asked() == asked


def test_a_region_that_is_read_again_and_again_comes_into_the_page_cache(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng)
        direct(store)
        drop(tmp_path)
        segment = store._lanes[0].view.sealed[0].segment
        for _ in range(3 * REGION_BYTES // 4096 + 2):
            assert store.get_range("t", 0, 0, 2) == dict(enumerate(rows[0]))
        assert segment.windows.asked()


def test_what_the_page_cache_has_is_not_read_from_the_device(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng)
    with MessageStore.open(tmp_path, CONFIG) as store:
        reads = direct(store)
        for path in tmp_path.rglob("*.seg"):
            path.read_bytes()
        for _ in range(2):
            for queue in range(QUEUES):
                assert store.get_range("t", queue, 0, 2) == dict(enumerate(rows[queue]))
        assert store._lanes[0].view.sealed[0].kept  # so the second time nothing but the messages was wanted
        assert not reads._spare


def test_a_system_without_such_reads_gives_the_same(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng)
        direct(store).is_refused = True
        drop(tmp_path)
        for queue in range(QUEUES):
            assert store.get_range("t", queue, 0, 2) == dict(enumerate(rows[queue]))


def test_damage_that_is_read_past_the_page_cache_is_told(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng)
        direct(store)
        path = segment_path(tmp_path, 1)
        flip_bit(path, path.read_bytes().index(rows[7][0]) + len(rows[7][0]) // 2)
        drop(tmp_path)
        with pytest.raises(StoreCorrupt):
            store.get_range("t", 7, 0, 2)
        assert store.get_range("t", 7, 1, 2) == {0: rows[7][1]}
        assert store.get_range("t", 8, 0, 2) == dict(enumerate(rows[8]))


class _Overtaken(DirectReads):
    """The ring forgets what it had while the device reads."""

    def __init__(self, store: MessageStore) -> None:
        super().__init__()
        self.store = store

    def read(self, ranges: Sequence[Range]) -> tuple[list[bytes], int, int] | None:
        found = super().read(ranges)
        ring = self.store._lanes[0].ring
        for _ in range(2 * ring.size_bytes // (200 * KIB)):
            self.store.append("other", 0, bytes(200 * KIB))
        return found


def test_what_the_ring_loses_during_the_read_comes_from_the_device(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng)
        direct(store)
        drop(tmp_path)
        log_of(store)._direct = _Overtaken(store)
        for queue in (5, 6):
            rows[queue].append(rng.randbytes(5000))
            store.append("t", queue, rows[queue][-1])
        for queue in (5, 6):  # the second time it is not in the ring any more
            assert by_parts(store)("t", queue, 0, 5) == dict(enumerate(rows[queue]))


@pytest.mark.parametrize("offset", [0, 2])  # some of it is on the device alone; all of it is in the ring
def test_what_the_ring_loses_during_a_copy_comes_from_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng)
        rows[5].append(rng.randbytes(5000))
        store.append("t", 5, rows[5][-1])
        ring, right = store._lanes[0].ring, log_bytes._copied

        def overtaking(*given: Any) -> bool:
            size = right(*given)
            ring.low = store._lanes[0].tail
            return size

        monkeypatch.setattr(log_bytes, "_copied", overtaking)
        assert by_parts(store)("t", 5, offset, 5) == dict(enumerate(rows[5][offset:]))
        reads = store.stats()["reads"]
        assert (reads["recent_messages"], reads["device_messages"]) == (0, 3 - offset)


def test_windows_have_messages_only_where_the_kernel_was_asked_for_all_of_them(file: OsFile) -> None:
    windows, flat = Windows(), [0, 10, 0, WINDOW_BYTES - 5, 10, 0, 3 << 20, 10, 0]
    assert not windows.has(flat, [0])
    windows.prepare(file, [0], [10], written=True)  # a hint for this window alone
    windows.prepare(file, [0], [10], written=True)
    assert windows.asked() == {0}
    assert windows.has(flat, [0])
    assert not windows.has(flat, [1])
    assert not windows.has(flat, [0, 2])
    assert not windows.has([1 << 30, 10, 0], [0])
    windows.look_at = float("inf")
    assert windows.were_asked(WINDOW_BYTES - 1, 0)
    assert not windows.were_asked(len(windows._asked) * WINDOW_BYTES, 0)  # no bytes, at the end of the file


def test_the_memory_is_given_back_with_the_store(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng)
        reads = direct(store)
        drop(tmp_path)
        assert store.get_range("t", 3, 0, 2) == dict(enumerate(rows[3]))
        assert reads._spare
    assert not reads._spare


def test_pages_that_are_forgotten_at_any_line_of_a_reader_harm_no_read(tmp_path: Path) -> None:
    """Another thread forgets the windows before each line of `prepare` in turn: also behind a check."""
    path = tmp_path / "file"
    path.write_bytes(bytes(6 * WINDOW_BYTES))
    data = OsFile(path, create=False, direct=False)
    starts = [number * WINDOW_BYTES + 10 for number in range(5)]
    line = 0
    while True:
        line += 1
        windows, seen = Windows(), 0
        windows.prepare(data, starts[:1], [10], written=True)  # some are asked for already
        windows.prepare(data, starts[:1], [10], written=True)

        def at_line(frame: Any, event: str, _: Any, windows: Windows = windows, line: int = line) -> Any:
            nonlocal seen
            seen += event == "line"
            if event == "line" and seen == line:
                sys.settrace(None)
                windows.forget()
            return at_line

        sys.settrace(lambda frame, event, _: at_line if frame.f_code is Windows.prepare.__code__ else None)
        try:
            windows.prepare(data, starts, [10] * 5, written=True)
        finally:
            sys.settrace(None)
        if seen < line:
            break
    assert line > 10
