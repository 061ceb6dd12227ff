"""Sealed segments and their readers: what is held open, what is held in memory, what is decoded how often."""

from __future__ import annotations

import errno
import json
import os
import random
import threading
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import MessageStore, StoreCorrupt, StoreError, StoreUnreadable
from stratalog.store.device import open_files as opened
from stratalog.store.device.log_file import LogFile
from stratalog.store.device.os_file import OsFile
from stratalog.store.device.ring import Ring
from stratalog.store.format import footer as footer_module
from stratalog.store.format.footer import Footer, FooterData
from stratalog.store.format.frame import Frame, OptionalColumns, _Optional
from stratalog.store.format.layout import BLOCK_BYTES, LOST_ENTRY
from stratalog.store.format.stored_column import StoredColumn
from stratalog.store.segment.held import HeldItem, HeldItems, HeldMemory
from stratalog.store.segment.index import Index
from stratalog.store.segment.sealed import LONG_RUN, SealedSegment
from stratalog.store.segment.segment import Segment

from .helpers import KIB, full_frames, overwrite, scanned, seal_of, segment_path, small, start, tiny, until

MOST = 16  # descriptors
FRAME = 40  # messages
FRAMES = 100

Forge = Callable[[Callable[[FooterData], FooterData]], MessageStore]


@pytest.fixture(autouse=True)
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "OPENED", deque())
    monkeypatch.setattr(opened, "MOST_DESCRIPTORS", MOST)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Of 50 sealed segments and more, in frames of 40 messages; one queue."""
    with MessageStore.open(tmp_path, tiny()) as filled:
        for frame in range(FRAMES):
            filled.append_batch([("t", 0, data_of(frame * FRAME + at)) for at in range(FRAME)])
    with MessageStore.open(tmp_path, tiny()) as reopened:
        yield reopened


def data_of(offset: int) -> bytes:
    return b"%d-" % offset * 160


def segments_of(store: MessageStore) -> Sequence[SealedSegment]:
    return store._lanes[0].view.sealed


# -- what is held open --------------------------------------------------------------------------------


def held_by(store: MessageStore) -> Counter[int]:
    """Who holds descriptors for readers, by identity."""
    return Counter(id(sealed.segment) for sealed in segments_of(store) if sealed.segment._data is not None)


def entries() -> Counter[int]:
    return Counter(id(entry()) for entry in opened.OPENED)


@pytest.mark.parametrize("most_messages", [3, FRAMES * FRAME])
def test_readers_of_many_segments_hold_no_more_descriptors_than_they_may(
    store: MessageStore, most_messages: int
) -> None:
    assert len(segments_of(store)) > 2 * MOST

    def read_at_random(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(400 if most_messages < FRAME else 4):
            first = chance.randrange(FRAMES * FRAME) if most_messages < FRAME else 0
            found = store.read_batch("t", 0, first, max_messages=most_messages)
            assert bytes(found.payload(0)) == data_of(first)
            assert bytes(found.payload(len(found) - 1)) == data_of(first + len(found) - 1)

    for worker in [start(read_at_random, seed) for seed in range(4)]:
        worker.join()
    assert sum(held_by(store).values()) <= MOST
    open_files = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if entry.is_symlink()]
    assert sum(name.startswith(str(store.path / "lane-")) for name in open_files) <= MOST + 1  # the one written to


def test_what_is_opened_again_after_it_was_let_go_is_counted_again(store: MessageStore) -> None:
    first, *others = segments_of(store)
    for _ in range(3):
        first.segment.read(0, 1)  # as by a run that was found before: without its footer
        assert entries()[id(first.segment)] == 1
        for sealed in others:
            sealed.segment.read(0, 1)
        assert first.segment._data is None


def test_footers_are_held_within_the_memory_for_segments_and_else_read_where_they_are_wanted(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footer_module, "HELD_PART", 1 << 40)  # the entries stay in the file
    held = store._lanes[0].index_memory
    for room in (16 << 20, 430):
        for sealed in segments_of(store):
            sealed.let_go()
        held.footers.limit_bytes = room
        for offset in range(0, FRAMES * FRAME, 61):
            assert store.get_range("t", 0, offset, 3) == {at: data_of(offset + at) for at in range(3)}
            assert held.footers.used_bytes <= room or len(held.footers.items) == 1
        in_file = [isinstance(sealed.index.first, StoredColumn) for sealed in segments_of(store)]
        assert any(in_file) == (room == 430)
        assert all(isinstance(sealed.index.entries, StoredColumn) for sealed in segments_of(store))
        assert scanned(store)["t", 0] == {at: data_of(at) for at in range(FRAMES * FRAME)}


# -- heads --------------------------------------------------------------------------------------------


def test_heads_that_two_readers_load_at_the_same_time_are_counted_once(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the count would creep up, until no head is held any more and each is decoded for every message."""
    sealed = max(segments_of(store), key=lambda sealed: len(sealed.footer.frame_position))
    assert len(sealed.footer.frame_position) > 1
    # Of its own: the store's background may yet keep the places of a segment that it seals.
    held = sealed._memory = HeldMemory(1)  # one head: there is never less
    both = threading.Barrier(2)
    decode = SealedSegment._frame
    decoded: list[int] = []

    def together(self: SealedSegment, index: Index, ring: Ring | None, frame: int) -> Frame:
        found = decode(self, index, ring, frame)
        decoded.append(frame)
        both.wait(60)
        return found

    monkeypatch.setattr(SealedSegment, "_frame", together)

    def load() -> None:
        for _ in range(5):
            for index in (0, 1):
                sealed.head(sealed.index, None, index)
                both.wait(60)

    for worker in [start(load) for _ in range(2)]:
        worker.join()
    assert decoded == [0, 0, 1, 1] * 5
    sealed.head(sealed.index, None, 1)
    assert len(decoded) == 20
    assert 0 < held.frames.used_bytes < 4 * KIB


