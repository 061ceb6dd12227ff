"""The threads of a store: whatever one of them meets, no call waits for ever, and `close` returns."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreClosed
from stratalog.store.device.background import Background, NoThread
from stratalog.store.device.folder import FolderLock
from stratalog.store.device.mapped import MappedFile
from stratalog.store.live.follower import Follower
from stratalog.store.live.page import LivePage
from stratalog.store.log.ring_growth import RingGrowth
from stratalog.store.log.upkeep import Upkeep
from stratalog.store.read.waiting import WaitingReaders

from .helpers import PATIENCE_S, ROOT, memory_folder, start, tiny, until

PATIENCE_MS = int(PATIENCE_S * 1000)
SOON_S = 20.0  # where only a thread that has died takes longer: a planted bug is found within a minute

# Each place that starts a thread, and what an error of its work does there. A new one has to be put here, with a test.
STARTED = {
    "endpoint/harness/clock.py": "of a test's clock: it stands still from then on",
    "endpoint/remote/client/connection.py": "ends the connection: all who wait get it",  # tests/endpoint/remote
    "endpoint/remote/client/link.py": "of the end of a dropped object: is printed; the process's end ends it",
    "endpoint/remote/client/tickets.py": "of a callback: is logged; the thread goes on",  # tests/contract
    "endpoint/server/loop_thread.py": "comes out of the call that waits for it; the loop goes on",
    "index/timer_thread.py": "is logged; the thread goes on",
    "pipeline/progress.py": "ends the display of progress alone",
    "store/api/running.py": "of the end of a dropped store: is logged; the next opening of the folder ends it",
    "store/delayed/worker.py": "is told by `last_error`, and tried again",
    "store/device/background.py": "is logged, whatever the owner has let out",
    "store/live/calls.py": "is logged; the next call is answered",  # tests/store/shards/test_calls.py
    "store/live/follower.py": "wakes those who wait, to find out; the thread goes on",
    "store/log/crew.py": "of a write beside others: comes out with them",
    "store/log/flusher.py": "poisons the lane: all who wait get it",
    "store/log/listeners.py": "of a callback: is logged; the thread goes on",
    "store/log/ring_growth.py": "ends the growth of the rings, no more",
    "store/log/rounds.py": "poisons the lanes: all who wait get it",
    "store/log/upkeep.py": "is told by `last_error`, and tried again",
    "store/read/feeder.py": "ends the feeding of the cache, no more",
    "store/read/waiting.py": "leaves no timers: those who wait look again and again",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made / "store"


def failing_beside(call: Callable[..., Any], left: list[int | None] | None = None) -> Callable[..., Any]:
    """The call, with MemoryError in all threads but the main one, or as often as `left` says."""
    left = [None] if left is None else left

    def run(*given: Any, **named: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and left[0] != 0:
            left[0] = None if left[0] is None else left[0] - 1
            raise MemoryError("in a thread of the store")
        return call(*given, **named)

    return run


def test_each_thread_that_is_started_has_a_rule() -> None:
    pattern = re.compile(r"\bBackground\(|\bthreading\.Thread\(|\bstart_new_thread\(")
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("cache", "endpoint", "index", "pipeline", "store")
        for path in (ROOT / folder).rglob("*.py")
        if pattern.search(path.read_text()) and "testing" not in path.parts
    }
    assert found == set(STARTED)


@pytest.mark.parametrize("error", [MemoryError, SystemExit, KeyboardInterrupt])
def test_join_returns_when_the_work_has_raised(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    def work() -> None:
        raise error("once")

    thread = Background(work)
    with caplog.at_level(logging.ERROR, "stratalog"):
        thread.start()
        thread.join(lambda: None)
        thread.join()
    assert [record.message for record in caplog.records] == ["a thread of the store has ended by an error"]


@pytest.mark.parametrize(
    ("owner", "name"), [(Follower, "follow"), (LivePage, "moves"), (MappedFile, "sleep"), (WaitingReaders, "__len__")]
)
@pytest.mark.parametrize("times", [3, None], ids=["for a while", "for good"])
def test_reader_closes_whatever_its_watching_thread_meets(
    folder: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, times: int | None
) -> None:
    with MessageStore.open(folder, tiny()) as store:
        store.append("t", 0, b"x")
        reader = MessageStore.open(folder, read_only=True)
        assert not reader.read("t", 0, 1, wait_ms=1)  # the thread is there
        call = vars(owner)[name]
        is_property = isinstance(call, property)
        left = [times]
        failing = failing_beside(call.fget if is_property else call, left)
        monkeypatch.setattr(owner, name, property(failing) if is_property else failing)
        if times is not None:

            def append() -> None:
                until(lambda: left[0] == 0, SOON_S)
                store.append("t", 0, b"y")

            waits = start(append)
            assert reader.read("t", 0, 1, wait_ms=int(SOON_S * 1000))[0].data == b"y"
            waits.join()
        closing = start(reader.close)
        closing.join()


def test_no_thread_of_a_reader_is_left_behind_its_close(folder: Path) -> None:
    with MessageStore.open(folder, tiny()) as store:
        store.append("t", 0, b"x")
        reader = MessageStore.open(folder, read_only=True)
        fetcher: Any = reader._fetcher
        waits = start(lambda: reader.read("t", 0, 1, wait_ms=PATIENCE_MS))
        until(lambda: fetcher.follower._watching is not None)
        time.sleep(0.05)  # by now it sleeps on the page
        thread = fetcher.follower._watching
        reader.close()
        assert thread._is_over
        with pytest.raises(StoreClosed):
            waits.join()


def test_reader_without_threads_looks_again_and_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[Background] = []

    def refuse(self: Background) -> None:
        refused.append(self)
        raise NoThread

    def append() -> None:
        until(lambda: bool(refused), SOON_S)  # what is there already is read without a wait
        store.append("t", 0, b"y")

    with MessageStore.open(folder, tiny()) as store, MessageStore.open(folder, read_only=True) as reader:
        store.append("t", 0, b"x")
        assert reader.read("t", 0, 0)
        monkeypatch.setattr("stratalog.store.live.follower.Background.start", refuse)
        waits = start(append)
        assert reader.read("t", 0, 1, wait_ms=int(SOON_S * 1000))[0].data == b"y"
        waits.join()


@pytest.mark.parametrize("name", ["is_in_place", "_goes_on"])
def test_upkeep_goes_on_after_an_error_outside_of_its_tasks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with MessageStore.open(folder, tiny()) as store:
        upkeep: Any = store._upkeep
        if name == "_goes_on":
            monkeypatch.setattr(upkeep, name, failing_beside(upkeep._goes_on, [3]))
        else:
            monkeypatch.setattr(FolderLock, name, failing_beside(FolderLock.is_in_place, [3]))
        until(lambda: "background work failed" in (upkeep.last_error or ""), SOON_S)
        for _ in range(20):
            store.append("t", 0, bytes(10_000))
        until(lambda: store.stats()["segments"]["sealed"] > 0)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Upkeep, "_try"), (RingGrowth, "_run"), (WaitingReaders, "_make")],
)
def test_store_reads_appends_and_closes_without_one_of_its_threads(
    folder: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    monkeypatch.setattr(owner, name, failing_beside(getattr(owner, name)))
    with MessageStore.open(folder, tiny()) as store:
        for _ in range(20):
            store.append("t", 0, bytes(10_000))
        assert not store.read("t", 0, 20, wait_ms=5)
        waits = start(lambda: store.append("t", 0, b"y"))
        assert store.read("t", 0, 20, wait_ms=PATIENCE_MS)[0].data == b"y"
        waits.join()
        assert len(store.get_range("t", 0, 0, 100)) == 21
    with MessageStore.open(folder, tiny()) as store:
        assert store.queue_bounds("t", 0) == (0, 21)
