"""Small queue libraries on SQLite: litequeue, diskcache, persist-queue, huey. Each is one queue for all messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .by_thread import ByThread
from .peer import APPEND, BATCH, CHUNK, JOBS, RECOVERY, Chunk, Peer, Row, load

BUSY_S = 60.0
TAKE_S = 10.0
NO_LOG = "a queue library on SQLite reads nothing without taking it, and waits for each message"


class LiteQueue(Peer):
    """litequeue; an object for each thread, as its page says."""

    NAME: ClassVar[str] = "litequeue"
    TITLE: ClassVar[str] = "litequeue"
    PACKAGE: ClassVar[str] = "litequeue"
    SETUP: ClassVar[str] = (
        "its own WAL, and PRAGMA synchronous=FULL in place of its NORMAL, which answers before the force; an object a "
        "thread. What is done stays in the table until it is pruned"
    )
    MANUAL: ClassVar[str] = "https://litements.exampl.io/queue/"
    WORKS: ClassVar[frozenset[str]] = frozenset({APPEND, BATCH, RECOVERY, JOBS})
    LACKS: ClassVar[str] = NO_LOG

    def __init__(self, folder: Path, prepare_bytes: int = 0) -> None:
        kind = load("litequeue").LiteQueue

        def connect() -> Any:
            made = kind(folder / "queue.db", timeout=BUSY_S)
            made.conn.execute("PRAGMA synchronous=FULL")
            return made

        self._queues = ByThread(connect)
        self._queues.get()

    def close(self) -> None:
        """Close all objects."""
        self._queues.close()

    def ready(self) -> None:
        """This thread's object."""
        self._queues.get()

    def append(self, row: Row) -> None:
        """`put`."""
        self._queues.get().put(row[2])

    def append_batch(self, batch: Any) -> None:
        """`put` in one transaction."""
        queue = self._queues.get()
        with queue.transaction():
            for _, _, data in batch:
                queue.put(data)

    def read_all(self) -> Iterator[Chunk]:
        """Its table, in the order of arrival."""
        queue = self._queues.get()
        cursor = queue.conn.execute(f"SELECT data FROM {queue.table} ORDER BY rowid")
        while rows := cursor.fetchmany(CHUNK):
            yield [row["data"] for row in rows]

    def put(self, datas: Sequence[bytes]) -> None:
        """`put`."""
        for data in datas:
            self._queues.get().put(data)

    def take(self, count: int) -> list[tuple[Any, bytes]]:
        """`pop`: the message is locked."""
        found = self._queues.get().pop()
        return [] if found is None else [(found.message_id, found.data)]

    def ack(self, receipts: Sequence[Any]) -> None:
        """`done`."""
        for one in receipts:
            self._queues.get().done(one)


class DiskCache(Peer):
    """diskcache's queue: `push` and `pull` of a cache that evicts nothing."""

    NAME: ClassVar[str] = "diskcache"
    TITLE: ClassVar[str] = "diskcache"
    PACKAGE: ClassVar[str] = "diskcache"
    SETUP: ClassVar[str] = (
        "sqlite_synchronous=2 in place of its 1, which answers before the force; eviction_policy none. `pull` deletes "
        "the message: there is nothing to acknowledge, and a worker that dies loses its job"
    )
    MANUAL: ClassVar[str] = "https://grantjenks.com/docs/diskcache/tutorial.html"
    WORKS: ClassVar[frozenset[str]] = frozenset({APPEND, BATCH, RECOVERY, JOBS})
    WEAKER: ClassVar[frozenset[str]] = frozenset({JOBS})
    LACKS: ClassVar[str] = NO_LOG

    def __init__(self, folder: Path, prepare_bytes: int = 0) -> None:
        self._cache = load("diskcache").Cache(
            str(folder), timeout=BUSY_S, sqlite_synchronous=2, eviction_policy="none", size_limit=1 << 40
        )

    def close(self) -> None:
        """Close the cache."""
        self._cache.close()

    def ready(self) -> None:
        """This thread's connection, which the first statement opens."""
        len(self._cache)

    def append(self, row: Row) -> None:
        """`push`."""
        self._cache.push(row[2], retry=True)

    def append_batch(self, batch: Any) -> None:
        """`push` in one transaction."""
        with self._cache.transact(retry=True):
            for _, _, data in batch:
                self._cache.push(data)

    def read_all(self) -> Iterator[Chunk]:
        """All values, key by key."""
        chunk = []
        for key in self._cache:
            chunk.append(self._cache[key])
            if len(chunk) == CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def put(self, datas: Sequence[bytes]) -> None:
        """`push`."""
        for data in datas:
            self._cache.push(data, retry=True)

    def take(self, count: int) -> list[tuple[Any, bytes]]:
        """`pull`: the message is gone."""
        key, data = self._cache.pull(retry=True)
        return [] if key is None else [(key, data)]

    def ack(self, receipts: Sequence[Any]) -> None:
        """Nothing: `pull` has deleted it."""


