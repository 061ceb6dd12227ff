"""Redis Streams: a server of our own that forces its log before it answers."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .by_thread import ByThread
from .peer import (
    APPEND,
    BATCH,
    CHUNK,
    JOB_BATCHES,
    JOBS,
    RANGES,
    RECOVERY,
    SCAN,
    Chunk,
    Peer,
    PeerMissing,
    Row,
    load,
)  # fmt: skip

SERVER = "redis-server"
JOB_STREAM, GROUP = "jobs", "workers"
LOADED_S, CLOSED_S = 60.0, 10.0
FIELD = "d"


class Redis(Peer):
    """Redis Streams, a stream for each queue; messages have their number as their id."""

    NAME: ClassVar[str] = "redis"
    TITLE: ClassVar[str] = "Redis Streams"
    PACKAGE: ClassVar[str] = "redis"
    SETUP: ClassVar[str] = (
        "appendonly yes, appendfsync always, no snapshots; a socket of the machine; a client redis-py a thread, "
        "with a pipeline for batches. It holds all messages in memory, and forces once for all commands that are there"
    )
    MANUAL: ClassVar[str] = "https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/"
    WORKS: ClassVar[frozenset[str]] = frozenset({APPEND, BATCH, RANGES, SCAN, RECOVERY, JOBS, JOB_BATCHES})
    LACKS: ClassVar[str] = "redis-py answers a pipeline as a whole: that is its row of batches"

    def __init__(self, folder: Path, prepare_bytes: int = 0, *, server: str = SERVER) -> None:
        """Start a server. Raises OSError if it does not answer."""
        self._clients = ByThread(self._connect)
        self._socket_folder = Path(tempfile.mkdtemp())  # the name of a socket has to be short
        self._socket = str(self._socket_folder / "redis.sock")
        self._server: subprocess.Popen[bytes] | None = None
        try:
            self._module = load("redis")
            self._server = subprocess.Popen(
                [server, "--port", "0", "--unixsocket", self._socket, "--dir", str(folder), "--save", "",
                 "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self._wait(self._server)
            self._clients.get().ping()
        except BaseException:  # also an interrupt: the server must not outlive it
            self.close()
            raise
        self._grouped = False

    def _connect(self) -> Any:
        return self._module.Redis(unix_socket_path=self._socket, socket_timeout=None)

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        """Until it listens, and has read its log."""
        deadline = time.monotonic() + LOADED_S
        while True:
            try:
                self._clients.get().ping()
                return
            except (self._module.ConnectionError, self._module.BusyLoadingError) as error:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise OSError(f"Redis does not answer: {error}") from error
                time.sleep(0.002)

    @classmethod
    def version(cls, server: str = SERVER) -> str:
        """The server's and the client's version. Raises PeerMissing."""
        if shutil.which(server) is None:
            raise PeerMissing(
                f"{server} is not there: `apt-get install redis-server`, or name it by --redis-server PATH"
            )
        told = subprocess.run([server, "--version"], capture_output=True, text=True, check=False).stdout.split()
        return f"{told[2] if len(told) > 2 else 'unknown'} by {super().version()}"

    def close(self) -> None:
        """End the server; what it answered is on the device."""
        try:
            self._clients.close()
        finally:
            if self._server is not None:
                self._server.kill()
                self._server.wait(CLOSED_S)
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    def ready(self) -> None:
        """This thread's connection."""
        self._clients.get().ping()

    def append(self, row: Row) -> None:
        """XADD."""
        queue, number, data = row
        self._clients.get().xadd(f"q:{queue}", {FIELD: data}, id=f"{number + 1}-0")

    def append_batch(self, batch: Any) -> None:
        """A pipeline of XADD."""
        pipeline = self._clients.get().pipeline(transaction=False)
        for queue, number, data in batch:
            pipeline.xadd(f"q:{queue}", {FIELD: data}, id=f"{number + 1}-0")
        pipeline.execute()

    def read(self, queue: int, number: int, count: int) -> Collection[bytes]:
        """XRANGE."""
        found = self._clients.get().xrange(f"q:{queue}", min=f"{number + 1}-0", count=count)
        return [fields[FIELD.encode()] for _, fields in found]

    def read_all(self) -> Iterator[Chunk]:
        """XRANGE, stream by stream."""
        for name in sorted(self._clients.get().scan_iter("q:*")):
            queue, number = int(name.partition(b":")[2]), 0
            while found := self.read(queue, number, CHUNK):
                yield list(found)
                number += len(found)

    def put(self, datas: Sequence[bytes]) -> None:
        """XADD, or a pipeline of them."""
        if len(datas) == 1:
            self._clients.get().xadd(JOB_STREAM, {FIELD: datas[0]})
            return
        pipeline = self._clients.get().pipeline(transaction=False)
        for data in datas:
            pipeline.xadd(JOB_STREAM, {FIELD: data})
        pipeline.execute()

    def take(self, count: int) -> list[tuple[Any, bytes]]:
        """XREADGROUP by a consumer for each thread."""
        if not self._grouped:
            self._grouped = True
            try:
                self._clients.get().xgroup_create(JOB_STREAM, GROUP, id="0", mkstream=True)
            except self._module.ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):  # it is there, from before this opening
                    raise
        worker = str(threading.get_ident())
        found = self._clients.get().xreadgroup(GROUP, worker, {JOB_STREAM: ">"}, count=count)
        return [(number, fields[FIELD.encode()]) for _, some in found or [] for number, fields in some]

    def ack(self, receipts: Sequence[Any]) -> None:
        """XACK; what is acknowledged stays in the stream."""
        if receipts:
            self._clients.get().xack(JOB_STREAM, GROUP, *receipts)
