"""Subscriptions give out what was attached, as they give out what was appended."""

from __future__ import annotations

import threading
from pathlib import Path

from stratalog.store import MessageStore, commit_shards

from .helpers import staged


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
