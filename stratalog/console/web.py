"""A small web server in an event loop: some pages, for a collector of metrics or a browser beside the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple

PATIENCE_S = 5.0  # of a client that sends its request, and of one that takes the answer
MOST_CLIENTS = 64  # at once; for another one, that which has been silent the longest is sent away
MOST_HEAD_BYTES = 8192
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
STATES = {
    200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip


class Page(NamedTuple):
    """What a path answers."""

    kind: str  # its media type
    body: bytes


MakePage = Callable[[], "Page | None"]


class WebServer:
    """Answers GET and HEAD of some paths; one request a connection.

    Invariants:
        * a client that is slow, silent or sends garbage holds its own connection, for two times `PATIENCE_S` at most;
        * when there are too many clients, those without a request give their places to others, the oldest first;
        * a page is made by a thread, one at a time: the loop goes on meanwhile.

    Attributes:
        address: HOST:PORT, once it has begun.
    """

    def __init__(self, pages: Mapping[str, MakePage], host: str, port: int, *, local_names: bool = False) -> None:
        """A page that is None now is answered with 503. `local_names` refuses requests for another host: a page of the
        internet whose name leads here would read what is not its own.
        """
        self._pages = pages
        self._host = host
        self._port = port
        self._local_names = local_names
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.Task[None], None] = {}  # those that have sent no request yet, the oldest first
        self._making = asyncio.Lock()
        self.address = ""

    async def start(self) -> None:
        """Listen. Raises OSError, also where another program listens on the port."""
        self._server = await asyncio.start_server(self._come, self._host, self._port, limit=MOST_HEAD_BYTES)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def close(self) -> None:
        """Listen no more, and let go of all clients."""
        if self._server is not None:
            self._server.close()
        for client in list(self._clients):
            client.cancel()
        await asyncio.gather(*list(self._clients), return_exceptions=True)

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        if len(self._clients) > MOST_CLIENTS and self._silent:
            oldest = next(iter(self._silent))
            self._forget(oldest)
            oldest.cancel()
        try:
            if len(self._clients) <= MOST_CLIENTS:
                self._silent[task] = None
                await self._serve(task, reader, writer)
        except (OSError, TimeoutError):
            pass  # the client has gone, or takes nothing
        except asyncio.CancelledError:
            pass  # by `close`, or for another client; nobody waits for this task's result
        finally:
            self._forget(task)
            if writer.transport.get_write_buffer_size():  # it took no more: a close would wait for it
                writer.transport.abort()
            else:
                writer.close()

    def _forget(self, client: asyncio.Task[None]) -> None:
        self._clients.discard(client)
        self._silent.pop(client, None)

    async def _serve(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        is_late = False
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            answer, is_late = _answer(408, _text(408)), True
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            answer = _answer(400, _text(400))
        else:
            self._silent.pop(task, None)
            answer = await self._answered(head)
        async with asyncio.timeout(PATIENCE_S):
            writer.write(answer)
            await writer.drain()
            writer.write_eof()
            while await reader.read(MOST_HEAD_BYTES) and not is_late:  # else a reset could overtake the answer
                pass

    async def _answered(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _answer(400, _text(400))
        method, path = words[0], words[1].partition("?")[0]
        without_body = method == "HEAD"
        if method not in ("GET", "HEAD"):
            return _answer(405, _text(405))
        if self._local_names and _host_of(lines) not in LOCAL_NAMES:
            return _answer(403, _text(403))
        make = self._pages.get(path)
        if make is None:
            return _answer(404, _text(404), without_body=without_body)
        try:
            async with self._making:
                page = await asyncio.to_thread(make)
        except Exception:  # one page that cannot be made ends no server
            return _answer(500, _text(500), without_body=without_body)
        return _answer(503 if page is None else 200, page or _text(503), without_body=without_body)


def _host_of(lines: list[str]) -> str:
    """The host that a request asks for, without its port."""
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "host":
            host = value.strip().lower()
            return host if host.endswith("]") else host.rpartition(":")[0] or host
    return ""


def _text(code: int) -> Page:
    return Page("text/plain; charset=utf-8", f"{STATES[code]}\n".encode())


def _answer(code: int, page: Page, *, without_body: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {code} {STATES[code]}\r\nContent-Type: {page.kind}\r\nContent-Length: {len(page.body)}\r\n"
        f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    ).encode()
    return head if without_body else head + page.body


@contextlib.asynccontextmanager
async def serving(server: WebServer | None) -> AsyncIterator[None]:
    """A context in which the server runs; without one nothing does. Raises OSError."""
    if server is None:
        yield
        return
    await server.start()
    try:
        yield
    finally:
        await server.close()
