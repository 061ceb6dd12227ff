"""A stop ends in time, whatever clients do; and the loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import grpc
import pytest

from stratalog.endpoint.errors import EndpointClosed
from stratalog.endpoint.server.loop_thread import LoopThread
from stratalog.endpoint.server.server import GrpcServer

from .echoes import PATIENCE_S, Echoes, ask, client_of, refused, run, served, until


def test_calls_that_only_wait_end_at_once_and_the_client_hears_why() -> None:
    async def test() -> None:
        echoes = Echoes()
        async with served(echoes) as server, client_of(server) as channel:
            waiting = channel.unary_unary("/test.Echoes/Wait")(b"")
            chat = channel.stream_stream("/test.Echoes/Chat")()
            await chat.write(b"a")
            assert await chat.read() == b"a"
            await until(lambda: server.calls.counts["Wait"] == 1)
            await server.stop(PATIENCE_S * 10)  # nothing else is under way, so it takes none of this
            assert await refused(waiting) == (
                grpc.StatusCode.UNAVAILABLE,
                "the endpoint stops: call again when it is back",
            )
            assert await chat.code() == grpc.StatusCode.UNAVAILABLE

    run(test)


def test_a_call_under_way_has_the_grace() -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        class Slow(Echoes):
            async def echo(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
                await go_on.wait()
                return request

        async with served(Slow()) as server, client_of(server) as channel:
            asked = asyncio.ensure_future(ask(channel, "Echo", b"whole"))
            await until(lambda: server.calls.counts["Echo"] == 1)
            stopping = asyncio.ensure_future(server.stop(PATIENCE_S))
            await server.calls.stopping.wait()
            go_on.set()
            assert await asked == b"whole"
            await stopping

    run(test)


def test_calls_that_never_end_are_cut_after_the_grace() -> None:
    async def test() -> None:
        echoes = Echoes()
        async with served(echoes) as server, client_of(server) as channel:
            hanging = channel.unary_unary("/test.Echoes/Hang")(b"")
            flood = channel.unary_stream("/test.Echoes/Flood")(b"")  # nobody reads it
            await until(lambda: server.calls.counts["Hang"] == server.calls.counts["Flood"] == 1)
            await server.stop(0.05)
            code, _ = await refused(hanging)
            assert code == grpc.StatusCode.UNAVAILABLE
            assert sorted(echoes.cancelled) == ["flood", "hang"]
            flood.cancel()
            await server.stop()  # a second one does nothing

    run(test)


def test_a_handler_that_does_not_end_when_cancelled_does_not_keep_the_stop() -> None:
    async def test() -> None:
        end = asyncio.Event()

        class Stubborn(Echoes):
            async def echo(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
                while not end.is_set():
                    try:
                        await end.wait()
                    except asyncio.CancelledError:
                        self.cancelled.append("echo")
                return request

        echoes = Stubborn()
        async with served(echoes) as server, client_of(server) as channel:
            asked = asyncio.ensure_future(ask(channel, "Echo"))
            await until(lambda: server.calls.counts["Echo"] == 1)
            await server.stop(0)
            assert (await refused(asked))[0] == grpc.StatusCode.UNAVAILABLE
            end.set()

    run(test)


def test_a_kill_resets_connections_and_answers_nothing() -> None:
    async def test() -> None:
        echoes = Echoes()
        async with served(echoes) as server, client_of(server) as channel:
            hanging = channel.unary_unary("/test.Echoes/Wait")(b"")
            await until(lambda: server.calls.counts["Wait"] == 1)
            await server.kill()
            code, text = await refused(hanging)
            assert code == grpc.StatusCode.UNAVAILABLE and "stops" not in text
            assert echoes.cancelled == ["hang"]

    run(test)


def test_a_server_in_a_thread_of_its_own() -> None:
    threads = LoopThread()
    server = GrpcServer([Echoes().service()])
    threads.run(server.start())
    with grpc.insecure_channel(server.address) as channel:
        call: Any = channel.unary_unary("/test.Echoes/Echo")
        assert call(b"a", timeout=PATIENCE_S) == b"a"
    threads.run(server.stop(0))
    threads.close()
    threads.close()
    assert "stratalog-endpoint" not in [thread.name for thread in threading.enumerate()]


def test_the_loop_thread_raises_what_a_coroutine_raises_and_refuses_what_would_hang() -> None:
    threads = LoopThread()

    async def fail() -> None:
        raise KeyError("x")

    async def inside() -> None:
        threads.run(fail())

    with pytest.raises(KeyError):
        threads.run(fail())
    with pytest.raises(RuntimeError, match="async form"):
        threads.run(inside())
    with pytest.raises(TimeoutError):
        threads.run(asyncio.sleep(PATIENCE_S), timeout_s=0.01)
    threads.close()
    with pytest.raises(EndpointClosed):
        threads.run(fail())


def test_closing_the_loop_thread_cancels_tasks_and_does_not_wait_for_stubborn_ones() -> None:
    threads = LoopThread()
    ended, begun = threading.Event(), threading.Event()

    async def task() -> None:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            ended.set()

    async def stubborn() -> None:
        mine = asyncio.current_task()
        assert mine is not None
        mine._log_destroy_pending = False  # type: ignore[attr-defined]  # it never ends, as is meant
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(PATIENCE_S)

    threads.run(asyncio.sleep(0))  # it runs now
    for one in (stubborn, task):
        asyncio.run_coroutine_threadsafe(one(), threads.loop)
    assert begun.wait(PATIENCE_S)
    threads.close(0.05)
    assert ended.is_set()
    assert not threads.loop.is_running()
