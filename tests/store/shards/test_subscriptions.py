"""Subscriptions give out what was attached, as they give out what was appended."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from stratalog.store import MessageStore, ShardWriter, commit_shards

from .helpers import staged


@pytest.mark.usefixtures("both_ways")
def test_a_receive_that_waits_is_woken_by_an_attach(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        subscription = store.subscribe("t", "s", start="earliest")
        found: list[bytes] = []

        def receive() -> None:
            for delivery in subscription.receive(max_messages=9, wait_ms=60_000):
                found.append(delivery.message.data)
                subscription.ack(delivery)

        for number in range(2):  # the second time behind a lane's newest segment
            waiting = threading.Thread(target=receive)
            waiting.start()
            commit_shards(tmp_path, staged(tmp_path, [("t", 0, b"%d" % number)]), name="x", batch=number, wait_ms=0)
            waiting.join(60)
            assert found == [b"%d" % at for at in range(number + 1)]


@pytest.mark.usefixtures("both_ways")
def test_delayed_messages_of_an_attached_segment_come_at_their_time(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store, ShardWriter(tmp_path) as writer:
        subscription = store.subscribe("t", "s", start="earliest")
        due_ms = int(time.time() * 1000) + 1_000
        writer.append_columns([("t", 0)], [0, 0], [5, 3], b"laternow", deliver_at_ms=[due_ms, -1])
        commit_shards(tmp_path, writer.finish(), name="x", wait_ms=0)
        found: list[tuple[bytes, bool]] = []
        while len(found) < 2:
            for delivery in subscription.receive(max_messages=9, wait_ms=60_000):
                found.append((delivery.message.data, time.time() * 1000 >= due_ms))
                subscription.ack(delivery)
        assert [data for data, _ in found] == [b"now", b"later"]
        assert found[1][1], "it came before its time"
