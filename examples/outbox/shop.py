"""A shop. An order takes goods from the stock, and tells the world: both, or neither."""

from __future__ import annotations

import json
import sys
from typing import Any

from stratalog import MessageStore

GOODS = 1000  # of each item, at first


class SoldOut(Exception):
    """There are not so many left."""


class Shop:
    """The stock, as the topic `stock` tells it. Each order adds a change there, and a message to the topic `outbox`."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.left: dict[str, int] = {}
        self.orders: set[str] = set()
        offset = 0
        while messages := store.read("stock", 0, offset, max_messages=1000):
            for message in messages:
                self._apply(json.loads(message.data))
            offset += len(messages)

    def order(self, name: str, item: str, count: int) -> None:
        """Take an order. One that was taken already changes nothing, so a customer may ask again. Raises SoldOut."""
        if name in self.orders:
            return
        left = self.left.get(item, GOODS) - count
        if left < 0:
            raise SoldOut(f"{left + count} of {item} are left")
        change = {"order": name, "item": item, "left": left}
        with self._store.transaction() as tx:
            tx.append("stock", 0, json.dumps(change).encode())
            tx.append("outbox", 0, json.dumps({"order": name, "item": item, "count": count}).encode())
        self._apply(change)

    def _apply(self, change: dict[str, Any]) -> None:
        self.orders.add(change["order"])
        self.left[change["item"]] = change["left"]


def main(folder: str, orders: str) -> None:
    """Take orders until there are so many."""
    with MessageStore.open(folder) as store:
        shop = Shop(store)
        for number in range(int(orders)):
            shop.order(f"o-{number}", ("shoes", "hats")[number % 2], 1 + number % 3)
            print(f"o-{number}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