class PersistQueue(Peer):
    """persist-queue's SQLiteAckQueue."""

    NAME: ClassVar[str] = "persist-queue"
    TITLE: ClassVar[str] = "persist-queue"
    PACKAGE: ClassVar[str] = "persist-queue"
    SETUP: ClassVar[str] = (
        "SQLiteAckQueue with multithreading=True; its WAL, and SQLite's own synchronous=FULL. Messages are pickled; "
        "what is acknowledged stays in the table until it is cleared"
    )
    MANUAL: ClassVar[str] = "https://github.com/peter-wangxu/persist-queue"
    WORKS: ClassVar[frozenset[str]] = frozenset({APPEND, RECOVERY, JOBS})
    LACKS: ClassVar[str] = NO_LOG

    def __init__(self, folder: Path, prepare_bytes: int = 0) -> None:
        module = load("persistqueue")
        kind, self._empty = module.SQLiteAckQueue, module.Empty
        self._queue = kind(str(folder), multithreading=True, timeout=BUSY_S)

    def close(self) -> None:
        """Close both of its connections."""
        self._queue.close()

    def append(self, row: Row) -> None:
        """`put`."""
        self._queue.put(row[2])

    def read_all(self) -> Iterator[Chunk]:
        """`queue`, which makes one list of all."""
        yield [one["data"] for one in self._queue.queue()]

    def put(self, datas: Sequence[bytes]) -> None:
        """`put`."""
        for data in datas:
            self._queue.put(data)

    def take(self, count: int) -> list[tuple[Any, bytes]]:
        """`get`: the message is marked."""
        try:
            found = self._queue.get(raw=True, timeout=TAKE_S)
        except self._empty:
            return []
        return [(found["pqid"], found["data"])]

    def ack(self, receipts: Sequence[Any]) -> None:
        """`ack`."""
        for one in receipts:
            self._queue.ack(id=one)


class Huey(Peer):
    """The storage of SqliteHuey, without its tasks, which would only add to the times."""

    NAME: ClassVar[str] = "huey"
    TITLE: ClassVar[str] = "huey (SqliteHuey)"
    PACKAGE: ClassVar[str] = "huey"
    SETUP: ClassVar[str] = (
        "fsync=True (PRAGMA synchronous=FULL), its WAL, strict_fifo=True; its storage alone, no tasks. `dequeue` "
        "deletes the message: there is nothing to acknowledge, and a worker that dies loses its job"
    )
    MANUAL: ClassVar[str] = "https://huey.readthedocs.io/en/latest/api.html#SqliteHuey"
    WORKS: ClassVar[frozenset[str]] = frozenset({APPEND, RECOVERY, JOBS})
    WEAKER: ClassVar[frozenset[str]] = frozenset({JOBS})
    LACKS: ClassVar[str] = NO_LOG

    def __init__(self, folder: Path, prepare_bytes: int = 0) -> None:
        kind = load("huey").SqliteHuey
        made = kind("peers", filename=str(folder / "huey.db"), fsync=True, strict_fifo=True, timeout=BUSY_S)
        self._storage = made.storage

    def close(self) -> None:
        """Close this thread's connection; those of threads that ended are closed with them."""
        self._storage.close()

    def ready(self) -> None:
        """This thread's connection, which the first statement opens."""
        self._storage.queue_size()

    def append(self, row: Row) -> None:
        """`enqueue`."""
        self._storage.enqueue(row[2])

    def read_all(self) -> Iterator[Chunk]:
        """`enqueued_items`, which makes one list of all."""
        yield self._storage.enqueued_items()

    def put(self, datas: Sequence[bytes]) -> None:
        """`enqueue`."""
        for data in datas:
            self._storage.enqueue(data)

    def take(self, count: int) -> list[tuple[Any, bytes]]:
        """`dequeue`: the message is gone."""
        data = self._storage.dequeue()
        return [] if data is None else [(None, data)]

    def ack(self, receipts: Sequence[Any]) -> None:
        """Nothing: `dequeue` has deleted it."""
