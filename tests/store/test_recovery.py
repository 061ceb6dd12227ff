"""Recovery: torn tails and damage, told apart, in every field of the format.

"ignored": what was not acknowledged may vanish in silence. "reported": what was durable may not; StoreCorrupt
names the file and the place, and `repair=True` sets that range aside and keeps everything else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreConfig, StoreCorrupt, StoreError
from stratalog.store.format.frame import Frame
from stratalog.store.format.layout import BLOCK_BYTES, DATA_START, SEALED, align_up

from ..seeds import draw_seed
from .helpers import (
    Queue,
    Snapshot,
    calls_that_read,
    contents,
    crash_copy,
    flip_bit,
    frames_of,
    full_frames,
    memory_folder,
    overwrite,
    put_snapshot,
    scanned,
    seal_of,
    segment_path,
    segment_paths,
    take_snapshot,
    tiny,
    until,
)

Rows = dict[Queue, dict[int, bytes]]
QUEUES: list[Queue] = [("a", 0), ("a", 1), ("b", 7)]
TINY = tiny()
EVERY = 11  # of bytes that are harmed in turn, one of so many; from which on, the seed says


def put(store: MessageStore, expected: Rows, topic: str, queue: int, data: bytes, **facts: Any) -> None:
    offset = store.append(topic, queue, data, **facts)
    expected.setdefault((topic, queue), {})[offset] = data


def short_story(store: MessageStore) -> Rows:
    """A few frames: single messages, a batch, optional columns, an empty message."""
    expected: Rows = {name: {} for name in QUEUES}
    put(store, expected, "a", 0, b"first")
    rows = [(*QUEUES[index % 3], b"batch %d;" % index * index) for index in range(8)]
    for (topic, queue, data), offset in zip(rows, store.append_batch(rows).tolist(), strict=True):
        expected[topic, queue][offset] = data
    put(store, expected, "a", 1, b"")
    put(store, expected, "b", 7, b"with facts", key=b"key", properties={"p": "q"}, deliver_at_ms=77)
    put(store, expected, "a", 0, b"last but one")
    put(store, expected, "a", 1, b"last")
    return expected


def long_story(store: MessageStore, count: int = 100) -> Rows:
    """Enough for several sealed segments."""
    expected: Rows = {name: {} for name in QUEUES}
    for index in range(count):
        put(store, expected, *QUEUES[index % 3], b"%04d" % index * 700)
    until(lambda: store.stats()["segments"]["open"] == 1)
    return expected


class Case:
    """A store's files and what they should hold."""

    def __init__(self, snapshot: Snapshot, expected: Rows, home: Path) -> None:
        self.snapshot = snapshot
        self.expected = expected
        self.home = home

    def fresh(self) -> Path:
        return put_snapshot(self.snapshot, self.home)

    @property
    def last(self) -> Path:
        """The newest segment in use, in `home`."""
        return next(path for path in reversed(segment_paths(self.home)) if frames_of(path))


@functools.cache
def story_of(story: Callable[[MessageStore], Rows], closed: bool) -> Case:
    """A store that is made once for all tests, each of which works with a copy."""
    with memory_folder() as folder:
        return make_case(folder, story, closed=closed)


def case_in(folder: Path, story: Callable[[MessageStore], Rows], *, closed: bool) -> Case:
    """Its files, to be put into this folder."""
    made = story_of(story, closed)
    return Case(made.snapshot, {name: dict(rows) for name, rows in made.expected.items()}, folder / "store")


def make_case(folder: Path, story: Callable[[MessageStore], Rows], *, closed: bool) -> Case:
    with MessageStore.open(folder / "made", TINY) as store:
        expected = story(store)
        if not closed:
            crash_copy(folder / "made", folder / "crashed")
    return Case(take_snapshot(folder / ("made" if closed else "crashed")), expected, folder / "store")


@pytest.fixture
def crashed(folder: Path) -> Case:
    """A small store that was not closed."""
    return case_in(folder, short_story, closed=False)


@pytest.fixture
def closed(folder: Path) -> Case:
    """A small store that was closed."""
    return case_in(folder, short_story, closed=True)


@pytest.fixture
def long_closed(folder: Path) -> Case:
    """A store of several sealed segments that was closed."""
    return case_in(folder, long_story, closed=True)


@pytest.fixture
def long_crashed(folder: Path) -> Case:
    """A store of several sealed segments that was not closed."""
    return case_in(folder, long_story, closed=False)


