"""The newest ids of a topic are known after an opening, however its clock went and in whatever lanes they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import MessageStore
from stratalog.testing import VirtualClock

from ..helpers import tiny
from .test_message_ids import is_repeat

WINDOW = 100  # ids


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("back_ms", [0, 60_000])
def test_after_a_clock_that_stood_still_or_was_set_back_the_newest_ids_are_known(
    tmp_path: Path, lanes: int, back_ms: int
) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path, tiny(lanes=lanes), clock=clock) as store:
        store.configure_topic("t", queues=8, id_window_count=WINDOW)
        for turn in range(60):
            if turn == 30:
                clock.jump_wall(ms=-back_ms)
            with store.transaction() as tx:  # later the ids are all of one lane
                for queue_id in range(4) if turn < 30 else (0,):
                    tx.append("t", queue_id, b"x", message_id=f"{turn}.{queue_id}")
    with MessageStore.open(tmp_path, tiny(lanes=lanes), clock=clock) as store:
        assert [turn for turn in range(30, 60) if not is_repeat(store, "t", 0, f"{turn}.0")] == []
        assert not is_repeat(store, "t", 1, "0.1"), "more than the window's number came after it"
