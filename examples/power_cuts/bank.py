"""A bank in a store: the program that the tests are for."""

from __future__ import annotations

import json

from stratalog import MessageStore


class Bank:
    """Accounts. The topic `entries` has what was paid, the topic `checkpoints` all balances now and then."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.balances: dict[str, int] = {}
        offset = 0
        first, end = store.queue_bounds("checkpoints", 0)
        if first < end:
            (newest,) = store.read("checkpoints", 0, end - 1)
            offset, self.balances = json.loads(newest.data)
        while entries := store.read("entries", 0, offset):
            for entry in entries:
                self._apply(*json.loads(entry.data))
            offset += len(entries)

    def pay(self, source: str, target: str, cents: int) -> None:
        """Move money from an account to another one. Durable when it returns."""
        entries = [(source, -cents), (target, cents)]
        with self._store.transaction() as tx:
            for entry in entries:
                tx.append("entries", 0, json.dumps(entry).encode())
        for account, change in entries:
            self._apply(account, change)

    def checkpoint(self) -> None:
        """Write all balances down, and forget the entries that they have in them."""
        _, end = self._store.queue_bounds("entries", 0)
        self._store.append("checkpoints", 0, json.dumps([end, self.balances]).encode())
        self._store.trim("entries", 0, end)

    def _apply(self, account: str, change: int) -> None:
        self.balances[account] = self.balances.get(account, 0) + change
