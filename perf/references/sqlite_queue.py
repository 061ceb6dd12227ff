"""A queue in SQLite, as small queue libraries make it: one table, one forced transaction a call."""

from __future__ import annotations

import sqlite3
from pathlib import Path

SETUP = "SQLite: one table, WAL, synchronous=FULL, an index of the state, one transaction a call"


class SqliteQueue:
    """Messages that are taken, and acknowledged by deleting them. One connection, one thread."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(folder / "queue.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, data BLOB, taken INTEGER DEFAULT 0)")
        self._db.execute("CREATE INDEX by_state ON messages (taken, id)")

    def put(self, datas: list[bytes]) -> None:
        """Append messages."""
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO messages (data) VALUES (?)", [(data,) for data in datas])
        self._db.execute("COMMIT")

    def take(self, count: int) -> list[tuple[int, bytes]]:
        """(id, data) of the next messages, which are marked as taken."""
        self._db.execute("BEGIN IMMEDIATE")
        rows: list[tuple[int, bytes]] = self._db.execute(
            "SELECT id, data FROM messages WHERE taken = 0 ORDER BY id LIMIT ?", (count,)
        ).fetchall()
        self._db.executemany("UPDATE messages SET taken = 1 WHERE id = ?", [(number,) for number, _ in rows])
        self._db.execute("COMMIT")
        return rows

    def ack(self, numbers: list[int]) -> None:
        """Acknowledge messages, durably."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("DELETE FROM messages WHERE id = ?", [(number,) for number in numbers])
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the database."""
        self._db.close()
