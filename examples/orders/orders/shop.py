"""The shop: it sends orders."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

from rocketmq import ClientConfiguration, Credentials, Message, Producer

ORDERS = "orders"
REMINDERS = "reminders"


class Unavailable(Exception):
    """The order was not placed: the customer may try again."""


class Shop:
    """Places orders at a broker. Used in a `with` block."""

    def __init__(self, address: str) -> None:
        self._producer = Producer(ClientConfiguration(address, Credentials()), [ORDERS, REMINDERS])

    def __enter__(self) -> Shop:
        self._producer.startup()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.shutdown()

    @property
    def client_id(self) -> str:
        """By which the broker knows this shop."""
        found: str = self._producer.client_id
        return found

    def place(self, order: str, cents: int) -> None:
        """Place an order. When it returns, the order is safe. Raises Unavailable."""
        self._send(_message(ORDERS, order, cents))

    def remind(self, order: str, cents: int, at_s: int) -> None:
        """Remind the customer at a time, in seconds since the epoch, that the order is not paid. Raises Unavailable."""
        message = _message(REMINDERS, order, cents)
        message.delivery_timestamp = at_s
        self._send(message)

    def _send(self, message: Any) -> None:
        try:
            self._producer.send(message)  # the client tries three times
        except Exception as error:
            raise Unavailable(f"not placed: {error}") from error


def _message(topic: str, order: str, cents: int) -> Any:
    message = Message()
    message.topic, message.keys, message.tag = topic, order, "large" if cents >= 100_000 else "small"
    message.body = json.dumps({"order": order, "cents": cents}).encode()
    return message
