"""Where messages belong by the low bits of their offsets and by what else is known: what is sure is right."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stratalog.store.recovery.placement import ANY, NO_OFFSET, WINDOW, OffsetBounds, PlacedMessages, place

from ..seeds import draw_seed


class Story:
    """A log of some streams of which stretches are lost; `kept` are (stream, offset, lost entries before it)."""

    def __init__(self, chance: random.Random, streams: int) -> None:
        self.firsts = [chance.choice([0, 3, WINDOW - 2, 5 * WINDOW]) for _ in range(streams)]
        ends, lost = list(self.firsts), 0
        self.kept: list[tuple[int, int, int]] = []
        for _ in range(chance.randrange(1, 12)):
            if chance.random() < 0.4:
                for _ in range(chance.randrange(1, 3)):
                    size = chance.choice([1, 2, 1000, WINDOW - 1, WINDOW, 3 * WINDOW])
                    ends[chance.randrange(streams)] += size
                    lost += size
            else:
                stream = chance.randrange(streams)
                self.kept.append((stream, ends[stream], lost))
                ends[stream] += 1
        self.ends, self.lost = ends, lost

    def place(self, bounds: OffsetBounds) -> PlacedMessages:
        rows = sorted(self.kept, key=lambda row: row[0])
        counts = np.bincount(np.array([row[0] for row in rows], np.int64), minlength=len(self.firsts))
        start = np.concatenate([[0], counts.cumsum()]).astype(np.int64)
        lows = np.array([row[1] & 0xFFFF for row in rows], np.uint16)
        return place(lows, np.array([row[2] for row in rows], np.int64), start, bounds)

    def is_right(self, placed: PlacedMessages) -> bool:
        rows = sorted(self.kept, key=lambda row: row[0])
        streams = np.array([row[0] for row in rows], np.int64)
        return bool(((placed.first[streams] + placed.places) == np.array([row[1] for row in rows], np.int64)).all())


@pytest.mark.parametrize("has_first", [True, False])
@pytest.mark.parametrize("ends", ["none", "exact", "later"])
def test_what_is_sure_is_right(has_first: bool, ends: str) -> None:
    chance, sure = random.Random(draw_seed()), 0
    for _ in range(3000):
        story = Story(chance, chance.randrange(1, 4))
        first = np.array(story.firsts if has_first else [NO_OFFSET] * len(story.firsts), np.int64)
        more = chance.choice([0, 0, 5, WINDOW])  # lost behind the segment, of the first stream
        inside = story.lost + (more if ends == "later" else 0)
        known = np.array(story.ends, np.int64)
        known[0] += more if ends == "later" else 0
        given = None if ends == "none" else known
        bounds = OffsetBounds(first, 0, given, ends == "exact", chance.choice([inside, ANY]))
        placed = story.place(bounds)
        if placed.is_sure:
            sure += 1
            assert story.is_right(placed), (vars(story), bounds)
            if ends == "exact":
                assert (placed.first + placed.counts).tolist() == story.ends
    assert sure == 0 if not has_first and ends == "none" else sure > 150


def test_what_follows_fewer_lost_messages_than_low_bits_can_count_is_sure() -> None:
    placed = place(
        np.array([0, (WINDOW - 1 + 5) & 0xFFFF], np.uint16), np.array([0, WINDOW - 1], np.int64),
        np.array([0, 2], np.int64), OffsetBounds(np.zeros(1, np.int64), inside=WINDOW - 1),
    )  # fmt: skip
    assert placed.is_sure
    assert placed.places.tolist() == [0, 4]  # four of the lost ones are of this stream


def test_bounds_that_contradict_each_other_leave_the_low_bits_their_word_and_are_not_sure() -> None:
    placed = place(
        np.array([7], np.uint16), np.zeros(1, np.int64), np.array([0, 1], np.int64),
        OffsetBounds(np.array([7], np.int64), ends=np.array([5], np.int64), is_exact=True, inside=0),
    )  # fmt: skip
    assert not placed.is_sure
    assert (placed.first.tolist(), placed.counts.tolist(), placed.places.tolist()) == ([7], [1], [0])


def test_queue_of_which_nothing_is_known_begins_with_the_low_bits_of_its_next_message() -> None:
    placed = place(
        np.array([], np.uint16), np.array([], np.int64), np.zeros(3, np.int64),
        OffsetBounds(np.full(2, NO_OFFSET, np.int64), lows=np.array([27], np.int64), inside=0),
    )  # fmt: skip
    assert not placed.is_sure
    assert (placed.first.tolist(), placed.counts.tolist()) == ([27, 0], [0, 0])


@pytest.mark.parametrize(("end", "begin"), [(20, 0), (WINDOW + 20, WINDOW)])
def test_no_message_is_placed_at_or_after_the_exact_end_of_its_queue(end: int, begin: int) -> None:
    """More offsets are free before the end than messages are lost after the last one: an earlier repair left them out.

    Of the whole windows that may be missing before the first message, no more are put there than have room.
    """
    placed = place(
        np.arange(11, dtype=np.uint16), np.zeros(11, np.int64), np.array([0, 11], np.int64),
        OffsetBounds(np.zeros(1, np.int64), ANY, np.array([end], np.int64), is_exact=True, inside=0),
    )  # fmt: skip
    assert (placed.first + placed.places).tolist() == list(range(begin, begin + 11))
    assert (placed.first + placed.counts).tolist() == [end]
    assert placed.is_sure == (end < WINDOW)  # else all of that window may have been left out as well
