"""The times of messages that came by a bulk commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import MessageStore, commit_shards

from ...clocks import WallClock
from ..helpers import tiny
from .helpers import staged


def test_messages_of_a_small_commit_have_the_time_at_which_they_were_attached(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    shards = staged(tmp_path, [("t", 0, b"staged")], clock=WallClock(lambda: 4_000))
    commit_shards(tmp_path, shards, name="a", clock=WallClock(lambda: 5_000))
    with MessageStore.open(tmp_path) as store:
        assert [message.timestamp_ms for message in store.read("t", 0, 0, max_messages=9)] == [5_000]


@pytest.mark.usefixtures("as_segments")
def test_messages_of_a_large_commit_have_the_time_of_their_task(tmp_path: Path) -> None:
    """So times of a queue may go back, and `offset_at` gives the lowest offset that is late enough."""
    with MessageStore.open(tmp_path, tiny(), clock=WallClock(lambda: 5_000)) as store:
        shards = staged(tmp_path, [("t", 0, b"staged")], clock=WallClock(lambda: 4_000))
        store.append("t", 0, b"appended")
        commit_shards(tmp_path, shards, name="a", wait_ms=0)
        store.attach_pending()
        assert [message.timestamp_ms for message in store.read("t", 0, 0, max_messages=9)] == [5_000, 4_000]
        assert [store.offset_at("t", 0, time_ms) for time_ms in (4_000, 5_000, 5_001)] == [0, 0, 2]