@pytest.mark.parametrize("sealed", [False, True])
def test_a_frame_with_properties_is_decoded_once_however_many_reads_want_one_message_of_it(
    tmp_path: Path, sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its columns are as long as the frame: once a read would cost what all of them cost together."""
    with MessageStore.open(tmp_path, small(segment_bytes=256 * KIB)) as store:
        with store._lanes[0].viewing:  # the builder waits here for its first segment: all of these become one frame
            tickets = [
                store.submit("t", 0, b"data", key=b"key %d" % at, properties={"at": str(at)}) for at in range(1000)
            ]
        assert [ticket.result(60) for ticket in tickets] == list(range(1000))
        if sealed:
            store.append_batch([("t", 0, bytes(60 * KIB))] * 5)
            until(lambda: len(segments_of(store)) > 0)
        frames = len(full_frames(segment_path(tmp_path, 1)))
        index = _Optional.columns_by_row
        decoded: list[bytes] = []

        def noted(columns: _Optional) -> OptionalColumns:
            decoded.append(columns.columns)
            return index(columns)

        monkeypatch.setattr(_Optional, "columns_by_row", noted)
        for at in range(999, -1, -1):
            (message,) = store.read("t", 0, at, max_messages=1)
            assert (message.key, message.properties) == (b"key %d" % at, {"at": str(at)})
        batch = store.read_batch("t", 0, 0, max_messages=1000)
        assert batch.message(500).key == b"key 500"
        assert 0 < len(decoded) == len(set(decoded)) <= frames


# -- memory -------------------------------------------------------------------------------------------


def test_heads_of_all_segments_together_stay_within_the_budget(store: MessageStore) -> None:
    held = store._lanes[0].index_memory
    for _ in range(2):
        for offset in range(0, FRAMES * FRAME, 7):
            assert store.get_range("t", 0, offset, 1) == {0: data_of(offset)}
    figures = store.stats()["cache"]["held"]
    assert figures["frames"] > len(segments_of(store))
    assert figures["evicted_frames"] == 0
    assert 0 < held.frames.used_bytes == sum(item.size_bytes for item in held.frames.items)
    assert figures["used_bytes"] == held.frames.used_bytes + held.footers.used_bytes
    held.drop_places(0)  # a table of all places, which is larger than what follows allows
    limit = held.frames.used_bytes // 5
    held.frames.limit(limit)
    for offset in range(0, FRAMES * FRAME, 7):
        assert store.get_range("t", 0, offset, 1) == {0: data_of(offset)}
        assert held.frames.used_bytes <= limit
    figures = store.stats()["cache"]["held"]
    assert figures["evicted_frames"] > 0
    assert held.frames.used_bytes == sum(item.size_bytes for item in held.frames.items) > limit // 2


def test_memory_of_a_cold_pass_by_queue_is_what_the_figures_say(tmp_path: Path) -> None:
    """As the allocator counts it, not by our own count alone."""
    with MessageStore.open(tmp_path, small(segment_bytes=1 << 20)) as store:
        for frame in range(300):
            store.append_batch([("t", at % 20, b"%d" % frame * 30) for at in range(200)])
    with MessageStore.open(tmp_path, small(memory_limit_bytes=8 << 20)) as store:
        limit = store.stats()["cache"]["held"]["limit_bytes"]
        assert limit == store.stats()["cache"]["plan"]["index_cache_bytes"] < 300 * 200 * 20
        store.get_range("t", 0, 0, 10)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for queue in range(20):
            offset, end = store.queue_bounds("t", queue)
            while offset < end:
                offset += len(store.get_range("t", queue, offset, 32))
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        used = store.stats()["cache"]["held"]["used_bytes"]
        assert used <= limit
        # What is mapped has its objects too: a few KB for each of the segments.
        assert grown < limit + len(segments_of(store)) * 8 * KIB


def test_a_head_that_readers_use_outlives_those_that_they_pass_once() -> None:
    held: HeldItems[HeldItem] = HeldItems(10 * HeldItem(1000).size_bytes)
    homes: list[dict[int, HeldItem]] = [{}, {}]
    for number in range(100):
        held.keep(homes[number % 2], number, HeldItem(1000))
        homes[0][0].used = True
    kept = {**homes[0], **homes[1]}
    assert 0 in kept
    assert set(range(95, 100)) <= set(kept)
    assert set(kept.values()) == set(held.items)
    assert held.used_bytes <= held.limit_bytes
    assert held.evicted == 100 - len(held.items)
    held.clear()
    assert homes == [{}, {}]


# -- what no writer writes, with checksums that hold --------------------------------------------------


@pytest.fixture
def forged(tmp_path: Path) -> Forge:
    """A store whose first segment's footer is changed as a test wants it."""

    def forge(change: Callable[[FooterData], FooterData]) -> MessageStore:
        with MessageStore.open(tmp_path, tiny(segment_bytes=128 * KIB)) as store:
            store.append_batch([("t", 0, data_of(at)) for at in range(3 * FRAME)])
            store.submit("t", 0, data_of(3 * FRAME), key=b"key", properties={"a": "b"}).result(60)
            store.append_batch([("t", 1, bytes(60 * KIB))] * 3)
        path = segment_path(tmp_path, 1)
        record = seal_of(path)
        assert record is not None
        file = OsFile(path, create=False, direct=False)
        data = change(Footer(file, str(path), record).data())
        file.close()
        content = data.pack(1)
        overwrite(path, record.footer_position, content)
        overwrite(path, BLOCK_BYTES, record._replace(footer_bytes=len(content)).pack())
        return MessageStore.open(tmp_path, tiny(segment_bytes=128 * KIB))

    return forge


FRAME_COLUMNS = ("frame_position", "frame_entry", "frame_time", "frame_flags")
NONE, NO_TIMES, NO_FLAGS = np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.uint16)


