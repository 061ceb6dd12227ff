"""Damage in a segment whose last frame was torn once and cut by recovery: its other messages were never there.

Their offsets were given again, to messages of the next segment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import MessageStore, verify_folder
from stratalog.store.format.layout import BLOCK_BYTES
from stratalog.store.recovery.repair import Loss

from .helpers import crash_copy, flip_bit, full_frames, overwrite, segment_path, segment_paths, tiny

TINY = tiny()
QUEUE = ("t", 0)
KEPT = 13  # messages of the first segment: ten, and three of a torn frame of eight


@pytest.fixture(params=["crashed", "closed", "sealed"])
def cut(folder: Path, request: pytest.FixtureRequest) -> tuple[Path, dict[int, bytes]]:
    """A store with a cut frame in its first segment, its second one as the name says; and its messages."""
    with MessageStore.open(folder / "made", TINY) as store:
        store.append_batch([(*QUEUE, b"A%04d" % index * 20) for index in range(10)])
        store.append_batch([(*QUEUE, b"B%04d" % index * 400) for index in range(8)])
        torn = crash_copy(folder / "made", folder / "torn")
    overwrite(segment_path(torn, 1), int(full_frames(segment_path(torn, 1))[1].starts()[3]), bytes(10_000))
    with MessageStore.open(torn, TINY) as store:
        assert store.queue_bounds(*QUEUE) == (0, KEPT)
        for index in range(6):
            assert store.append(*QUEUE, b"C%04d" % index * 20) == KEPT + index
        if request.param == "sealed":
            store.append_batch([(*QUEUE, bytes([index]) * 900) for index in range(100)])
        _, end = store.queue_bounds(*QUEUE)
        expected = store.get_range(*QUEUE, 0, end)
        assert len(expected) == end
        path = crash_copy(torn, folder / "crashed")
    assert (len([at for at in segment_paths(path) if full_frames(at)]) > 2) == (request.param == "sealed")
    return torn if request.param == "closed" else path, expected


def test_one_bad_message_costs_that_one_alone(cut: tuple[Path, dict[int, bytes]]) -> None:
    path, expected = cut
    victim = segment_path(path, 1)
    for frame, message, offset in ((0, 2, 2), (1, 1, 11)):
        flip_bit(victim, int(full_frames(victim)[frame].starts()[message]))
        del expected[offset]
        with MessageStore.open(path, TINY, repair=True) as store:
            assert [loss.messages for loss in store.losses] == [1]
            _, end = store.queue_bounds(*QUEUE)
            assert store.get_range(*QUEUE, 0, end) == expected
            assert end == max(expected) + 1
        assert verify_folder(path).damages == []


def test_damaged_head_of_the_cut_frame_costs_what_was_kept_of_it(cut: tuple[Path, dict[int, bytes]]) -> None:
    path, expected = cut
    victim = segment_path(path, 1)
    flip_bit(victim, full_frames(victim)[1].header.position + 20)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert [loss.messages for loss in store.losses] == [3]
        _, end = store.queue_bounds(*QUEUE)
        assert store.get_range(*QUEUE, 0, end) == {at: row for at, row in expected.items() if not 10 <= at < KEPT}
    assert verify_folder(path).damages == []


@pytest.mark.parametrize("repair", [False, True])
def test_lost_seal_record_costs_a_scan_and_no_message(cut: tuple[Path, dict[int, bytes]], repair: bool) -> None:
    """The footer stands where the frame was cut."""
    path, expected = cut
    flip_bit(segment_path(path, 1), BLOCK_BYTES + 20)
    for turn in range(2):
        with MessageStore.open(path, TINY, repair=repair) as store:
            losses: list[Loss] = store.losses
            made_again = [(BLOCK_BYTES, 0)] if repair and turn == 0 else []
            assert [(loss.position, loss.messages) for loss in losses] == made_again
            assert store.queue_bounds(*QUEUE) == (0, len(expected))
            assert store.get_range(*QUEUE, 0, len(expected)) == expected
    assert verify_folder(path).damages == []
