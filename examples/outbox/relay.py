"""The relay: it carries the shop's messages into an SQLite database, each once.

It only reads the store, in a process of its own. The database says how far it has come: a row has the message's offset,
and a commit writes the next rows or none of them. So a relay that was killed, at any moment, goes on where it was.
"""

from __future__ import annotations

import json
import sqlite3
import sys

from stratalog import StoreReader

TABLE = "CREATE TABLE IF NOT EXISTS orders (offset INTEGER PRIMARY KEY, name TEXT, item TEXT, count INTEGER)"
NEXT = "SELECT coalesce(max(offset) + 1, 0) FROM orders"


def relay(folder: str, path: str) -> None:
    """Relay messages, without an end."""
    database = sqlite3.connect(path)
    database.execute(TABLE)
    with StoreReader.open(folder) as store:
        while True:
            (offset,) = database.execute(NEXT).fetchone()
            messages = store.read("outbox", 0, offset, wait_ms=60_000)
            rows = [{"offset": message.offset, **json.loads(message.data)} for message in messages]
            with database:  # a transaction of SQLite's
                database.executemany("INSERT INTO orders VALUES (:offset, :order, :item, :count)", rows)


if __name__ == "__main__":
    relay(*sys.argv[1:])