@pytest.mark.parametrize("entry", [1, 1 << 31, (1 << 32) - 2, LOST_ENTRY])
@pytest.mark.parametrize("place", [0, 2, 50])
@pytest.mark.parametrize("limit", [1, LONG_RUN])
def test_an_entry_that_is_another_message_or_none_is_not_believed(
    forged: Forge, entry: int, place: int, limit: int
) -> None:
    """The frames say which message it is. A wrong checksum of the entries is nothing that opening looks at."""

    def change(data: FooterData) -> FooterData:
        entries = data.entries.copy()
        entries[place] = entry
        return replace(data, entries=entries)

    with forged(change) as store:
        if entry == LOST_ENTRY:  # a repair says so, with the right checksum
            assert place not in store.get_range("t", 0, 0, limit)
            return
        first = place if limit == 1 else 0
        assert store.get_range("t", 0, first, limit) == {at: data_of(first + at) for at in range(limit)}
        assert store.stats()["cache"]["held"]["remade_footers"] == 1


def test_messages_without_frames_in_the_footer_are_found_by_the_frames(forged: Forge) -> None:
    def without(data: FooterData) -> FooterData:
        return replace(
            data, frame_position=NONE, frame_entry=NONE, frame_time=NO_TIMES, frame_flags=NO_FLAGS
        )  # fmt: skip

    with forged(without) as store:
        with pytest.raises(StoreCorrupt, match="table of frames"):
            list(store.scan())
        assert store.get_range("t", 0, 0, 1) == {0: data_of(0)}
        assert scanned(store)["t", 0][0] == data_of(0)


