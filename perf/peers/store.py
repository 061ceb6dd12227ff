"""This store as a peer among the others: by messages, by columns, and read queue by queue."""

from __future__ import annotations

import importlib.metadata
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...store import MessageStore, Ticket
from ..workload.checker import WrongResult
from .peer import APPEND, BATCH, JOB_BATCHES, JOBS, PIPELINED, RANGES, RECOVERY, SCAN, Chunk, Peer, Row

TOPIC, GROUP = "peers", "workers"
WINDOW = 4096  # tickets of a pipeline
READ_MESSAGES = 4096  # of a call that reads queue by queue
WAIT_MS = 10_000


class Store(Peer):
    """The store with its default settings."""

    NAME: ClassVar[str] = "store"
    TITLE: ClassVar[str] = "this store"
    SETUP: ClassVar[str] = (
        'durability="force", the default: an answer comes after the force. Concurrent callers share one. Every read '
        "compares checksums. Nothing is prepared: it pre-writes its segments as it goes, the first one of 4 MiB at the "
        "first message, within the time"
    )
    WORKS: ClassVar[frozenset[str]] = frozenset({APPEND, PIPELINED, BATCH, RANGES, SCAN, RECOVERY, JOBS, JOB_BATCHES})

    def __init__(self, folder: Path, prepare_bytes: int = 0) -> None:
        self._store = store = MessageStore.open(folder)
        self._append, self._get_range = store.append, store.get_range
        self._workers: Any = None

    @classmethod
    def version(cls) -> str:
        """The package's version."""
        return f"stratalog {importlib.metadata.version('stratalog')}"

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def append(self, row: Row) -> None:
        """`append`."""
        queue, number, data = row
        if self._append(TOPIC, queue, data) != number:
            raise WrongResult(f"queue {queue}: append gave message {number} another offset")

    def batch_of(self, rows: Sequence[Row]) -> Any:
        """Rows of a topic, and the offsets that they must get."""
        return [(TOPIC, queue, data) for queue, _, data in rows], [number for _, number, _ in rows]

    def append_batch(self, batch: Any) -> None:
        """`append_batch`."""
        rows, numbers = batch
        _compare(self._store.append_batch(rows), numbers)

    def pipelined(self, rows: Iterator[Row]) -> None:
        """`submit`, with a window of tickets."""
        submit, window = self._store.submit, deque[tuple[Ticket, int]]()
        for queue, number, data in rows:
            window.append((submit(TOPIC, queue, data), number))
            if len(window) > WINDOW:
                _settle(window)
        while window:
            _settle(window)

    def read(self, queue: int, number: int, count: int) -> Collection[bytes]:
        """`get_range`."""
        return self._get_range(TOPIC, queue, number, count).values()

    def read_all(self) -> Iterator[Chunk]:
        """`scan`, whose payloads are copied out: the others give bytes too."""
        for batch in self._store.scan():
            yield list(map(bytes, batch.payloads()))

    def put(self, datas: Sequence[bytes]) -> None:
        """`append`, or `append_batch`."""
        if len(datas) == 1:
            self._append(TOPIC, 0, datas[0])
        else:
            self._store.append_batch([(TOPIC, 0, data) for data in datas])

    def take(self, count: int) -> list[tuple[Any, bytes]]:
        """`receive`, or `receive_batch` with one receipt for all."""
        workers = self._subscribed()
        if count == 1:
            return [(one, one.message.data) for one in workers.receive(1, wait_ms=WAIT_MS)]
        batch = workers.receive_batch(count)
        return [(receipt, bytes(data)) for receipt, data in zip(batch.receipts, batch.payloads(), strict=True)]

    def ack(self, receipts: Sequence[Any]) -> None:
        """`ack`, or `ack_batch`."""
        workers = self._subscribed()
        if len(receipts) == 1 and not isinstance(receipts[0], np.integer):
            workers.ack(receipts[0])
        else:
            workers.ack_batch(np.array(receipts))

    def _subscribed(self) -> Any:
        if self._workers is None:
            self._workers = self._store.subscribe(TOPIC, GROUP, start="earliest")
        return self._workers


class StoreColumns(Store):
    """The store, batches as columns."""

    NAME: ClassVar[str] = "store.columns"
    TITLE: ClassVar[str] = "this store by append_columns"
    WORKS: ClassVar[frozenset[str]] = frozenset({BATCH})

    def batch_of(self, rows: Sequence[Row]) -> Any:
        """Streams, columns, and the offsets that they must get."""
        queues, numbers, datas = zip(*rows, strict=True)
        streams = [(TOPIC, queue) for queue in range(max(queues) + 1)]
        lengths = np.array([len(data) for data in datas], np.int64)
        return (streams, np.array(queues, np.int64), lengths, b"".join(datas)), numbers

    def append_batch(self, batch: Any) -> None:
        """`append_columns`."""
        columns, numbers = batch
        _compare(self._store.append_columns(*columns), numbers)


class StoreByQueue(Store):
    """The store, read queue by queue, as a consumer of each queue does."""

    NAME: ClassVar[str] = "store.queues"
    TITLE: ClassVar[str] = "this store, queue by queue"
    WORKS: ClassVar[frozenset[str]] = frozenset({SCAN})

    def read_all(self) -> Iterator[Chunk]:
        """`read_batch`, from each queue's first message to its last; its payloads are copied out."""
        for queue in self._store.queues(TOPIC):
            offset, end = self._store.queue_bounds(TOPIC, queue)
            while offset < end:
                batch = self._store.read_batch(TOPIC, queue, offset, max_messages=READ_MESSAGES)
                yield list(map(bytes, batch.payloads()))
                offset += len(batch)


def _settle(window: deque[tuple[Ticket, int]]) -> None:
    ticket, number = window.popleft()
    if ticket.result() != number:
        raise WrongResult(f"submit gave message {number} another offset")


def _compare(offsets: Any, numbers: Sequence[int]) -> None:
    if not np.array_equal(offsets, numbers):
        raise WrongResult("a batch got other offsets than its messages have")
