"""A consumer group of a Redis stream: a server of its own that forces its log for each command."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SETUP = "Redis: one stream, one consumer group, appendfsync always, a socket of the machine; acknowledged by XACK"
MISSING = "redis-server is not installed, so the rows of Redis are left out: apt-get install redis-server"
STREAM, GROUP = "messages", "group"
STARTED_S = 10.0
PUT_MESSAGES = 1000  # sent before an answer is read


def has_redis() -> bool:
    """Whether the server can be started."""
    return shutil.which("redis-server") is not None


class RedisStream:
    """Messages that a consumer of a group takes, and acknowledges. One connection, one thread."""

    def __init__(self, folder: Path) -> None:
        """Start a server. Raises OSError if it does not answer."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = path = Path(tempfile.mkdtemp()) / "redis.sock"  # the name of a socket has to be short
        self._server = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--save", "",
             "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            self._socket = _connected(path)
            self._answers = self._socket.makefile("rb")
            self._call("XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM")
        except BaseException:  # also an interrupt: the server must not outlive it
            self._server.kill()
            raise

    def put(self, datas: list[bytes]) -> None:
        """Append messages."""
        for begin in range(0, len(datas), PUT_MESSAGES):
            some = datas[begin : begin + PUT_MESSAGES]
            self._socket.sendall(b"".join(_packed(("XADD", STREAM, "*", "d", data)) for data in some))
            for _ in some:
                self._answer()

    def take(self, count: int) -> list[tuple[bytes, bytes]]:
        """(id, data) of the next messages."""
        found = self._call("XREADGROUP", "GROUP", GROUP, "one", "COUNT", str(count), "STREAMS", STREAM, ">")
        return [] if found is None else [(number, fields[1]) for number, fields in found[0][1]]

    def ack(self, numbers: list[bytes]) -> None:
        """Acknowledge messages, durably."""
        self._call("XACK", STREAM, GROUP, *numbers)

    def close(self) -> None:
        """End the server."""
        self._answers.close()
        self._socket.close()
        self._server.kill()
        self._server.wait()
        shutil.rmtree(self._path.parent, ignore_errors=True)

    def _call(self, *words: str | bytes) -> Any:
        self._socket.sendall(_packed(words))
        return self._answer()

    def _answer(self) -> Any:
        """One answer of the server's protocol (RESP 2). Raises OSError for an error."""
        line = self._answers.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self._answers.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._answer() for _ in range(int(rest))]
        if kind in (b"+", b":"):
            return rest
        raise OSError(f"Redis says {line!r}")


def _packed(words: Iterable[str | bytes]) -> bytes:
    given = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(given) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in given)


def _connected(path: Path) -> socket.socket:
    deadline = time.monotonic() + STARTED_S
    while True:
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            found.connect(str(path))
            return found
        except OSError:
            found.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)  # until the server listens
