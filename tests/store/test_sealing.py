"""Sealing: the footer made of stream numbers says what the table's rows say, and little is left behind."""

from __future__ import annotations

import errno
import gc
import weakref
import zlib
from array import array
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.store import MessageStore, verify_folder
from stratalog.store.device.os_file import OsFile
from stratalog.store.format.footer import FooterData, by_stream, pack_names
from stratalog.store.format.layout import SEALED, WIDE_NUMBERS, SealRecord
from stratalog.store.log.offsets import NextOffsets
from stratalog.store.log.streams import Stream
from stratalog.store.log.written_lane import WrittenLane
from stratalog.store.segment.open_table import OpenTable, entry_rows
from stratalog.store.segment.sealing import STEP_STREAMS, StreamNames, let_go, make_footer, rows_of
from stratalog.store.segment.writer import SegmentWriter

from .helpers import contents, crash_copy, segment_path, small, tiny, until

Frames = list[list[int]]  # the stream numbers of each frame's messages


def streams_of(count: int) -> list[Stream]:
    """A lane's streams by number, a few a topic."""
    nobody = cast(Any, None)
    return [Stream(f"topic-{number // 3}", number % 3, nobody, number) for number in range(count)]


def fill(offsets: NextOffsets, frames: Frames, wide: bool) -> OpenTable:
    """A table with these frames, as a lane fills it; with `wide`, every other one has wide numbers."""
    table = OpenTable(offsets.column())
    position = 8192
    for index, numbers in enumerate(frames):
        offsets.give(numbers)
        flags = WIDE_NUMBERS if wide and index % 2 else 0
        ones = array("I", [1] * len(numbers))
        rows = entry_rows(list(range(len(numbers))), ones, ones)
        table.add_frame(position, index, flags, array("I" if flags else "H", numbers).tobytes(), rows)
        position += 1000
    table.visible = table.entries
    return table


def check(data: FooterData, table: OpenTable, streams: list[Stream], offsets: NextOffsets) -> None:
    """The footer against the table's rows."""
    for number, stream in enumerate(streams):
        assert data.topics[data.stream_topic[number]] == stream.topic
        assert data.stream_queue[number] == stream.queue_id
        first, entries = table.row(number) or (offsets[number], array("I"))
        assert data.first[number] == first
        assert data.entries[data.start[number] : data.start[number + 1]].tolist() == entries.tolist()
    assert data.frame_position.tolist() == table.frame_position.tolist()
    assert data.frame_entry.tolist() == table.frame_entry.tolist()
    assert data.frame_time.tolist() == table.frame_time.tolist()
    assert data.frame_flags.tolist() == table.frame_flags.tolist()


NUMBERS = st.lists(st.lists(st.integers(0, 11), max_size=9), max_size=6)


@given(NUMBERS, NUMBERS, st.booleans())
def test_footer_says_what_the_rows_say(earlier: Frames, frames: Frames, wide: bool) -> None:
    streams, names, offsets = streams_of(12), StreamNames(), NextOffsets(np.zeros(12))
    names.add(streams[:7], lambda: None)  # some are known from before, some are new
    names.add(streams, lambda: None)
    before = make_footer(fill(offsets, earlier, wide), names, None)
    table = fill(offsets, frames, wide)
    check(make_footer(table, names, before), table, streams, offsets)


def test_streams_join_in_steps_and_names_are_packed_once() -> None:
    streams, names, pauses = streams_of(2 * STEP_STREAMS + 1), StreamNames(), []
    names.add(streams, lambda: pauses.append(len(names.columns()[0])))
    assert pauses == [STEP_STREAMS, 2 * STEP_STREAMS, 2 * STEP_STREAMS + 1]
    assert list(names.topics) == list(dict.fromkeys(stream.topic for stream in streams))
    assert names.packed == pack_names(names.topics)
    packed = names.packed
    names.add(streams, lambda: None)
    assert names.packed is packed


