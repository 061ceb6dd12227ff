"""SQLite, by Python's own module: a table of messages, and a table of jobs as small queue libraries make it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .by_thread import ByThread
from .peer import APPEND, BATCH, CHUNK, GROUPED, JOB_BATCHES, JOBS, PIPELINED, RANGES, RECOVERY, SCAN, Chunk, Peer, Row

NUMBER_BITS = 40  # of a message's key: its queue is above them
BUSY_S = 60.0
INSERT = "INSERT INTO messages VALUES (?, ?)"
MODES = "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"
TABLES = (
    "CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, data BLOB)",
    "CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, data BLOB, taken INTEGER DEFAULT 0)",
    "CREATE INDEX IF NOT EXISTS by_state ON jobs (taken, id)",
)


class Sqlite(Peer):
    """SQLite with a write-ahead log, forced at each commit; a connection for each thread."""

    NAME: ClassVar[str] = "sqlite"
    TITLE: ClassVar[str] = "SQLite"
    SETUP: ClassVar[str] = (
        "journal_mode=WAL, synchronous=FULL: a commit is forced; one transaction a call, a connection a thread, "
        "busy_timeout of a minute. It keeps no checksums of its tables; one writer at a time, and those that wait "
        "sleep and try again, so that some starve"
    )
    MANUAL: ClassVar[str] = "https://www.sqlite.org/wal.html"
    WORKS: ClassVar[frozenset[str]] = frozenset(
        {APPEND, GROUPED, PIPELINED, BATCH, RANGES, SCAN, RECOVERY, JOBS, JOB_BATCHES}
    )

    def __init__(self, folder: Path, prepare_bytes: int = 0) -> None:
        self._path = folder / "peer.db"
        self._connections = ByThread(self._connect)
        for statement in TABLES:
            self._db.execute(statement)

    def _connect(self) -> sqlite3.Connection:
        made = sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
        for mode in MODES:
            made.execute(mode)
        return made

    @property
    def _db(self) -> sqlite3.Connection:
        found: sqlite3.Connection = self._connections.get()
        return found

    @classmethod
    def version(cls) -> str:
        """The library's version."""
        return f"SQLite {sqlite3.sqlite_version} of this Python"

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def ready(self) -> None:
        """This thread's connection."""
        self._connections.get()

    def append(self, row: Row) -> None:
        """One insert, which is a transaction."""
        queue, number, data = row
        self._db.execute(INSERT, (queue << NUMBER_BITS | number, data))

    def batch_of(self, rows: Sequence[Row]) -> Any:
        """Keys and values."""
        return [(queue << NUMBER_BITS | number, data) for queue, number, data in rows]

    def append_batch(self, batch: Any) -> None:
        """One transaction."""
        self._transaction(INSERT, batch)

    def read(self, queue: int, number: int, count: int) -> Collection[bytes]:
        """The rows of keys that follow each other."""
        begin = queue << NUMBER_BITS | number
        rows = self._db.execute("SELECT data FROM messages WHERE id >= ? AND id < ?", (begin, begin + count))
        return [data for (data,) in rows]

    def read_all(self) -> Iterator[Chunk]:
        """All rows in the order of their keys."""
        cursor = self._db.execute("SELECT data FROM messages ORDER BY id")
        while rows := cursor.fetchmany(CHUNK):
            yield [data for (data,) in rows]

    def put(self, datas: Sequence[bytes]) -> None:
        """Inserts, one transaction."""
        self._transaction("INSERT INTO jobs (data) VALUES (?)", [(data,) for data in datas])

    def take(self, count: int) -> list[tuple[Any, bytes]]:
        """Rows that are marked as taken in one transaction."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        rows: list[tuple[Any, bytes]] = db.execute(
            "SELECT id, data FROM jobs WHERE taken = 0 ORDER BY id LIMIT ?", (count,)
        ).fetchall()
        db.executemany("UPDATE jobs SET taken = 1 WHERE id = ?", [(number,) for number, _ in rows])
        db.execute("COMMIT")
        return rows

    def ack(self, receipts: Sequence[Any]) -> None:
        """Deletes, one transaction."""
        self._transaction("DELETE FROM jobs WHERE id = ?", [(number,) for number in receipts])

    def _transaction(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        db.executemany(statement, rows)
        db.execute("COMMIT")
