"""Ctrl-C while an endpoint starts or stops: it leaves no thread, no socket and no file, and another one can start."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import os
import random
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any

import pytest

from stratalog import MessageStore
from stratalog.endpoint import RocketMQEndpoint
from tests.seeds import draw_seed

from ...store.helpers import until

ROUNDS = 20


class Interrupted(KeyboardInterrupt):
    """The interrupt of a test."""


@contextlib.contextmanager
def interrupts() -> Iterator[Any]:
    """A function that makes a call, and interrupts it after so many seconds, if it has not returned by then."""
    is_armed = False

    def strike(*_: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise Interrupted

    def make(call: Callable[[], None], seconds: float) -> None:
        nonlocal is_armed
        try:
            is_armed = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            call()
            is_armed = False
        except Interrupted:
            pass

    before = signal.signal(signal.SIGALRM, strike)
    try:
        yield make
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ours() -> list[str]:
    return [
        one.name for one in threading.enumerate() if one.name.startswith(("stratalog-endpoint", "stratalog-remote"))
    ]


def reached(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # asyncio's own, if a loop is half made
def test_an_interrupt_at_any_instant_of_start_and_stop_leaves_nothing(store: MessageStore) -> None:
    chance = random.Random(draw_seed())
    with RocketMQEndpoint(store, grace_s=0.05):  # what the process keeps of gRPC is there then
        pass
    descriptors = len(os.listdir("/proc/self/fd"))
    with interrupts() as interrupted, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a coroutine that was not begun
        for _ in range(ROUNDS):
            endpoint = RocketMQEndpoint(store, grace_s=0.05)
            if chance.random() < 0.5:
                interrupted(endpoint.start, chance.choice((0.003, 0.03)) * chance.random() + 1e-5)
            else:
                endpoint.start()
                interrupted(endpoint.stop, chance.choice((0.003, 0.1)) * chance.random() + 1e-5)
            endpoint.stop()
            until(lambda: not ours())
            if endpoint._server is not None and endpoint._server.port:
                assert not reached(endpoint.address)
    gc.collect()
    with RocketMQEndpoint(store) as endpoint:
        assert reached(endpoint.address)
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2
    assert store.append("t", 0, b"on") == 0


def test_an_interrupt_of_a_stop_is_raised_when_all_is_closed(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = RocketMQEndpoint(store)
    endpoint.start()
    waits: list[Any] = []

    def interrupted(futures: Any) -> Any:
        waits.append(futures)
        if len(waits) == 1:
            raise Interrupted
        return wait(futures)

    monkeypatch.setattr(concurrent.futures, "wait", interrupted)
    with pytest.raises(Interrupted):
        endpoint.stop()
    assert not ours() and not reached(endpoint.address)
    endpoint.stop()


def test_an_interrupt_before_the_thread_is_told_of_the_end_is_raised_when_all_is_closed(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = RocketMQEndpoint(store)
    endpoint.start()
    thread: Any = endpoint._thread
    tell, told = thread.loop.call_soon_threadsafe, []

    def interrupted(*given: Any) -> Any:
        told.append(given)
        if len(told) == 1:
            raise Interrupted
        return tell(*given)

    monkeypatch.setattr(thread.loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(Interrupted):
        endpoint.stop()
    assert not ours() and not reached(endpoint.address)


def test_a_stop_on_the_endpoints_own_loop_is_refused_and_the_endpoint_goes_on(store: MessageStore) -> None:
    async def stop() -> None:
        endpoint.stop()

    with RocketMQEndpoint(store) as endpoint:
        thread: Any = endpoint._thread
        with pytest.raises(RuntimeError, match="async form"):
            thread.run(stop())
        assert reached(endpoint.address)
    assert not ours() and not reached(endpoint.address)


def test_a_thread_that_never_began_is_closed(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: threading.Thread) -> None:
        raise Interrupted

    endpoint = RocketMQEndpoint(store)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(Interrupted):
            endpoint.start()
    endpoint.start()
    assert reached(endpoint.address)
    endpoint.stop()
    assert not ours()
