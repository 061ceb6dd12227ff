"""What a peer is: an engine, a queue or a server that keeps messages durably, set up as its manual advises.

Every write returns when its messages are durable. A message is a row: its queue, its number there, its bytes. The
numbers of a queue are 0, 1, 2 .. in the order in which they are written.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .grouped import GroupCommit

Row = tuple[int, int, bytes]
Chunk = Sequence[bytes]
APPEND, GROUPED, PIPELINED, BATCH = "append", "grouped", "pipelined", "batch"
RANGES, SCAN, RECOVERY, JOBS, JOB_BATCHES = "ranges", "scan", "recovery", "jobs", "job batches"
CHUNK = 512  # messages that a read of everything takes at a time
KEY = struct.Struct(">IQ")  # queue, number: the keys of a queue follow each other
QUEUE_BYTES = 4


class PeerMissing(RuntimeError):
    """The peer's package or server is not there; the sentence says how to get it."""


def load(module: str) -> Any:
    """The peer's module. Raises PeerMissing, which says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PeerMissing(f'{module} is not installed: pip install ".[peers]" in a checkout') from error


def pairs_of(rows: Sequence[Row]) -> list[tuple[bytes, bytes]]:
    """Keys and values of a store that orders its keys."""
    return [(KEY.pack(queue, number), data) for queue, number, data in rows]


class Peer(ABC):
    """An open peer. A method whose work is not in WORKS is not there.

    Attributes:
        NAME: in names of measures.
        TITLE: in words.
        PACKAGE: its distribution and module; "" for one of the standard library.
        SETUP: by which settings it is durable, what else is set, and what it promises otherwise.
        MANUAL: the page that advises it.
        WORKS: what it can do of APPEND .. JOB_BATCHES.
        WEAKER: of WORKS: what it does with less of a promise, as SETUP says; its figures are no measure for the others.
        LACKS: why the rest is left out, in a sentence; "" where nothing is.
    """

    NAME: ClassVar[str]
    TITLE: ClassVar[str]
    PACKAGE: ClassVar[str] = ""
    SETUP: ClassVar[str]
    MANUAL: ClassVar[str] = ""
    WORKS: ClassVar[frozenset[str]]
    WEAKER: ClassVar[frozenset[str]] = frozenset()
    LACKS: ClassVar[str] = ""

    @abstractmethod
    def __init__(self, folder: Path, prepare_bytes: int = 0) -> None:
        """Open it in the folder, which exists.

        `prepare_bytes`: about to be written. A peer prepares for them what its manual advises; most prepare nothing.
        """

    @classmethod
    def version(cls) -> str:
        """The version in words. Raises PeerMissing."""
        load(cls.PACKAGE.replace("-", ""))
        return f"{cls.PACKAGE} {importlib.metadata.version(cls.PACKAGE)}"

    @abstractmethod
    def close(self) -> None:
        """Close it; its server ends."""

    def ready(self) -> None:  # noqa: B027 -- most need nothing
        """Make what this thread needs at its first call, as a connection; outside of the time that counts."""

    def append(self, row: Row) -> None:
        """Write one message; threads may call it together."""
        raise NotImplementedError

    def batch_of(self, rows: Sequence[Row]) -> Any:
        """The rows in the form that `append_batch` takes; never timed."""
        return rows

    def append_batch(self, batch: Any) -> None:
        """Write messages that become durable together, or one after the other."""
        raise NotImplementedError

    def pipelined(self, rows: Iterator[Row]) -> None:
        """Write all rows without waiting for each; by default a thread commits all that wait as one batch."""
        commits = GroupCommit(lambda waiting: self.append_batch(self.batch_of(waiting)), self.ready)
        try:
            for row in rows:
                commits.hand_over(row)
        finally:
            commits.close()

    def read(self, queue: int, number: int, count: int) -> Collection[bytes]:
        """Up to `count` messages of one queue, from `number` on."""
        raise NotImplementedError

    @abstractmethod
    def read_all(self) -> Iterator[Chunk]:
        """All messages as bytes, in chunks; those of a queue in their order."""

    def put(self, datas: Sequence[bytes]) -> None:
        """Submit jobs."""
        raise NotImplementedError

    def take(self, count: int) -> list[tuple[Any, bytes]]:
        """(receipt, job) of up to `count` jobs that no other worker gets meanwhile; none if none comes for a while."""
        raise NotImplementedError

    def ack(self, receipts: Sequence[Any]) -> None:
        """The jobs are done, durably."""
        raise NotImplementedError
