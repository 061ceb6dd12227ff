"""An event loop that is closed with appends in flight: nobody is left to be told, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StorePoisoned
from stratalog.store.device.os_file import OsFile
from tests.store.disks import GatedDisk
from tests.store.helpers import tiny, until

QUEUES = range(12)


def leave_appends_behind(store: MessageStore) -> None:
    """As `asyncio.run(gather(..))` does when one of the awaited fails: the others are futures without a task."""

    async def leave() -> None:
        for queue in QUEUES:
            store.append_async("t", queue, b"left behind").add_done_callback(lambda future: None)

    asyncio.run(leave())


def test_appends_of_a_closed_loop_are_stored_and_do_not_poison(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append("t", 0, b"first")
        disk.gate.clear()
        leave_appends_behind(store)
        disk.gate.set()
        assert store.append("t", 0, b"next") == 2
        assert store.queue_bounds("t", 1) == (0, 1)
        assert store.stats()["poisoned"] is None


def test_appends_of_a_closed_loop_do_not_keep_a_failure_from_the_other_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flusher that meets the failure tells all lanes of it, whoever is among their requests."""

    def broken(*_given: object, **_how: object) -> None:
        raise OSError(errno.EIO, "the test's disk is broken")

    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(lanes=4), disk=disk) as store:
        for queue in QUEUES:
            store.append("t", queue, b"x")
        disk.gate.clear()
        leave_appends_behind(store)
        monkeypatch.setattr(OsFile, "write", broken)  # what is behind the gate
        disk.gate.set()
        until(lambda: store.stats()["poisoned"] is not None)
        for queue in QUEUES:
            with pytest.raises(StorePoisoned, match="the test's disk"):
                store.append("t", queue, b"refused")


class BrokenLoop(asyncio.SelectorEventLoop):
    """A loop that takes no call from other threads any more, and says so in its own way."""

    def call_soon_threadsafe(self, *_given: object, **_how: object) -> asyncio.Handle:
        raise OSError(errno.EBADF, "the test's loop is broken")


def test_loop_that_fails_in_its_own_way_harms_no_other_request_of_the_batch(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append("t", 0, b"first")
        disk.gate.clear()
        before = store.submit("t", 0, b"before")
        assert disk.waiting.acquire(timeout=60)  # what follows is one batch

        async def hand_over() -> None:
            store.append_async("t", 0, b"of the broken loop")

        loop = BrokenLoop()
        loop.run_until_complete(hand_over())
        behind = store.submit("t", 0, b"behind")
        disk.gate.set()
        assert (before.result(60), behind.result(60)) == (1, 3)
        assert store.stats()["poisoned"] is None
        loop.close()
