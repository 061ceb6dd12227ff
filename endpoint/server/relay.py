"""One connection of a client: its bytes are passed on to the gRPC server behind the port, and back.

A direction reads only while nothing waits to be written: a slow reader holds at most one buffer of each direction, and
its own connection alone. One that takes no byte for `stalled_s` is hung up on, as gRPC's own check of life does not get
past the bytes that wait. All relays of a loop share one buffer for reading.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close sends RST and drops what is not sent


def hang_up(client: socket.socket, *, reset: bool) -> None:
    """Close a client's socket; with `reset` it gets an RST at once."""
    if reset:
        with suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()


class _Direction:
    """Bytes of one direction: from `source` to `target`."""

    __slots__ = ("_buffer", "_end", "_loop", "_pending", "_stalled", "_stalled_s", "ended", "source", "target")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: socket.socket,
        target: socket.socket,
        buffer: memoryview,
        stalled_s: float,
        end: Callable[[], None],
    ) -> None:
        self.source = source
        self.target = target
        self.ended = False  # the source has sent its last byte, and all is passed on
        self._loop = loop
        self._buffer = buffer
        self._pending = bytearray()
        self._stalled: asyncio.TimerHandle | None = None  # while bytes wait
        self._stalled_s = stalled_s
        self._end = end

    def begin(self, first: bytes = b"") -> None:
        """Pass on `first`, and then what comes."""
        if first:
            self._pending += first
            self._write()
        if not self._pending:
            self._loop.add_reader(self.source, self._read)

    def _read(self) -> None:
        try:
            count = self.source.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end()
            return
        if count == 0:
            self._loop.remove_reader(self.source)
            with suppress(OSError):
                self.target.shutdown(socket.SHUT_WR)
            self.ended = True
            self._end()
            return
        try:
            sent = self.target.send(self._buffer[:count])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._end()
            return
        if sent < count:
            self._pending += self._buffer[sent:count]
            self._loop.remove_reader(self.source)
            self._loop.add_writer(self.target, self._write)
            self._watch()

    def _write(self) -> None:
        try:
            sent = self.target.send(self._pending)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._end()
            return
        del self._pending[:sent]
        self.unwatch()
        if self._pending:
            self._loop.add_writer(self.target, self._write)
            self._watch()
        else:
            self._loop.remove_writer(self.target)
            self._loop.add_reader(self.source, self._read)

    def _watch(self) -> None:
        self._stalled = self._loop.call_later(self._stalled_s, self._end)

    def unwatch(self) -> None:
        """Bytes have gone, or the connection ends."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class Relay:
    """Both directions of one connection, from its first byte on."""

    __slots__ = ("_back", "_client", "_half", "_loop", "_on_close", "_server", "_stalled_s", "_to")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: socket.socket,
        server: socket.socket,
        buffer: memoryview,
        stalled_s: float,
        on_close: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._stalled_s = stalled_s
        self._half: asyncio.TimerHandle | None = None  # once the client has sent its last byte
        self._client = client
        self._server = server
        self._on_close = on_close
        self._to = _Direction(loop, client, server, buffer, stalled_s, self._ended)
        self._back = _Direction(loop, server, client, buffer, stalled_s, self._ended)

    def begin(self, first: bytes) -> None:
        """Pass on the client's first bytes, then all."""
        self._back.begin()
        self._to.begin(first)

    def _ended(self) -> None:
        """A direction has ended or failed. The gRPC server hangs up by itself after the client has."""
        if self._to.ended and not self._back.ended and self._half is None:
            self._half = self._loop.call_later(self._stalled_s, self.close)
        else:
            self.close()

    def let_go(self) -> None:
        """In a child of a fork: close its copies of the sockets."""
        self._client.close()
        self._server.close()

    def close(self, *, reset: bool = False) -> None:
        """Close both sockets; with `reset` the client gets an RST at once. A second call does nothing."""
        if self._client.fileno() < 0:
            return
        for direction in (self._to, self._back):
            direction.unwatch()
        if self._half is not None:
            self._half.cancel()
        for one in (self._client, self._server):
            self._loop.remove_reader(one)
            self._loop.remove_writer(one)
        hang_up(self._client, reset=reset)
        self._server.close()
        self._on_close()