@given(st.lists(st.sampled_from([0, 1, 7, 65_535, 65_536, 65_537, 1 << 31]), max_size=60))
def test_order_by_stream_is_that_of_a_stable_sort(values: list[int]) -> None:
    numbers = np.array(values, np.uint32)
    assert by_stream(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()


def test_rows_outlive_their_table_and_are_freed_in_steps() -> None:
    table = fill(NextOffsets(np.zeros(STEP_STREAMS + 2)), [list(range(STEP_STREAMS + 2))], wide=False)
    assert table.row(0) is not None  # somebody has read from it
    rows, gone = rows_of(table), weakref.ref(table)
    del table
    assert gone() is None
    assert [len(part) for part in rows] == [STEP_STREAMS, 2]
    let_go(rows)
    assert rows == []


def test_quiet_stream_does_not_keep_the_table_of_a_sealed_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[weakref.ref[OpenTable]] = []
    begin = WrittenLane.begin

    def noting(lane: WrittenLane, *given: Any) -> None:
        begin(lane, *given)
        tables.append(weakref.ref(lane.table))

    monkeypatch.setattr(WrittenLane, "begin", noting)
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        store.append("quiet", 0, b"once")
        while len(tables) < 4:
            store.append_batch([("loud", 0, bytes(1000))] * 20)
        until(lambda: store.stats()["segments"]["sealed"] >= 3)
        gc.collect()
        until(lambda: tables[0]() is None)
        assert store.get_range("quiet", 0, 0, 1) == {0: b"once"}


def test_segments_sealed_one_after_the_other_lose_nothing(tmp_path: Path) -> None:
    queues = [(f"topic-{index % 40}", index) for index in range(600)]
    written: dict[tuple[str, int], dict[int, bytes]] = {queue: {} for queue in queues}
    rng = np.random.default_rng(5)
    with MessageStore.open(tmp_path / "store", small()) as store:
        for turn in range(30):
            known = queues[: 20 * (turn + 1)]  # streams join all the time
            drawn = [known[index] for index in rng.integers(0, len(known), 50).tolist()]
            items = [(*queue, b"%d-%d" % (turn, index) * 60) for index, queue in enumerate(drawn)]
            for queue, item, offset in zip(drawn, items, store.append_batch(items).tolist(), strict=True):
                written[queue][offset] = item[2]
        assert contents(store, queues) == written
    with MessageStore.open(tmp_path / "store", small()) as store:
        assert store.stats()["segments"]["sealed"] >= 1
        assert contents(store, queues) == written


def test_names_are_whole_after_an_error_in_the_middle_of_learning_them() -> None:
    """A footer that is made at the second attempt names all topics."""

    def fail() -> None:
        raise OSError("in the middle")

    streams = [Stream.__new__(Stream) for _ in range(3)]
    for number, stream in enumerate(streams):
        stream.topic, stream.queue_id = f"topic {number}", number
    names = StreamNames()
    with pytest.raises(OSError, match="in the middle"):
        names.add(streams, fail)
    names.add(streams, lambda: None)
    topics, queues = names.columns()
    assert zlib.decompress(names.packed).decode().split("\0") == [stream.topic for stream in streams]
    assert (topics.tolist(), queues.tolist()) == ([0, 1, 2], [0, 1, 2])


def test_a_seal_that_is_made_again_has_no_record_of_the_footer_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt fails behind its record, the second has more streams: each crash in it leaves a store."""
    real_seal, real_truncate, failed, copies = SegmentWriter.write_seal, OsFile.truncate, list[bool](), list[Path]()
    acknowledged: list[int] = []
    names = [(f"a topic with a long name {at:04}", 0, b"x") for at in range(500)]

    def write_seal(self: SegmentWriter, record: SealRecord | None) -> None:
        real_seal(self, record)
        if record is not None and record.state == SEALED and not failed:
            failed.append(True)
            store.append_batch(names)
            raise OSError(errno.EIO, "for the test")

    def truncate(self: OsFile, size: int) -> None:
        if failed and self.path == segment_path(tmp_path / "a", 1) and not copies:
            acknowledged.append(store.queue_bounds("t", 0)[1])
            copies.append(crash_copy(tmp_path / "a", tmp_path / "b"))
        real_truncate(self, size)

    monkeypatch.setattr(SegmentWriter, "write_seal", write_seal)
    monkeypatch.setattr(OsFile, "truncate", truncate)
    with MessageStore.open(tmp_path / "a", tiny()) as store:
        while len(store._lanes[0].view.open) < 2:  # no more: a sealer that appends must not wait for itself
            store.append("t", 0, bytes(8000))
        until(lambda: bool(copies))
        appended = store.queue_bounds("t", 0)[1]
    with MessageStore.open(tmp_path / "b", read_only=True) as reader:  # in a copy: what frames and seals prove
        assert reader.queue_bounds("t", 0)[1] <= appended
    with MessageStore.open(tmp_path / "b", tiny()) as store:
        assert acknowledged[0] <= store.queue_bounds("t", 0)[1] <= appended
    assert verify_folder(tmp_path / "b").damages == []
