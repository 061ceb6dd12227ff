"""The console's web server: it answers its pages, and no client stops it for another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from stratalog.console import web
from stratalog.console.web import MOST_CLIENTS, MOST_HEAD_BYTES, MakePage, Page, WebServer, serving

from ..store.helpers import PATIENCE_S


@dataclass(frozen=True)
class Client:
    """Sends bytes to the server of a port."""

    port: int

    async def __call__(self, request: bytes = b"GET /here HTTP/1.1\r\nHost: localhost:1\r\n\r\n") -> tuple[int, bytes]:
        """The code and the body of the answer; 0 if it was sent away."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        try:
            answer = await reader.read()
        except ConnectionResetError:
            answer = b""
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]) if head else 0, body


@asynccontextmanager
async def served(
    make: MakePage = lambda: Page("text/plain", b"here"), *, local_names: bool = False
) -> AsyncIterator[Client]:
    """A server of the page /here, and a client of it."""
    server = WebServer({"/here": make}, "127.0.0.1", 0, local_names=local_names)
    async with serving(server):
        yield Client(int(server.address.rpartition(":")[2]))


def run(program: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(program, PATIENCE_S))


def test_it_answers_its_pages_and_says_no_to_all_else() -> None:
    async def program() -> None:
        async with served() as ask:
            assert await ask() == (200, b"here")
            assert await ask(b"GET /here?x=1 HTTP/1.0\r\n\r\n") == (200, b"here")
            assert await ask(b"HEAD /here HTTP/1.1\r\n\r\n") == (200, b"")
            assert await ask(b"GET /there HTTP/1.1\r\n\r\n") == (404, b"Not Found\n")
            assert await ask(b"POST /here HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd") == (405, b"Method Not Allowed\n")
            for garbage in (
                b"\r\n\r\n",
                b"\x16\x03\x01\x00\r\n\r\n",
                b"GET /here\r\n\r\n",
                b"GET  /here HTTP/1.1\r\n\r\n",
            ):
                assert (await ask(garbage))[0] == 400
            assert (await ask(b"GET /here HTTP/1.1\r\n" + b"x" * 2 * MOST_HEAD_BYTES))[0] == 400
            assert await ask() == (200, b"here")

    run(program())


def test_a_page_that_fails_or_is_not_there_yet_ends_no_server() -> None:
    pages: list[Page | None] = [None]

    def make() -> Page | None:
        return pages[0] if pages else Page("text/plain", b"%d" % (1 // 0))

    async def program() -> None:
        async with served(make) as ask:
            assert (await ask())[0] == 503
            pages.clear()
            assert (await ask())[0] == 500
            pages.append(Page("text/plain", b"now"))
            assert await ask() == (200, b"now")

    run(program())


def test_clients_that_are_silent_or_take_nothing_stop_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PATIENCE_S", 0.3)

    async def program() -> None:
        async with served(lambda: Page("text/plain", bytes(8 << 20))) as ask:
            silent = [await asyncio.open_connection("127.0.0.1", ask.port) for _ in range(MOST_CLIENTS // 2)]
            for _, writer in silent[::2]:
                writer.write(b"GET /here HT")
            deaf = await asyncio.open_connection("127.0.0.1", ask.port)
            deaf[1].write(b"GET /here HTTP/1.1\r\n\r\n")
            assert (await ask()) == (200, bytes(8 << 20))
            for reader, writer in silent:  # each is let go
                assert (await reader.read())[9:12] in (b"408", b"")
                writer.close()
            deaf[1].close()
            assert (await ask())[0] == 200

    run(program())


def test_silent_clients_give_their_places_to_others_the_oldest_first() -> None:
    async def program() -> None:
        async with served() as ask:
            silent = [await asyncio.open_connection("127.0.0.1", ask.port) for _ in range(MOST_CLIENTS)]
            assert await ask() == (200, b"here")
            assert await silent[0][0].read() == b""
            more = [await asyncio.open_connection("127.0.0.1", ask.port) for _ in range(MOST_CLIENTS)]
            assert await ask() == (200, b"here")
            silent[-1][1].write(b"GET /here HTTP/1.1\r\n\r\n")  # too late
            assert await silent[1][0].read() == b""
            for _, writer in silent + more:
                writer.close()

    run(program())


def test_more_requests_than_it_takes_are_sent_away_and_later_ones_are_answered() -> None:
    go_on = threading.Event()

    def make() -> Page:
        go_on.wait(PATIENCE_S)
        return Page("text/plain", b"slow")

    async def program() -> None:
        async with served(make) as ask:
            asked = [asyncio.create_task(ask()) for _ in range(MOST_CLIENTS + 6)]
            ended = asyncio.as_completed(asked)
            assert [await next(ended) for _ in range(6)] == [(0, b"")] * 6
            go_on.set()
            answers = [await one for one in asked]
            assert answers.count((0, b"")) == 6 and answers.count((200, b"slow")) == MOST_CLIENTS
            assert await ask() == (200, b"slow")

    run(program())


def test_a_slow_page_holds_up_no_loop_and_is_made_once_at_a_time() -> None:
    makers, most = [0], [0]
    go_on = threading.Event()

    def make() -> Page:
        makers[0] += 1
        most[0] = max(most[0], makers[0])
        go_on.wait(PATIENCE_S)
        makers[0] -= 1
        return Page("text/plain", b"slow")

    async def program() -> None:
        async with served(make) as ask:
            asked = [asyncio.create_task(ask()) for _ in range(5)]
            assert (await ask(b"GET /there HTTP/1.1\r\n\r\n"))[0] == 404
            go_on.set()
            assert [await one for one in asked] == [(200, b"slow")] * 5
        assert most == [1]

    run(program())


def test_with_local_names_a_request_for_another_host_is_refused() -> None:
    async def program() -> None:
        async with served(local_names=True) as ask:
            for host, code in (
                ("localhost", 200), ("127.0.0.1:8082", 200), ("[::1]:9", 200), ("[::1]", 200), ("LOCALHOST", 200),
                ("evil.example", 403), ("localhost.evil.example:80", 403), ("", 403),
            ):  # fmt: skip
                assert (await ask(f"GET /here HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()))[0] == code, host
            assert (await ask(b"GET /here HTTP/1.1\r\n\r\n"))[0] == 403

    run(program())


def test_a_port_that_is_taken_is_an_error() -> None:
    async def program() -> None:
        async with served() as ask:
            other = WebServer({}, "127.0.0.1", ask.port)
            with pytest.raises(OSError, match="in use"):
                await other.start()

    run(program())
