"""Frames that a reader in another process decodes together: as the one by one, whatever their sizes."""

from __future__ import annotations

import random
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import MessageStore, StoreCorrupt
from stratalog.store.format.frame import Definition, encode_columns, frame_of
from stratalog.store.format.layout import DATA_START, FRAME_HEADER_BYTES, FrameHead, FrameHeader
from stratalog.store.live import tail as tail_module
from stratalog.store.live.plain_frames import FEW_MESSAGES, decode_plain, is_plain
from stratalog.store.segment.open_table import entry_columns

from ..seeds import draw_seed
from .helpers import small


def head_of(numbers: list[int], sizes: list[int], position: int, defined: list[Definition], lie: int = 0) -> FrameHead:
    """A frame's head; with `lie` its header has so many bytes of payload more than its messages."""
    offsets = array("q", range(len(numbers)))
    columns = encode_columns(numbers, [bytes(size) for size in sizes], sizes, offsets, None, defined)
    size = FRAME_HEADER_BYTES + len(columns.packed)
    header = FrameHeader(columns.flags, 0, size, len(numbers), sum(sizes) + lie, 0, 1, position, 1000, 0, 0, 0, 0)
    return FrameHead(header, columns.packed, 0)


@pytest.mark.parametrize("most", [5, 3 * FEW_MESSAGES])
def test_frames_together_are_the_same_as_one_by_one(most: int) -> None:
    draw = random.Random(draw_seed())
    heads, position = [], DATA_START
    for _ in range(10):
        count = draw.randint(1, most)
        numbers = [draw.randrange(300) for _ in range(count)]
        heads.append(head_of(numbers, [draw.choice((0, 1, 700)) for _ in numbers], position, []))
        position = heads[-1].header.end + draw.choice((0, 512))
    frames = [frame for frame in map(frame_of, heads) if frame is not None]
    rows = np.concatenate(
        [entry_columns(frame.starts(), frame.lengths.astype(np.int64), frame.checksums) for frame in frames]
    )
    found = decode_plain(heads)
    assert found is not None and all(map(is_plain, heads))
    assert np.array_equal(np.asarray(found.rows), rows)
    assert list(found.last_ends) == (frames[-1].starts() + frames[-1].lengths).tolist()
    highest = max(int(frame.numbers.max()) for frame in frames)
    assert found.has(highest) == (highest, True)
    assert found.has(highest + 1) == (highest, False)
    assert found.has(-1) == (highest, False)


def test_frames_with_more_than_the_four_columns_are_not_plain() -> None:
    assert is_plain(head_of([1], [10], DATA_START, []))
    assert not is_plain(head_of([70_000], [10], DATA_START, []))
    assert not is_plain(head_of([1], [70_000], DATA_START, []))
    assert not is_plain(head_of([1], [10], DATA_START, [Definition(1, "t", 0)]))
    assert not is_plain(head_of([], [], DATA_START, []))


@pytest.mark.parametrize("count", [2, 2 * FEW_MESSAGES])
def test_sizes_that_do_not_agree_are_seen(count: int) -> None:
    good = head_of([1] * count, [5] * count, DATA_START, [])
    assert decode_plain([good, head_of([1] * count, [5] * count, DATA_START, [], lie=1)]) is None


def test_walk_goes_back_to_a_frame_that_makes_no_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken stays, nothing is taken twice, and the walk goes on when the frame is whole again."""
    with MessageStore.open(tmp_path, small()) as store, MessageStore.open(tmp_path, read_only=True) as reader:
        store.append("t", 0, b"first")
        assert reader.queue_bounds("t", 0) == (0, 1)
        with monkeypatch.context() as patch:
            patch.setattr(tail_module, "decode_plain", lambda heads: None)
            store.append("t", 0, b"second")
            with pytest.raises(StoreCorrupt):
                reader.queue_bounds("t", 0)
        store.append("t", 0, b"third")
        follower: Any = vars(reader)["_fetcher"].follower
        follower.follow()
        assert [message.data for message in reader.read("t", 0)] == [b"first", b"second", b"third"]


def test_many_frames_are_taken_in_groups_with_records_and_definitions_between(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(segment_bytes=4 << 20)) as store:
        store.append("t", 0, b"0")
        with MessageStore.open(tmp_path, read_only=True) as reader:
            for at in range(1, 3 * tail_module.TOGETHER):
                store.append("t", 0, b"%d" % at)
                if at % 50 == 0:
                    store.append("u", at, b"a new queue")
                    store.trim("t", 0, at)
            first, following = reader.queue_bounds("t", 0)
            assert (first, following) == store.queue_bounds("t", 0)
            assert [int(message.data) for message in reader.read("t", 0, first, max_messages=1000)] == list(
                range(first, following)
            )
            assert reader.queues("u") == store.queues("u")
