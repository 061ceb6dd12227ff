"""The publish buffer has one size for the whole store and counts what waits; an awaited append has a time-out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, PublishBufferFull

from .disks import GatedDisk
from .helpers import PATIENCE_S, small, start, tiny, until

KIB = 1 << 10


def test_buffer_is_shared_by_all_lanes(tmp_path: Path) -> None:
    """Each queue is filled until it refuses: all lanes together hold what was set, and nearly all of it."""
    cap, disk = 64 * KIB, GatedDisk()
    config = small(lanes=4, publish_buffer_bytes=cap, append_timeout_ms=0)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        for queue in range(40):
            store.append("t", queue, b"first")
        until(lambda: store.stats()["publish_buffer"]["used_bytes"] == 0)  # given back a moment after the answer
        disk.gate.clear()
        accepted = 0
        for queue in range(40):
            for _ in range(cap // KIB):
                try:
                    store.submit("t", queue, bytes(KIB))
                except PublishBufferFull:
                    break
                accepted += KIB
        used = store.stats()["publish_buffer"]["used_bytes"]
        disk.gate.set()
    assert cap - 4 * KIB <= accepted <= cap
    assert used == accepted
    assert store.stats()["publish_buffer"]["used_bytes"] == 0


def test_used_bytes_are_those_that_wait(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append("t", 0, b"first")
        until(lambda: store.stats()["publish_buffer"]["used_bytes"] == 0)  # given back a moment after the answer
        disk.gate.clear()
        store.submit("t", 0, bytes(700))
        store.submit("t", 1, bytes(41), key=b"k" * 9)
        used = store.stats()["publish_buffer"]["used_bytes"]
        disk.gate.set()
        assert used == 750
        store.flush()
        until(lambda: store.stats()["publish_buffer"]["used_bytes"] == 0)


@pytest.mark.parametrize("timeout_ms", [40, 1500])
def test_awaited_append_gives_up_after_the_time_that_is_set(tmp_path: Path, timeout_ms: int) -> None:
    """The loop is asked for that time, and the append fails when the loop says that it is over."""
    disk, delays = GatedDisk(), list[float]()
    store = MessageStore.open(tmp_path, tiny(publish_buffer_bytes=4096, append_timeout_ms=timeout_ms), disk=disk)
    store.append("t", 0, b"first")
    disk.gate.clear()
    store.submit("t", 0, bytes(4000))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        later = loop.call_later

        def call_later(delay: float, *what: Any, **how: Any) -> asyncio.TimerHandle:
            delays.append(delay)
            return later(0.0 if delay < PATIENCE_S else delay, *what, **how)

        loop.call_later = call_later  # type: ignore[method-assign, assignment]
        with pytest.raises(PublishBufferFull):
            await asyncio.wait_for(store.append_async("t", 0, bytes(1000)), PATIENCE_S)

    try:
        asyncio.run(main())
    finally:
        disk.gate.set()
        store.close()
    assert timeout_ms / 1000 in delays


def test_append_at_the_cap_goes_on_as_soon_as_there_is_room(tmp_path: Path) -> None:
    """Long before its time-out, which no test would wait for."""
    disk = GatedDisk()
    config = tiny(publish_buffer_bytes=4096, append_timeout_ms=int(20_000 * PATIENCE_S))
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        store.append("t", 0, b"first")
        disk.gate.clear()
        store.submit("t", 0, bytes(4000))
        worker = start(store.append, "t", 0, bytes(1000))
        worker.thread.join(0.2)  # it is at the cap by now, or finds room when it comes there
        disk.gate.set()
        worker.join()
        assert store.queue_bounds("t", 0) == (0, 3)
