"""The port: it accepts connections, tells TLS from plaintext by the first byte, and passes them on.

Behind it are gRPC servers, one for plaintext and one for TLS, on Unix sockets with random names that only this machine
sees and that leave no file. The port is bound here, and not by gRPC: a second endpoint on a port is an error, there is
a limit of connections, and one that sends nothing or no HTTP/2 never comes to gRPC.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ..errors import AddressInUse, AddressUnusable
from . import forks
from .limits import Limits
from .relay import Relay, hang_up

log = logging.getLogger("stratalog.endpoint")
TLS_FIRST = 0x16  # a handshake record
HTTP2_FIRST = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BUFFER_BYTES = 256 << 10
BACKLOG = 1024
AT_ONCE = 64  # connections accepted before others have their turn
AGAIN_S = 0.05
NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Backend = Callable[[], Awaitable[str | None]]  # -> the name of the Unix socket; None: such connections are refused


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises AddressInUse, AddressUnusable."""
    if type(port) is not int or not 0 <= port <= 65_535:
        raise AddressUnusable(f"the endpoint cannot listen on {host!r}, port {port!r}: ports are 0 to 65,535")
    if not isinstance(host, str) or not host or "\0" in host:
        raise AddressUnusable(f"the endpoint cannot listen on {host!r}: give a name or an address, such as 127.0.0.1")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise AddressUnusable(f"the endpoint cannot listen on {host!r}, port {port}: {error}") from error
    family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(
                f"another program, or another endpoint, listens on {host} port {port}: stop it, or take another port "
                f"(0 is any free one)"
            ) from error
        raise AddressUnusable(f"the endpoint cannot listen on {host!r}, port {port}: {error}") from error
    made.setblocking(False)
    return made


class Front:
    """The connections of a listening socket.

    plain, tls: say where to pass a connection on. They are asked at its first byte, so a server for TLS is made only
    if somebody wants it.
    """

    def __init__(self, listening: socket.socket, limits: Limits, plain: Backend, tls: Backend) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._first_byte_s = limits.first_byte_s
        self._stalled_s = limits.ping_s + limits.ping_timeout_s
        self._most = limits.most_connections()
        self._plain = plain
        self._tls = tls
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}  # no byte has come yet
        self._opening: dict[asyncio.Task[None], socket.socket] = {}
        self._relays: set[Relay] = set()
        self.refused = 0  # connections over the limit, since the start
        self._loop.add_reader(listening, self._accept)
        forks.watch(self)

    def let_go(self) -> None:
        """In a child of a fork: close its copies of the sockets. The loop stays as it is: its epoll is the parent's."""
        for one in (self._listening, *list(self._waiting), *list(self._opening.values())):
            one.close()
        for relay in list(self._relays):
            relay.let_go()

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._waiting) + len(self._opening) + len(self._relays)

    def stop_listening(self) -> None:
        """Take no more connections; those that are there go on. A second call does nothing."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()

    def close(self, *, reset: bool = False) -> None:
        """Close all connections; with `reset` clients get an RST, as from a process that was killed."""
        self.stop_listening()
        self.drop(reset=reset)

    def drop(self, *, reset: bool = False) -> None:
        """Close the connections that there are now."""
        for client in list(self._waiting):
            self._forget(client, reset=reset)
        for task in list(self._opening):
            task.cancel()
        for relay in list(self._relays):
            relay.close(reset=reset)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                client, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in NO_DESCRIPTORS:
                    self._pause(error)
                return
            if self.connections >= self._most:
                self.refused += 1
                hang_up(client, reset=True)
                continue
            client.setblocking(False)
            with suppress(OSError):  # it may be gone already
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._waiting[client] = self._loop.call_later(self._first_byte_s, self._forget, client)
            self._loop.add_reader(client, self._first, client)

    def _pause(self, error: OSError) -> None:
        """No descriptor is left: the connection waits in the kernel, and is looked at again soon."""
        log.warning("a connection waits: %s", error)
        self._loop.remove_reader(self._listening)
        self._loop.call_later(AGAIN_S, self._resume)

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)

    def _forget(self, client: socket.socket, *, reset: bool = False) -> None:
        """A connection that has not begun ends."""
        self._waiting.pop(client).cancel()
        self._loop.remove_reader(client)
        hang_up(client, reset=reset)

    def _first(self, client: socket.socket) -> None:
        """The first bytes have come."""
        try:
            data = client.recv(BUFFER_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        is_tls = data[:1] == bytes([TLS_FIRST])
        if not is_tls and (not data or data[: len(HTTP2_FIRST)] != HTTP2_FIRST[: len(data)]):
            self._forget(client)  # garbage, or it went away
            return
        self._waiting.pop(client).cancel()
        self._loop.remove_reader(client)
        task = self._loop.create_task(self._open(client, data, self._tls if is_tls else self._plain))
        self._opening[task] = client
        task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        client = self._opening.pop(task)
        if task.cancelled() or task.exception() is not None:
            if not task.cancelled():
                log.warning("a connection could not be passed on: %s", task.exception())
            client.close()

    async def _open(self, client: socket.socket, first: bytes, backend: Backend) -> None:
        """Connect to the gRPC server, and begin to pass bytes on."""
        name = await backend()
        if name is None:
            client.close()
            return
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await self._connect(server, f"\0{name}")
        except BaseException:
            server.close()
            raise
        relay = Relay(
            self._loop, client, server, self._buffer, self._stalled_s, lambda: self._relays.discard(relay)
        )  # fmt: skip
        self._relays.add(relay)
        relay.begin(first)

    async def _connect(self, server: socket.socket, address: str) -> None:
        """A Unix socket connects at once, or says EAGAIN while many others wait for gRPC to accept them."""
        deadline = self._loop.time() + self._first_byte_s
        while True:
            try:
                server.connect(address)
                return
            except BlockingIOError:
                if self._loop.time() > deadline:
                    raise
                await asyncio.sleep(AGAIN_S)