def found_in(path: Path, config: StoreConfig = TINY, *, repair: bool = False) -> Rows:
    """Everything a store holds, read in two ways that must agree."""
    with MessageStore.open(path, config, repair=repair) as store:
        rows = contents(store, QUEUES)
        assert scanned(store) == {name: mine for name, mine in rows.items() if mine}
        return rows


def is_prefix(rows: Rows, expected: Rows) -> bool:
    """Each queue's messages are right, in order, from the first on."""
    return all(
        list(mine) == list(range(len(mine))) and all(expected[name][at] == data for at, data in mine.items())
        for name, mine in rows.items()
    )


def is_part(rows: Rows, expected: Rows) -> bool:
    """All messages are right and at their offsets; some may be missing."""
    return all(expected[name].get(at) == data for name, mine in rows.items() for at, data in mine.items())


def count(rows: Rows) -> int:
    return sum(map(len, rows.values()))


def reported(path: Path) -> StoreCorrupt:
    """The damage that opening or reading reports; fails if there is none."""
    with pytest.raises(StoreCorrupt) as caught:
        found_in(path)
    return caught.value


# -- torn tails ---------------------------------------------------------------------------------------


def test_recovering_again_changes_nothing(long_crashed: Case) -> None:
    long_crashed.fresh()
    for _ in range(3):
        assert found_in(long_crashed.home) == long_crashed.expected
        assert found_in(crash_copy(long_crashed.home, long_crashed.home / "../copy")) == long_crashed.expected


@pytest.mark.parametrize("how", ["zeroed", "truncated"])
def test_torn_tail_is_ignored_wherever_it_is_cut(crashed: Case, how: str) -> None:
    """Cut at bytes all over the data: a prefix is there, and the store goes on with dense offsets."""
    crashed.fresh()
    path = crashed.last
    content = path.read_bytes()
    name = str(path.relative_to(crashed.home))
    before = -1
    first = draw_seed() % EVERY
    # Between frames there is nothing but zeros: one cut there is as good as all.
    inside = [(frame.header.position, frame.header.end) for frame in frames_of(path)]
    cuts = {cut for begin, end in inside for cut in (begin, begin + 1, *range(begin + first, end, 2 * EVERY), end)}
    for cut in (DATA_START, *sorted(cuts)):
        rest = bytes(len(content) - cut) if how == "zeroed" else b""
        put_snapshot({**crashed.snapshot, name: content[:cut] + rest}, crashed.home)
        kept = check_torn(crashed)
        assert kept >= before, "a longer file holds less"
        before = kept
    assert before == count(crashed.expected)


def check_torn(case: Case) -> int:
    """Recover, append, recover again. The number of messages that were found at first."""
    with MessageStore.open(case.home, TINY) as store:
        rows = contents(store, QUEUES)
        assert is_prefix(rows, case.expected)
        total = count(rows)
        for topic, queue in QUEUES:
            offset = store.append(topic, queue, b"new")
            assert offset == len(rows[topic, queue])
            rows[topic, queue][offset] = b"new"
    with MessageStore.open(case.home, TINY) as store:
        assert contents(store, QUEUES) == rows
        assert scanned(store) == rows
    return total


@pytest.mark.parametrize("fraction", [0.1, 0.35, 0.6, 0.85, 1.0])
def test_torn_tail_behind_sealed_segments_is_ignored(long_crashed: Case, fraction: float) -> None:
    long_crashed.fresh()
    path = long_crashed.last
    end = max(frame.header.end for frame in frames_of(path))
    cut = DATA_START + int((end - DATA_START) * fraction)
    overwrite(path, cut, bytes(path.stat().st_size - cut))
    rows = found_in(long_crashed.home)
    assert is_prefix(rows, long_crashed.expected)
    assert found_in(long_crashed.home) == rows


def test_torn_tail_is_not_taken_for_damage_by_a_later_repair(crashed: Case) -> None:
    crashed.fresh()
    frame = max(frames_of(crashed.last), key=lambda frame: frame.header.count)
    cut = int(frame.starts()[5]) + 2  # the batch of eight is cut in its sixth message
    overwrite(crashed.last, cut, bytes(crashed.last.stat().st_size - cut))
    with MessageStore.open(crashed.home, TINY) as store:
        for topic, queue in QUEUES:
            store.append(topic, queue, b"later")
        rows = contents(store, QUEUES)
    with MessageStore.open(crashed.home, TINY, repair=True) as store:
        assert store.losses == []
        assert [store.queue_bounds(*name) for name in QUEUES] == [(0, len(rows[name])) for name in QUEUES]
        assert contents(store, QUEUES) == rows


