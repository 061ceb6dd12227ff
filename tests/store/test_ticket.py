"""Tickets: callbacks, errors, awaiting; and that nothing which a callback does harms the log."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import InvalidMessage, MessageStore, StoreClosed, StorePoisoned, Ticket
from stratalog.store.log.ticket import Promise, SubmitRequest

from .disks import FailingDisk, GatedDisk
from .helpers import PATIENCE_S, run_child, start, tiny, until

DOCUMENTED = ["add_done_callback", "done", "exception", "is_repeat", "result"]


@pytest.fixture
def store(tmp_path: Path, disk: GatedDisk) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, tiny(lanes=2), disk=disk) as opened:
        opened.append("t", 0, b"first")
        yield opened
        disk.gate.set()


def threads() -> int:
    """All threads of the process, also those that `threading` does not know."""
    return len(sys._current_frames())


def test_ticket_shows_what_is_documented_and_no_more(store: MessageStore) -> None:
    ticket = store.submit("t", 0, b"x")
    assert isinstance(ticket, Ticket)
    assert [name for name in dir(ticket) if not name.startswith("_")] == DOCUMENTED
    assert [name for name in vars(Promise) if not name.startswith("_")] == [
        "done", "result", "exception", "add_done_callback"
    ]  # fmt: skip
    assert all(getattr(Ticket, name).__doc__ for name in DOCUMENTED)


def test_callback_is_called_with_the_ticket_when_the_message_is_durable(store: MessageStore, disk: GatedDisk) -> None:
    disk.gate.clear()
    ticket = store.submit("t", 0, b"x")
    called: list[tuple[Ticket, int, bool]] = []

    def note(number: int) -> Callable[[Ticket], None]:
        return lambda done: called.append((done, number, done.done()))

    for number in range(3):
        ticket.add_done_callback(note(number))
    time.sleep(0.05)
    assert called == []
    disk.gate.set()
    until(lambda: len(called) == 3)
    assert called == [(ticket, number, True) for number in range(3)]
    assert ticket.result(0) == 1


def test_callback_of_a_ticket_that_is_done_is_called_at_once_in_this_thread(store: MessageStore) -> None:
    ticket = store.submit("t", 0, b"x")
    ticket.result()
    called: list[int] = []
    ticket.add_done_callback(lambda done: called.append(threading.get_ident()))
    assert called == [threading.get_ident()]


def raises_error(ticket: Ticket) -> None:
    raise ZeroDivisionError("of the callback")


def exits(ticket: Ticket) -> None:
    raise SystemExit("of the callback")


@pytest.mark.parametrize("bad", [raises_error, exits, None, 5], ids=["raises", "exits", "none", "number"])
def test_callback_that_raises_is_logged_and_harms_nobody(
    store: MessageStore, disk: GatedDisk, caplog: pytest.LogCaptureFixture, bad: Any
) -> None:
    disk.gate.clear()
    tickets = [store.submit("t", queue, b"x") for queue in range(10)]
    called: list[Ticket] = []
    for ticket in tickets:
        ticket.add_done_callback(bad)
        ticket.add_done_callback(called.append)
    disk.gate.set()
    until(lambda: len(called) == 10)
    assert set(called) == set(tickets)
    told = [record for record in caplog.records if record.name == "stratalog"]
    assert len(told) == 10
    assert all(record.levelno == logging.ERROR and record.exc_info for record in told)
    assert store.stats()["poisoned"] is None
    assert store.append("t", 0, b"next") == 2


def test_error_of_a_callback_that_is_called_at_once_is_logged(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    ticket = store.submit("t", 0, b"x")
    ticket.result()
    ticket.add_done_callback(raises_error)
    assert "of the callback" in caplog.text


def test_logger_that_raises_harms_nobody(store: MessageStore, disk: GatedDisk) -> None:
    def broken(record: logging.LogRecord) -> bool:
        raise RuntimeError("of the filter")

    logger = logging.getLogger("stratalog")
    logger.addFilter(broken)
    try:
        disk.gate.clear()
        ticket = store.submit("t", 0, b"x")
        ticket.add_done_callback(raises_error)
        disk.gate.set()
        assert ticket.result(PATIENCE_S) == 1
        assert store.append("t", 0, b"next") == 2
    finally:
        logger.removeFilter(broken)


@pytest.mark.parametrize("durability", ["force", "os"])
def test_callback_may_append_and_wait(tmp_path: Path, durability: str) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(durability=durability), disk=disk) as store:
        store.append("t", 0, b"first")
        offsets: list[int] = []

        def append(ticket: Ticket) -> None:
            offsets.append(store.append("t", 0, b"of the callback"))
            store.flush()
            offsets.append(store.submit("t", 0, b"of the callback").result(PATIENCE_S))

        disk.gate.clear()
        ticket = store.submit("t", 0, b"x")
        ticket.add_done_callback(append)
        disk.gate.set()
        until(lambda: len(offsets) == 2)
        assert offsets == [2, 3]


def test_slow_callback_holds_up_no_append(store: MessageStore, disk: GatedDisk) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def slow(ticket: Ticket) -> None:
        begun.set()
        go_on.wait(PATIENCE_S)

    disk.gate.clear()
    store.submit("t", 0, b"x").add_done_callback(slow)
    disk.gate.set()
    assert begun.wait(PATIENCE_S)
    assert [store.append("t", 0, b"y") for _ in range(20)] == list(range(2, 22))
    go_on.set()


def test_close_waits_for_the_callbacks_and_ends_their_thread(tmp_path: Path) -> None:
    before = threads()
    called: list[Ticket] = []

    def slow(ticket: Ticket) -> None:
        time.sleep(0.01)
        called.append(ticket)

    with MessageStore.open(tmp_path, tiny()) as store:
        tickets = [store.submit("t", 0, b"x") for _ in range(20)]
        for ticket in tickets:
            ticket.add_done_callback(slow)
    assert set(called) == set(tickets)
    until(lambda: threads() <= before)  # those of other tests may end meanwhile


def test_callback_may_close_the_store_while_another_thread_closes_it(tmp_path: Path) -> None:
    disk = GatedDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    disk.gate.clear()
    ticket = store.submit("t", 0, b"x")
    ticket.add_done_callback(lambda done: store.close())
    closing = start(store.close)
    disk.gate.set()
    closing.join()
    assert store.closed and ticket.result() == 0


def test_callbacks_hear_of_a_failed_write(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    store.append("t", 0, b"x")
    disk.fail = "write"
    heard: list[object] = []
    ticket = store.submit("t", 0, b"lost")
    ticket.add_done_callback(lambda done: heard.append(done.exception()))
    store.close()
    assert [type(error) for error in heard] == [StorePoisoned]


def test_exception_is_the_error_or_none(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    assert store.submit("t", 0, b"x").exception() is None
    disk.fail = "write"
    ticket = store.submit("t", 0, b"lost")
    error = ticket.exception(PATIENCE_S)
    assert isinstance(error, StorePoisoned) and ticket.exception() is not error  # each with frames of its own
    with pytest.raises(InvalidMessage):
        SubmitRequest(store._appender._stream("t", 0), b"", 0).exception("soon")  # type: ignore[arg-type]
    store.close()


def test_exception_waits_no_longer_than_it_is_told(store: MessageStore, disk: GatedDisk) -> None:
    disk.gate.clear()
    ticket = store.submit("t", 0, b"x")
    for timeout in (0, 0.02, -1):
        with pytest.raises(TimeoutError):
            ticket.exception(timeout)
    disk.gate.set()
    assert ticket.exception() is None


def test_ticket_can_be_awaited_by_several_and_again(store: MessageStore, disk: GatedDisk) -> None:
    async def offset(ticket: Ticket) -> int:
        return await ticket

    async def main() -> list[int]:
        disk.gate.clear()
        ticket = store.submit("t", 0, b"x")
        waiting = [asyncio.ensure_future(offset(ticket)) for _ in range(3)]
        await asyncio.sleep(0.02)
        assert not any(task.done() for task in waiting)
        disk.gate.set()
        return [*await asyncio.gather(*waiting), await ticket, await offset(ticket)]

    assert asyncio.run(main()) == [1] * 5


def test_awaited_ticket_raises_what_result_raises(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    store.append("t", 0, b"x")

    async def main() -> None:
        disk.fail = "write"
        ticket = store.submit("t", 0, b"lost")
        for _ in range(2):
            with pytest.raises(StorePoisoned):
                await ticket

    asyncio.run(main())
    store.close()


def test_cancelled_await_and_a_loop_that_ended_harm_nobody(store: MessageStore, disk: GatedDisk) -> None:
    async def offset(ticket: Ticket) -> int:
        return await ticket

    async def main() -> Ticket:
        disk.gate.clear()
        ticket = store.submit("t", 0, b"x")
        task = asyncio.ensure_future(offset(ticket))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left = asyncio.ensure_future(offset(ticket))
        await asyncio.sleep(0)
        assert not left.done()
        return ticket

    ticket = asyncio.run(main())
    disk.gate.set()
    assert ticket.result(PATIENCE_S) == 1
    assert store.append("t", 0, b"next") == 2


def test_no_callback_is_missed_or_called_twice(store: MessageStore) -> None:
    """Callbacks are added while the answer comes."""
    counts: dict[int, int] = {}

    def count(number: int) -> Callable[[Ticket], None]:
        def called(ticket: Ticket) -> None:
            counts[number] = counts.get(number, 0) + 1

        return called

    for number in range(3000):
        store.submit("t", number % 4, b"x").add_done_callback(count(number))
    store.close()
    assert counts == dict.fromkeys(range(3000), 1)


def test_callbacks_are_the_parents_after_a_fork(tmp_path: Path) -> None:
    code = """