@pytest.mark.parametrize("frame", [0, 1])
def test_a_scan_passes_over_no_frame_that_the_footer_leaves_out(forged: Forge, frame: int) -> None:
    def change(data: FooterData) -> FooterData:
        counts = np.diff(data.frame_entry.astype(np.int64), append=len(data.entries))
        left_out = np.flatnonzero(counts)[frame]  # of those with messages
        columns: dict[str, Any] = {name: np.delete(getattr(data, name), left_out) for name in FRAME_COLUMNS}
        return replace(data, **columns)

    with forged(change) as store, pytest.raises(StoreCorrupt, match="table of frames"):
        list(store.scan())


def test_reader_that_still_has_a_distrusted_footer_leaves_no_heads_behind(forged: Forge) -> None:
    """Its frames have other numbers than those of the footer that is made of the frames."""
    with forged(lambda data: replace(data, **{name: getattr(data, name)[1:] for name in FRAME_COLUMNS})) as store:
        sealed = segments_of(store)[0]
        index = sealed.index
        sealed.distrust("a test")
        assert sealed.head(index, None, 0).first_entry > 0
        assert store.get_range("t", 0, 0, 3) == {at: data_of(at) for at in range(3)}


def test_properties_that_are_no_json_are_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "dumps", lambda *given, **named: "{no JSON")
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append_batch([("t", 0, b"first")] * 3)
        store.append("t", 0, b"data", properties={"a": "b"})
        assert len(store.read("t", 0)) == 3
        with pytest.raises(StoreCorrupt, match="properties") as caught:
            store.read("t", 0, 3)
        assert caught.value.file == str(segment_path(tmp_path, 1))
        content = segment_path(tmp_path, 1).read_bytes()
        assert content[caught.value.position :].startswith(b"data")
        with pytest.raises(StoreError, match="offset 3"):
            store.read_batch("t", 0).message(3)


def test_where_the_process_has_no_descriptor_left_others_let_go(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads inside of reads hold more than those that are counted."""
    segments = segments_of(store)
    real, left = Segment._opened_to_read, [0]

    def opened_to_read(segment: Segment) -> LogFile:
        if len(held_by(store)) >= left[0]:
            raise OSError(errno.EMFILE, "too many open files")
        return real(segment)

    for number in range(MOST // 2 + 3):
        assert store.get_range("t", 0, number * FRAME, 1)
    left[0] = len(held_by(store))
    assert left[0] > MOST // 2
    monkeypatch.setattr(Segment, "_opened_to_read", opened_to_read)
    for number in range(len(segments) - 3, len(segments)):
        offset = segments[number].first_of(0)[0]
        assert store.get_range("t", 0, offset, 1) == {0: data_of(offset)}
    left[0] = 0
    for segment in segments:
        segment.let_go()
        segment.segment.let_go()
    with pytest.raises(StoreUnreadable, match="too many"):
        store.get_range("t", 0, 0, 1)