def test_crash_between_recovery_and_the_first_append_is_harmless(crashed: Case) -> None:
    crashed.fresh()
    with MessageStore.open(crashed.home, TINY):
        again = crash_copy(crashed.home, crashed.home / "../again")
    assert found_in(again) == crashed.expected


def test_crash_after_reopening_a_closed_store_is_harmless(closed: Case) -> None:
    closed.fresh()
    with MessageStore.open(closed.home, TINY) as store:
        at_once = crash_copy(closed.home, closed.home / "../at_once")
        put(store, closed.expected, "a", 0, b"one more")
        later = crash_copy(closed.home, closed.home / "../later")
    assert found_in(later) == closed.expected
    del closed.expected["a", 0][max(closed.expected["a", 0])]
    assert found_in(at_once) == closed.expected


# -- damage before valid frames -----------------------------------------------------------------------


def middle_frame(path: Path) -> Frame:
    frames = full_frames(path)
    return frames[len(frames) // 2]


def test_flipped_payload_bit_before_valid_frames_is_reported(crashed: Case) -> None:
    crashed.fresh()
    frame = max(full_frames(crashed.last)[:3], key=lambda frame: frame.header.count)
    flip_bit(crashed.last, frame.header.end - 1)
    error = reported(crashed.home)
    assert error.file == str(crashed.last)
    assert frame.payload_start <= error.position < frame.header.end


def test_flipped_header_bit_before_valid_frames_is_reported(crashed: Case) -> None:
    crashed.fresh()
    position = full_frames(crashed.last)[1].header.position
    flip_bit(crashed.last, position + 30)
    error = reported(crashed.home)
    assert error.file == str(crashed.last)
    assert align_up(error.position) == position


def test_zeroed_block_before_valid_frames_is_reported(crashed: Case) -> None:
    crashed.fresh()
    position = full_frames(crashed.last)[1].header.position
    overwrite(crashed.last, position // BLOCK_BYTES * BLOCK_BYTES, bytes(BLOCK_BYTES))
    assert reported(crashed.home).file == str(crashed.last)


def test_zeroed_begin_of_the_last_segment_before_valid_frames_is_reported(crashed: Case) -> None:
    crashed.fresh()
    path = crashed.last
    overwrite(path, 0, bytes(DATA_START + BLOCK_BYTES))
    assert reported(crashed.home).file == str(path)


def test_flipped_bit_in_the_last_frame_is_ignored_in_a_store_that_was_not_closed(crashed: Case) -> None:
    """Nothing says that it was ever durable: it is a torn tail."""
    crashed.fresh()
    end = full_frames(crashed.last)[-1].header.end
    overwrite(crashed.last, end, bytes(crashed.last.stat().st_size - end))  # no mark vouches for it
    flip_bit(crashed.last, end - 1)
    rows = found_in(crashed.home)
    assert is_prefix(rows, crashed.expected)
    assert count(rows) == count(crashed.expected) - 1


def test_cut_tail_of_a_closed_store_is_reported(closed: Case) -> None:
    closed.fresh()
    path = closed.last
    end = max(frame.header.end for frame in frames_of(path))
    for cut in range(DATA_START, end, 97):
        closed.fresh()
        with path.open("r+b") as file:
            file.truncate(cut)
        assert reported(closed.home).file == str(path)


def test_missing_segment_is_reported(long_closed: Case) -> None:
    for sequence in (2, 3, 5):
        long_closed.fresh()
        segment_path(long_closed.home, sequence).unlink()
        assert reported(long_closed.home).file == str(segment_path(long_closed.home, sequence))


def test_truncated_sealed_segment_is_reported(long_closed: Case) -> None:
    for size in (0, 100, BLOCK_BYTES, DATA_START, DATA_START + 1000, 40_000, 60_000):
        long_closed.fresh()
        path = segment_path(long_closed.home, 2)
        with path.open("r+b") as file:
            file.truncate(size)
        assert reported(long_closed.home).file == str(path)


def test_damaged_footer_of_the_newest_sealed_segment_is_reported(long_closed: Case) -> None:
    long_closed.fresh()
    path = [path for path in segment_paths(long_closed.home) if (seal := seal_of(path)) and seal.state == SEALED][-1]
    record = seal_of(path)
    assert record is not None
    flip_bit(path, record.footer_position + 30)
    assert reported(long_closed.home).file == str(path)


def test_damaged_seal_record_is_reported_or_recovered_from(long_closed: Case) -> None:
    for sequence in range(1, len(segment_paths(long_closed.home)) + 1):
        long_closed.fresh()
        path = segment_path(long_closed.home, sequence)
        flip_bit(path, BLOCK_BYTES + 20)
        assert seal_of(path) is None
        try:
            assert found_in(long_closed.home) == long_closed.expected
        except StoreCorrupt as error:
            assert error.file == str(path)


def test_damaged_store_file_is_reported(closed: Case) -> None:
    path = closed.home / "STORE"
    for damage in (lambda: flip_bit(path, 20), lambda: path.write_bytes(b""), lambda: overwrite(path, 0, bytes(64))):
        closed.fresh()
        damage()
        with pytest.raises(StoreCorrupt) as caught:
            MessageStore.open(closed.home, TINY)
        assert (caught.value.file, caught.value.position) == (str(path), 0)


def test_missing_store_file_is_an_error(closed: Case) -> None:
    closed.fresh()
    (closed.home / "STORE").unlink()
    with pytest.raises(StoreError):
        MessageStore.open(closed.home, TINY)


@pytest.mark.parametrize("at", [0, 20, 40])
def test_damaged_header_of_a_closed_stores_only_segment_is_reported(closed: Case, at: int) -> None:
    closed.fresh()
    path = closed.last
    flip_bit(path, at)
    error = reported(closed.home)
    assert (error.file, error.position) == (str(path), 0)


def test_damaged_header_of_a_single_message_store_is_reported(folder: Path) -> None:
    def story(store: MessageStore) -> Rows:
        expected: Rows = {}
        put(store, expected, "a", 0, b"only")
        return expected

    case = make_case(folder, story, closed=True)
    for flipped in (True, False):
        path = segment_path(case.fresh(), 1)
        if flipped:
            flip_bit(path, 20)
        else:
            overwrite(path, 0, bytes(BLOCK_BYTES))
        assert reported(case.home).file == str(path)


@pytest.mark.parametrize("sequence", [1, 2, 4])
def test_damaged_header_of_a_sealed_segment_is_reported(long_closed: Case, sequence: int) -> None:
    long_closed.fresh()
    path = segment_path(long_closed.home, sequence)
    flip_bit(path, 30)
    assert reported(long_closed.home).file == str(path)


def test_foreign_files_in_a_lane_are_left_alone(closed: Case) -> None:
    closed.fresh()
    for name in ("notes.txt", "x.seg", "1.seg.bak"):
        (closed.home / "lane-00" / name).write_text("mine")
    assert found_in(closed.home) == closed.expected
    assert (closed.home / "lane-00" / "notes.txt").read_text() == "mine"
    assert (closed.home / "lane-00" / "x.seg").read_text() == "mine"


# -- a flipped bit in every field ---------------------------------------------------------------------


def some_bytes(case: Case, path: Path, begin: int, end: int) -> Iterator[int]:
    """Flip one bit of one byte of `EVERY` in turn, in a fresh copy."""
    content = path.read_bytes()
    for at in range(begin + draw_seed() % EVERY, end, EVERY):
        changed = bytearray(content)
        changed[at] ^= 1 << at * 5 % 8
        put_snapshot({**case.snapshot, str(path.relative_to(case.home)): bytes(changed)}, case.home)
        yield at


def test_flipped_bit_anywhere_in_a_footer_costs_no_message(long_closed: Case) -> None:
    long_closed.fresh()
    path = segment_path(long_closed.home, 2)
    record = seal_of(path)
    assert record is not None
    for _ in some_bytes(long_closed, path, record.footer_position, record.footer_position + record.footer_bytes):
        assert found_in(long_closed.home) == long_closed.expected


# -- damage while the store is open -------------------------------------------------------------------


@pytest.mark.parametrize("way", ["read", "read_batch", "get_range", "scan"])
def test_damage_found_while_reading_is_reported(long_closed: Case, way: str) -> None:
    """A read ends before the damage, and the next one raises at it."""
    long_closed.fresh()
    path = segment_path(long_closed.home, 2)
    frame = middle_frame(path)
    with MessageStore.open(long_closed.home, TINY) as store:
        flip_bit(path, frame.payload_start + 1)
        with pytest.raises(StoreCorrupt) as caught:
            for topic, queue in QUEUES:
                if way == "scan":
                    list(store.scan())
                    continue
                at, end = store.queue_bounds(topic, queue)
                while at < end:
                    found = calls_that_read(store)[way](topic, queue, at, max_messages=1000)
                    assert len(found)
                    at += len(found)
        assert caught.value.file == str(path)
        assert frame.header.position <= caught.value.position < frame.header.end
        topic, queue = QUEUES[0]
        assert store.append(topic, queue, b"on") == len(long_closed.expected[topic, queue])
