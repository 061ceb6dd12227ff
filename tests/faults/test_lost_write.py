"""Of two writes that were with the device at once, a power cut takes the first and leaves the second.

The second one's frames say in their marks how far the device had the log when they were built. Where writes end inside
of messages (trim), so may the first of these: the log then ends before that message, and nothing is damaged.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from stratalog.store import MessageStore, verify_folder
from stratalog.store.format.frame import Frame
from stratalog.store.format.layout import align_down, align_up
from stratalog.store.testing import Kind
from tests.store.disks import WatchedDisk
from tests.store.helpers import Snapshot, contents, frames_of, put_snapshot, segment_path, small, start, take_snapshot

from ..seeds import draw_seed

PRODUCERS = 6
MESSAGES = 60
WRITE_S = 0.001
FILLS = 50  # the first is enough nearly always; whether two writes meet is up to the machine
CRASHES = 20
SEGMENT = "lane-00/000000000001.seg"


class SlowDisk(WatchedDisk):
    """Writes take a while, so that many are under way at once."""

    def meet(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> None:
        if kind == "write":
            time.sleep(WRITE_S)  # the slowness of the disk


def fill(path: Path, alignment: str, seed: int) -> Snapshot:
    """What a store of one segment has on disk before it is closed; flushes overlap with the writes before them."""
    config = small(alignment=alignment, segment_bytes=2 << 20)
    with MessageStore.open(path, config, disk=SlowDisk()) as store:

        def produce(number: int) -> None:
            chance = random.Random(f"{seed}:{number}")
            for index in range(MESSAGES):
                store.append("t", number, b"%d" % index * chance.randrange(1, 2000))
                if chance.random() < 0.3:
                    store.flush()

        for worker in [start(produce, number) for number in range(PRODUCERS)]:
            worker.join()
        return take_snapshot(path)


def first_lost(frames: Sequence[Frame], index: int) -> int | None:
    """Where the write begins that was under way when this frame was built; None if no other was."""
    lost, begins = align_up(frames[index].header.durable_position), align_down(frames[index].header.position)
    return lost if 0 < lost < begins and frames[index - 1].header.end <= begins else None


@pytest.mark.parametrize("alignment", ["pad", "trim", "adaptive"])
def test_first_of_two_writes_can_be_lost_without_a_report_of_damage(tmp_path: Path, alignment: str) -> None:
    seed = draw_seed()
    tried = 0
    for again in range(FILLS):
        whole = fill(tmp_path / f"{again}", alignment, seed + again)
        frames = frames_of(segment_path(put_snapshot(whole, tmp_path / "whole"), 1))
        for index in range(1, len(frames)):
            lost = first_lost(frames, index)
            if lost is not None and tried < CRASHES:
                check(put_snapshot(without(whole, lost, frames[index]), tmp_path / "left"), frames, lost)
                tried += 1
        if tried:
            break
    print(tried, "lost writes")
    assert tried, "no two writes were under way at once"


def without(whole: Snapshot, lost: int, newest: Frame) -> Snapshot:
    """The store when the write from `lost` on never came to the device, and that of the newest frame did."""
    content, end = bytearray(whole[SEGMENT]), newest.header.end
    begins = align_down(newest.header.position)
    content[lost:begins] = bytes(begins - lost)
    content[end:] = bytes(len(content) - end)
    return {**whole, SEGMENT: bytes(content)}


def check(left: Path, frames: Sequence[Frame], lost: int) -> None:
    """Everything before the lost write is there, and nothing is called damaged."""
    durable = sum(
        at + length <= lost
        for frame in frames
        for at, length in zip(frame.starts().tolist(), frame.lengths.tolist(), strict=True)
    )
    assert verify_folder(left).ok
    with MessageStore.open(left, small()) as store:
        found = contents(store, [("t", number) for number in range(PRODUCERS)])
        assert sum(map(len, found.values())) == durable
