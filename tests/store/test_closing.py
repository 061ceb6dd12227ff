"""Closing in odd moments: interrupted, again, or while the process forks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import CacheConfig, MessageStore, StoreClosed, StoreConfig, verify_folder
from stratalog.store.log.flusher import Flusher
from stratalog.store.log.listeners import Listeners
from stratalog.store.log.queue import RequestQueue
from stratalog.store.log.request import Request, answer_all
from stratalog.store.log.sealer import Sealer
from stratalog.store.log.written_lane import WrittenLane
from stratalog.store.segment.sealing import FullSegment
from stratalog.store.segment.writer import SegmentWriter

from .disks import GatedDisk
from .helpers import crash_copy, run_child, seal_of, segment_path, start, tiny, until
from .interrupts import Interrupted


def interrupted_after(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with an interrupt at its end."""

    def run(*given: Any, **how: Any) -> None:
        work(*given, **how)
        raise Interrupted

    return run


def test_second_close_touches_no_folder_that_the_first_has_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write its note of where the log ends into a segment that somebody else goes on with."""
    first = MessageStore.open(tmp_path / "store")
    first.append("t", 0, b"first")
    with monkeypatch.context() as patched:
        patched.setattr(SegmentWriter, "write_seal", interrupted_after(SegmentWriter.write_seal))
        with pytest.raises(Interrupted):
            first.close()
    with MessageStore.open(tmp_path / "store") as second:
        assert [second.append("t", 0, b"acknowledged") for _ in range(5)] == [1, 2, 3, 4, 5]
        first.close()
        crashed = crash_copy(tmp_path / "store", tmp_path / "crashed")
    with MessageStore.open(crashed) as third:
        assert third.queue_bounds("t", 0) == (0, 6)


def test_close_that_was_interrupted_early_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore.open(tmp_path)
    store.append("t", 0, b"x")
    with monkeypatch.context() as patched:
        patched.setattr(store._upkeep, "close", interrupted_after(lambda: None))
        with pytest.raises(Interrupted):
            store.close()
    store.close()
    assert seal_of(segment_path(tmp_path, 1)) is not None  # the note of where its log ends
    with MessageStore.open(tmp_path) as again:
        assert again.queue_bounds("t", 0) == (0, 1)


@pytest.mark.parametrize("lanes", [1, 2])
def test_close_ends_where_memory_ends_while_a_queue_is_closed(
    tmp_path: Path, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads of a queue that is not closed do not end, and whoever waits for them waits for ever."""
    store = MessageStore.open(tmp_path, tiny(lanes=lanes))
    store.append("t", 0, b"x")
    real, failed = RequestQueue._dissolve_line, list[RequestQueue[Request]]()
    real_join, waited_for = Flusher.join, list[bool]()

    def dissolve(queue: RequestQueue[Request], *given: Any) -> None:
        if queue not in failed:
            failed.append(queue)
            raise MemoryError("once a queue")
        real(queue, *given)

    def join(flusher: Flusher) -> None:
        waited_for.append(flusher.queue._closing)
        if not flusher.queue._closing:  # else the test would wait as well
            flusher.queue.close(StoreClosed("by the test"))
        real_join(flusher)

    with monkeypatch.context() as patched:
        patched.setattr(RequestQueue, "_dissolve_line", dissolve)
        patched.setattr(Flusher, "join", join)
        with pytest.raises(MemoryError):
            store.close()
    assert len(failed) == lanes + (lanes > 1), "with the queue of the rounds"
    assert waited_for == [True] * lanes
    store.close()
    with MessageStore.open(tmp_path) as again:
        assert again.queue_bounds("t", 0) == (0, 1)


def test_callbacks_are_waited_for_where_memory_has_ended_before_they_were_closed() -> None:
    listeners = Listeners()
    listeners.call(lambda: None)
    start(listeners.join).join()


@pytest.fixture
def stalled(tmp_path: Path, disk: GatedDisk) -> MessageStore:
    """A store with a small cap and one message, whose disk takes nothing more; the test closes it."""
    store = MessageStore.open(tmp_path, tiny(publish_buffer_bytes=64 << 10), disk=disk)
    store.append("t", 0, b"x")
    disk.gate.clear()
    return store