import os, sys
from stratalog import MessageStore
from tests.store.disks import GatedDisk
from tests.store.helpers import until
disk = GatedDisk()
called = []
with MessageStore.open(sys.argv[1], disk=disk) as store:
    store.submit("t", 0, b"x").add_done_callback(called.append)
    until(lambda: len(called) == 1)  # so that their thread is there
    disk.gate.clear()
    ticket = store.submit("t", 0, b"x")
    ticket.add_done_callback(called.append)
    del called[:]
    child = os.fork()
    if not child:
        try:
            ticket.result(0)
        except Exception as error:
            os._exit(10 + len(called) if type(error).__name__ == "StoreClosed" else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    disk.gate.set()
print(os.waitstatus_to_exitcode(status), ticket in called)
"""
    done = run_child(code, str(tmp_path))
    assert done.stdout == "10 True\n", done.stdout + done.stderr


def test_callbacks_are_called_at_the_end_of_the_interpreter(tmp_path: Path) -> None:
    code = """
import sys, warnings
warnings.simplefilter("ignore")
from stratalog import MessageStore
store = MessageStore.open(sys.argv[1])
for _ in range(5):
    store.submit("t", 0, b"x").add_done_callback(lambda ticket: print(ticket.result()))
"""
    done = run_child(code, str(tmp_path))
    assert done.stdout.split() == list("01234"), done.stderr


def test_closed_store_answers_the_tickets_that_it_refused(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path)
    store.close()
    with pytest.raises(StoreClosed):
        store.submit("t", 0, b"x")
