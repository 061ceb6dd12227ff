"""What recovery, verify and inspect do grows with the segments, and what is done with records with the records.

Steps are counted, not seconds: lines of the package's code, comparisons of files, and elements of walks over lists.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import stratalog.store
from stratalog.store import MessageStore, inspect_folder, verify_folder
from stratalog.store.format import footer
from stratalog.store.format.frame import Frame, encode_columns, frame_of
from stratalog.store.format.layout import FRAME_HEADER_BYTES, LOST_ENTRY, FrameHeader, check_frame_head
from stratalog.store.recovery import lane_recovery
from stratalog.store.recovery.used_file import UsedFile
from stratalog.store.segment import sealed
from stratalog.store.segment.files import SegmentFile
from stratalog.store.segment.scanner import records_in

from .helpers import crash_copy, memory_folder, tiny, until

FEW, TIMES = 10, 4
NAMES = 30
PACKAGE = str(Path(stratalog.store.__file__).parent)  # as its code names its files


def reopen(path: Path) -> None:
    MessageStore.open(path, tiny()).close()


def verify(path: Path) -> None:
    assert verify_folder(path).damages == []


def inspect(path: Path) -> None:
    assert inspect_folder(path)["verdict"] == "healthy"


CALLS = [reopen, verify, inspect]


@pytest.fixture(scope="module")
def stores() -> Iterator[Callable[[int], Path]]:
    """Makes a store of about so many segments, as a crash leaves it."""
    with memory_folder() as folder:

        def made(segments: int) -> Path:
            path = folder / str(segments)
            if not path.exists():
                with MessageStore.open(folder / f"open-{segments}", tiny()) as store:
                    for number in range(segments):
                        store.append(f"topic {number % NAMES}", 0, bytes(40_000))
                    until(lambda: not store._upkeep.sealer._full)
                    crash_copy(folder / f"open-{segments}", path)
            return path

        yield made


class Walked(deque[Any]):
    """A list of what is still to come that counts how many of its elements are walked over."""

    steps = 0

    def __iter__(self) -> Iterator[Any]:
        for one in super().__iter__():
            Walked.steps += 1
            yield one


def steps_of(call: Callable[[Path], None], path: Path) -> Counter[str]:
    """What a call does, by kind."""
    steps: Counter[str] = Counter()

    def line(frame: FrameType, event: str, _given: Any) -> Any:
        steps["lines"] += event == "line"
        return line

    def called(frame: FrameType, _event: str, _given: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def equal(one: Any, other: Any) -> bool:
        steps["compared"] += 1
        return tuple.__eq__(one, other)

    Walked.steps = 0
    decompress = zlib.decompressobj

    def decoded() -> Any:
        steps["names decoded"] += 1
        return decompress()

    with (
        patch.object(SegmentFile, "__eq__", equal), patch.object(UsedFile, "__eq__", equal),
        patch.object(lane_recovery, "deque", Walked), patch("zlib.decompressobj", decoded),
    ):  # fmt: skip
        before = sys.gettrace()
        sys.settrace(called)
        try:
            call(path)
        finally:
            sys.settrace(before)
    steps["walked"] = Walked.steps
    return steps


@pytest.mark.parametrize("call", CALLS)
def test_steps_grow_with_the_segments(stores: Callable[[int], Path], call: Callable[[Path], None]) -> None:
    few, many = steps_of(call, stores(FEW)), steps_of(call, stores(TIMES * FEW))
    assert few["lines"] > 100 * FEW / 4, "the package's code is counted"
    for kind, steps in many.items():
        assert steps <= 1.5 * TIMES * few[kind] + 10, f"{kind}: {few[kind]} and {steps}"


@pytest.mark.parametrize("call", CALLS)
def test_names_of_a_footer_are_decoded_once(stores: Callable[[int], Path], call: Callable[[Path], None]) -> None:
    """And the newest once more by each opening: verify asks one, inspect two."""
    steps = steps_of(call, stores(TIMES * FEW))
    assert 0 < steps["names decoded"] <= TIMES * FEW + 2


def frame_with(count: int) -> Frame:
    """A frame of so many messages of one stream."""
    columns = encode_columns([0] * count, [b"x"] * count, [1] * count, array("q", range(count)), None, [])
    size = FRAME_HEADER_BYTES + len(columns.packed)
    header = FrameHeader(columns.flags, 0, size, count, count, 0, 1, 8192, 0, 0, 0, 0, 0)
    head = check_frame_head(header, header.seal(columns.packed)[0])
    assert head is not None
    frame = frame_of(head)
    assert frame is not None
    return frame


@pytest.mark.parametrize("count", [100, 400])
def test_places_of_a_frames_messages_are_summed_up_once_for_all_of_its_records(count: int) -> None:
    frame, sums, starts = frame_with(count), [0], Frame.starts

    def counted(one: Frame) -> Any:
        sums[0] += 1
        return starts(one)

    with patch.object(Frame, "starts", counted):
        found = list(records_in(frame, memoryview(b"x" * count), 0, np.ones(count, np.bool_)))
    assert len(found) == count
    assert sums == [1]


def test_heads_of_a_segment_with_a_lost_message_are_looked_at_together_once(tmp_path: Path) -> None:
    """However often they are dropped and read again: a look costs as much as all of the segment."""
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(40):
            store.append_batch([("t", 0, bytes(2000))])
    with MessageStore.open(tmp_path, tiny()) as store, patch.object(sealed, "joined_heads") as joined:
        joined.side_effect = lambda index, count: None
        one = store._lanes[0].view.sealed[0]
        index = one.index
        entries = index.footer.entries.copy()
        entries[3] = LOST_ENTRY
        index.footer.stored[footer.ENTRIES] = entries
        frames = range(len(index.frame_entry))
        for _ in range(3):
            for frame in frames:
                one.head(index, None, frame)
            for frame in frames:
                del index.heads[frame]
                one.head(index, None, frame)
        assert joined.call_count == 1