def test_coroutines_in_the_line_at_the_cap_are_told_after_an_interrupted_close(
    stalled: MessageStore, disk: GatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[object] = []
    lined_up = threading.Event()

    async def produce() -> None:
        futures = [stalled.append_async("t", 0, bytes(30_000)) for _ in range(6)]
        lined_up.set()
        outcomes.extend(await asyncio.gather(*futures, return_exceptions=True))

    loop = start(lambda: asyncio.run(produce()))
    assert lined_up.wait(60)
    with monkeypatch.context() as patched:
        patched.setattr("stratalog.store.api.running.answer_all", interrupted_after(lambda requests, error: None))
        with pytest.raises(Interrupted):
            stalled.close()
    disk.gate.set()
    stalled.close()
    loop.join()
    assert {type(outcome) for outcome in outcomes} == {int, StoreClosed}


def test_flush_waits_for_coroutines_in_the_line_at_the_cap(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, StoreConfig(publish_buffer_bytes=64 << 10), disk=disk) as store:
        store.append("t", 0, b"x")
        disk.gate.clear()
        durable: list[int] = []

        def flush() -> None:
            store.flush()
            durable.append(store.queue_bounds("t", 0)[1])

        async def produce() -> None:
            futures = [store.append_async("t", 0, bytes(30_000)) for _ in range(12)]
            flushing = start(flush)
            queue = store._queues[0]
            until(lambda: any(request.count == 0 for request in list(queue._line)))
            disk.gate.set()
            await asyncio.gather(*futures)
            flushing.join()

        asyncio.run(produce())
        assert durable == [13]


def test_flush_that_an_interrupted_close_has_told_is_not_told_twice(
    stalled: MessageStore, disk: GatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[object] = []

    def flush() -> None:
        try:
            stalled.flush()
        except StoreClosed as error:
            outcomes.append(error)

    async def produce() -> None:
        futures = [stalled.append_async("t", 0, bytes(30_000)) for _ in range(6)]
        flushing = start(flush)
        queue = stalled._queues[0]
        until(lambda: any(request.count == 0 and request._waiters for request in list(queue._line)))
        (barrier,) = [request for request in queue._line if request.count == 0]
        with monkeypatch.context() as patched:
            patched.setattr("stratalog.store.api.running.answer_all", interrupted_after(answer_all))
            with pytest.raises(Interrupted):
                stalled.close()
        flushing.join()
        assert barrier._waiters is not None
        barrier._waiters[:] = [threading.Lock()]  # as one that was let go, and whose thread was not awake yet
        disk.gate.set()
        await asyncio.to_thread(stalled.close)
        await asyncio.gather(*futures, return_exceptions=True)

    asyncio.run(produce())
    assert [type(outcome) for outcome in outcomes] == [StoreClosed]


FORK_WHILE = """
import os, signal, sys, threading
from stratalog import MessageStore
from stratalog.store.api.running import OpenStore
path, where = sys.argv[1:]
inside, go = threading.Event(), threading.Event()
def held_up(*given):
    inside.set(), go.wait()
    return work(*given)
if where == "close":
    opened = MessageStore.open(path)
    opened.append("t", 0, b"x")
    owner, name, step = OpenStore, "_finish_lane", opened.close
else:
    opened = None
    owner, name, step = MessageStore, "_open", lambda: MessageStore.open(path).close()
work = getattr(owner, name)
setattr(owner, name, held_up)
thread = threading.Thread(target=step)
thread.start()
inside.wait()
alive, ends = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(60)  # one that hangs is killed
    os.close(ends)
    if opened is not None:
        opened.close()
    os.read(alive, 1)  # until the parent has seen that the folder is free
    os._exit(0)
go.set()
thread.join()
setattr(owner, name, work)
MessageStore.open(path).close()
os.close(ends)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.parametrize("where", ["open", "close"])
def test_child_forked_while_another_thread_opens_or_closes_does_not_keep_the_folder(tmp_path: Path, where: str) -> None:
    done = run_child(FORK_WHILE, str(tmp_path), where)
    assert done.stdout == "0\n", done.stderr


TICKET_IN_CHILD = """
import os, signal, sys, threading
from stratalog import MessageStore, StoreClosed
from stratalog.store.log import flusher, writes
path, where = sys.argv[1:]
store_ = MessageStore.open(path)
store_.append("t", 0, b"x")
inside, go = threading.Event(), threading.Event()
if where == "taken":
    owner, name = flusher.Flusher, "_build"
else:
    owner, name = writes.WritesInFlight, "add_frame"
work = getattr(owner, name)
def held_up(*given):
    if where == "in the lane":
        work(*given)
    inside.set(), go.wait()
    return work(*given) if where == "taken" else None
setattr(owner, name, held_up)
ticket = store_.submit("t", 0, b"y")
threading.Thread(target=ticket.result).start()  # who waits is not in the child
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    try:
        ticket.result()
    except StoreClosed:
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
setattr(owner, name, work)
go.set()
print(ticket.result())
store_.close()
MessageStore.open(path).close()
"""


@pytest.mark.parametrize("where", ["taken", "in the lane"])
def test_ticket_under_way_at_a_fork_is_answered_once_in_the_child(tmp_path: Path, where: str) -> None:
    done = run_child(TICKET_IN_CHILD, str(tmp_path), where)
    assert (done.stdout, done.stderr) == ("7\n1\n", "")


def test_close_goes_on_behind_an_interrupt_that_came_just_behind_a_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment is sealed, and still in the line of those that are full."""
    seal_now, messages = Sealer.seal_now, [b"%d" % number * 5000 for number in range(20)]

    def interrupted(sealer: Sealer, lane: WrittenLane, full: FullSegment) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise OSError("not now")  # it is tried again: what is full is left for the close
        seal_now(sealer, lane, full)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(Sealer, "seal_now", interrupted)
        store = MessageStore.open(tmp_path, tiny())
        for data in messages:
            store.append("t", 0, data)
        with pytest.raises(Interrupted):
            store.close()
    store.close()
    with MessageStore.open(tmp_path, tiny()) as store:
        assert [message.data for message in store.read("t", 0, 0, max_messages=64)] == messages
    assert verify_folder(tmp_path).damages == []


class Broken(Exception):
    """Nobody expects it."""


def _parts(store: MessageStore) -> dict[str, tuple[object, str]]:
    """Each part that `close` ends: an object and its method."""
    running = store._running
    assert running.attacher is not None and running.delays is not None and running.upkeep is not None
    assert running.live is not None and running.caches is not None and running.feeder is not None
    return {
        "subscriptions": (store._subscriptions(), "closing"), "attacher": (running.attacher, "stop"),
        "queue": (running.queues[0], "close"), "flusher": (running.flushers[0], "join"),
        "delays": (running.delays, "stop"), "delayed topic": (running.delays.topics["later"], "close"),
        "tracker": (running.delays.topics["later"].tracker, "checkpoint"), "listeners": (running.listeners, "close"),
        "waiting": (running.waiting, "close"), "async reads": (running.async_reads, "close"),
        "upkeep": (running.upkeep, "close"), "live": (running.live, "close"), "feeder": (running.feeder, "close"),
        "lane": (running.lanes[0], "close"), "caches": (running.caches, "close"), "notes": (running, "_finish_lane"),
    }  # fmt: skip


PARTS = [
    "subscriptions", "attacher", "queue", "flusher", "delays", "delayed topic", "tracker", "listeners", "waiting",
    "async reads", "upkeep", "live", "feeder", "lane", "caches", "notes",
]  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_raises_at_the_end_hinders_no_other_and_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    store = MessageStore.open(tmp_path, tiny(lanes=2, cache=CacheConfig(heap_bytes=1 << 20)))
    threads = threading.active_count()
    with store.subscribe("later", "s") as sub:
        store.append("later", 0, b"x", deliver_at_ms=1 << 60)
        sub.receive()
    assert store.append_batch([("t", queue, b"x") for queue in range(9)] * 20).tolist()
    parts = _parts(store)
    assert list(parts) == PARTS
    whole, name = parts[part]
    end, raised = getattr(whole, name), []

    def raises(*given: Any, **how: Any) -> None:
        end(*given, **how)
        raised.append(True)
        raise Broken(part)

    monkeypatch.setattr(whole, name, raises)
    # Of a tracker that was not saved the next opening reads more of the log.
    with pytest.raises(Broken) if part != "tracker" else nullcontext():
        store.close()
    assert raised and store.closed
    store.close()
    with MessageStore.open(tmp_path) as again:
        assert [again.queue_bounds("t", queue) for queue in range(9)] == [(0, 20)] * 9
        assert again.cancel_delayed("later", 0, 0)
    assert verify_folder(tmp_path).damages == []
    assert threading.active_count() <= threads


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("nobody expects it")])
def test_ending_appends_and_closing_save_a_delayed_index_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """As a compaction does it. An index that could not be saved is as good as closed: the log has all of it."""
    store = MessageStore.open(tmp_path)
    with store.subscribe("later", "s") as sub:
        store.append("later", 0, b"x", deliver_at_ms=1 << 60)
        sub.receive()
    assert store._running.delays is not None
    tried: list[bytes] = []

    def refuse(mark: bytes) -> None:
        tried.append(mark)
        raise error

    monkeypatch.setattr(store._running.delays.topics["later"].tracker, "checkpoint", refuse)
    for _ in range(2):
        store._running.end_appends()
    store.close()
    assert len(tried) == 1
    with MessageStore.open(tmp_path) as again:
        assert again.cancel_delayed("later", 0, 0)
