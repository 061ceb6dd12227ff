"""Whether a frame fits into the open segment with its footer: the bound that most frames are asked by, and the rule."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.store import MessageStore
from stratalog.store.log import row_build
from stratalog.store.log.room import make_room, wanted_segment
from stratalog.store.log.stopping import end_segment
from stratalog.store.log.written_lane import WrittenLane

from ..seeds import draw_seed
from .helpers import KIB, tiny

pytestmark = pytest.mark.disk


def test_a_frame_that_fits_by_the_bound_fits_by_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(draw_seed())
    by_bound = by_rule = 0
    sizes: tuple[int, ...] = ()

    def checked(lane: WrittenLane, frame_bytes: int, share: Callable[[], int], left_bytes: int | None = None) -> None:
        nonlocal by_bound, by_rule
        until, reserve = lane.fits_until, lane.for_records
        if left_bytes is None and lane.tail + frame_bytes <= until and (reserve is None or reserve.is_ready):
            assert wanted_segment(lane, frame_bytes, share, None) == 0
            lane.fits_until = until
            by_bound += 1
        else:
            by_rule += 1
        make_room(lane, frame_bytes, share, left_bytes)

    monkeypatch.setattr(row_build, "make_room", checked)
    with MessageStore.open(tmp_path / "s", tiny(segment_bytes=256 * KIB)) as store:
        for number in range(1_200):
            if number % 200 == 0:  # tiny messages for a while: their footer is a third of them
                sizes = (0, 1) if number % 400 == 0 else (0, 100, 4 * KIB, 20 * KIB)
            topic = f"topic {chance.randrange(1 + number)}" if chance.random() < 0.02 else "t"
            size = chance.choice(sizes)
            row = (topic, chance.randrange(4), bytes(size))
            store.append_batch([row] * chance.choice((1, 2, 50, 500) if size < KIB else (1, 2)))
            if chance.random() < 0.01:
                store.trim(topic, 0, store.queue_bounds(topic, 0)[1])
    assert by_bound > 100 and by_rule > 0


def test_nothing_fits_into_a_segment_that_was_ended(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        for _ in range(3):  # the first one begins the segment, and a new stream is a reason to look again
            store.append("t", 0, b"before")
        lane, flusher = store._lanes[0], store._flushers[0]
        assert lane.fits_until > lane.tail
        with flusher.building:
            end_segment(flusher)
        assert lane.fits_until <= lane.tail and lane.segment is None
        assert store.append("t", 0, b"behind") == 3
        assert lane.segment is not None
