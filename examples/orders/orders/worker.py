"""The worker: it books orders.

A broker gives a message again if it does not hear that it was consumed. So the worker books first and acknowledges
then, and the books take an order once, however often it comes.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer

from .shop import ORDERS, REMINDERS

GROUP = "booking"
WAIT_S = 1  # as Python's client waits for one topic after the other
INVISIBLE_S = 30


class Books:
    """What was booked, in an SQLite file."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._database.execute("CREATE TABLE IF NOT EXISTS booked (topic, name, cents, PRIMARY KEY (topic, name))")

    def book(self, topic: str, order: str, cents: int) -> None:
        """Book an order; one that is booked already stays as it is."""
        with self._database:
            self._database.execute("INSERT OR IGNORE INTO booked VALUES (?, ?, ?)", (topic, order, cents))

    def booked(self, topic: str = ORDERS) -> dict[str, int]:
        """The orders with their prices in cents."""
        return dict(self._database.execute("SELECT name, cents FROM booked WHERE topic = ?", (topic,)))

    def close(self) -> None:
        """Close the file."""
        self._database.close()


class Worker:
    """Books what comes. Used in a `with` block."""

    def __init__(self, address: str, books: Books) -> None:
        self.books = books
        configuration = ClientConfiguration(address, Credentials())
        topics = {ORDERS: FilterExpression("*"), REMINDERS: FilterExpression("*")}
        self._consumer = SimpleConsumer(configuration, GROUP, topics, await_duration=WAIT_S)

    def __enter__(self) -> Worker:
        self._consumer.startup()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.shutdown()

    def work(self) -> int:
        """Book the next messages, and acknowledge them; how many there were. It waits a moment for one."""
        messages = self._consumer.receive(16, INVISIBLE_S)
        for message in messages:
            self.book(message)
            self._consumer.ack(message)
        return len(messages)

    def book(self, message: Any) -> None:
        """Book one message."""
        order = json.loads(message.body)
        self.books.book(message.topic, order["order"], order["cents"])


def main(address: str, path: str) -> None:
    """Book for ever."""
    with Worker(address, Books(Path(path))) as worker:
        while True:
            print(f"booked {worker.work()}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
