"""What the soak knows of a store, and whether the store still holds it."""

from __future__ import annotations

from pathlib import Path

from stratalog.store import MessageStore, verify_folder
from stratalog.store.testing import TunedConfig

from ..clocks import WallClock
from .child import QUEUE_COUNT, TOPIC, seed_of
from .consumers import KEPT, LONG_MS

READ_MESSAGES = 2000
END_MS = 1 << 42


class Violation(Exception):
    """The store broke a promise."""


class Ledger:
    """Everything that was acknowledged in one store, over all lives of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._told: list[dict[int, int]] = [{} for _ in range(QUEUE_COUNT)]  # offset -> seed, by queue
        self._first = [0] * QUEUE_COUNT
        self.acknowledged = 0
        self._consumer: dict[str, set[tuple[int, int]]] = {
            what: set() for what in ("asked", "acked", "cancelling", "cancelled")
        }

    def note(self, queue: int, offset: int, seed: int) -> None:
        """A message was acknowledged. Raises Violation if its offset was given before."""
        if offset in self._told[queue]:
            raise Violation(f"queue {queue}: offset {offset} was acknowledged twice")
        self._told[queue][offset] = seed
        self.acknowledged += 1

    def note_consumer(self, what: str, places: list[tuple[int, int]]) -> None:
        """A consumer asks to acknowledge or to cancel messages, or that has returned."""
        self._consumer[what].update(places)

    def check(self, *, retention: bool) -> int:
        """Open the store without faults and read all of it; how many acknowledged messages were found.

        Raises Violation. `retention`: the last life may have removed old messages.
        """
        if not self.path.exists():
            return 0  # the fault was met before there was a store
        config = TunedConfig(segment_bytes=64 << 10, recent_bytes=0)
        with MessageStore.open(self.path, config, clock=WallClock(lambda: END_MS)) as store:  # all is due then
            if store.losses:
                raise Violation(f"losses: {store.losses}")
            found = sum(self._check_queue(store, queue, retention=retention) for queue in range(QUEUE_COUNT))
            self._check_consumer(store)
        verified = verify_folder(self.path)
        if not verified.ok:
            raise Violation(f"verify: {verified.damages}")
        return found

    def _check_consumer(self, store: MessageStore) -> None:
        """A subscription gives out all but what was acknowledged, or cancelled, or has gone with its segment."""
        firsts = [store.queue_bounds(TOPIC, queue)[0] for queue in range(QUEUE_COUNT)]
        with store.subscribe(TOPIC, KEPT) as subscription:
            came: set[tuple[int, int]] = set()
            left_to_look = True
            while left_to_look:
                is_behind = _is_behind(store)
                batch = subscription.receive_batch(visibility_timeout_ms=LONG_MS)
                came.update(zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True))
                left_to_look = is_behind or len(batch) > 0
        again = came & (self._consumer["acked"] | self._consumer["cancelled"])
        if again:
            raise Violation(f"given out, and was acknowledged or cancelled: {sorted(again)[:5]} of {len(again)}")
        left = {(queue, at) for queue in range(QUEUE_COUNT) for at in self._told[queue] if at >= firsts[queue]}
        lost = left - came - self._consumer["asked"] - self._consumer["cancelling"]
        if lost:
            raise Violation(f"never given out: {sorted(lost)[:5]} of {len(lost)}")

    def _check_queue(self, store: MessageStore, queue: int, *, retention: bool) -> int:
        """The queue has every offset from its first to its end, each with the message that was acknowledged."""
        told = self._told[queue]
        first, end = store.queue_bounds(TOPIC, queue)
        if first < self._first[queue] or (first > self._first[queue] and not retention):
            raise Violation(f"queue {queue} begins at {first}, and began at {self._first[queue]} before")
        if end <= max(told, default=-1):
            raise Violation(f"queue {queue} ends at {end}, and {max(told)} was acknowledged")
        self._first[queue], found, at = first, 0, first
        while at < end:
            batch = store.read_batch(TOPIC, queue, at, max_messages=READ_MESSAGES)
            if batch.offsets.tolist() != list(range(at, at + len(batch))) or not len(batch):
                raise Violation(f"queue {queue}: offsets {batch.offsets.tolist()[:5]}.. are read from {at} on")
            for offset, data in enumerate(batch.payloads(), at):
                seed = seed_of(queue, bytes(data))
                if seed is None or told.get(offset, seed) != seed:
                    raise Violation(f"queue {queue}, offset {offset} has other bytes than were acknowledged")
                found += offset in told
            at += len(batch)
        return found


def _is_behind(store: MessageStore) -> bool:
    """Whether the index of delayed messages has not read all of the log yet."""
    found = store.stats()["delayed"].get(TOPIC)
    return found is not None and bool(found["is_behind"])
