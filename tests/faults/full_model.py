"""Random calls on a disk that is full most of the time, with kills and power cuts, checked against a model.

What it checks: every error is one of ours; offsets are dense; what was appended is there, with its bytes, unless it was
trimmed; what was acknowledged does not come again; a full disk opens; with space, everything goes on.

`python -m tests.faults.full_model --minutes 5` is the long form.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stratalog.store import Delivery, MessageStore, StoreConfig, StoreError
from stratalog.store.subscriptions.subscription import Subscription
from stratalog.store.testing import SimulatedDisk
from tests.store.helpers import KIB, SHM, small, tiny

TOPICS = ("a", "b")
QUEUES = 3
MORE_BYTES = 8 << 20  # with which everything goes on


class FullDisk:
    """One run. Each `step` is a call of a user, or something that befalls the disk."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path, self.chance = path, chance
        self.config = self._draw_config()
        self.disk = SimulatedDisk(capacity_bytes=chance.choice([400, 700, 1000, 2000]) * KIB)
        self.data: dict[tuple[str, int], list[bytes]] = {
            (topic, queue): [] for topic in TOPICS for queue in range(QUEUES)
        }
        self.deleted = dict.fromkeys(self.data, 0)  # how many messages each queue had when its topic was deleted
        self.acked: set[tuple[str, int, int]] = set()
        self.refused = 0
        self.store = self._open()

    def _draw_config(self) -> StoreConfig:
        chance = self.chance
        make = chance.choice([small, tiny])
        kept = chance.choice([None, None, 300 * KIB])
        return make(lanes=chance.choice([1, 2, 3]), retention_bytes=kept)

    def _open(self) -> MessageStore:
        try:
            return MessageStore.open(self.path, self.config, disk=self.disk)
        except StoreError as error:
            raise AssertionError("a full disk opens") from error

    def run(self, steps: int) -> None:
        """So many steps, then space, and a look at all that there is."""
        kinds: list[Callable[[], object]] = [
            self.append, self.append, self.append, self.trim, self.delete, self.consume, self.consume, self.delay,
            self.resize, self.close, self.kill,
        ]  # fmt: skip
        try:
            for _ in range(steps):
                try:
                    self.chance.choice(kinds)()
                except StoreError as error:
                    assert self.store._poison is None, error
                    self.refused += 1
            self.store.close()
            self.disk.capacity_bytes = self.disk.used_bytes() + MORE_BYTES
            self.store = self._open()
            self.check()
        finally:
            self.store.close()

    # -- calls of users -------------------------------------------------------------------------------

    def append(self) -> None:
        (topic, queue), data = self._queue(), self.chance.randbytes(self.chance.randrange(1, 3000))
        told = self.data[topic, queue]
        for _ in range(self.chance.randrange(1, 40)):
            offset = self.store.append(topic, queue, data)
            if offset == 0:
                self._forget(topic, queue)
            assert offset == len(told), "offsets are dense"
            told.append(data)

    def _forget(self, topic: str, queue: int) -> None:
        """A queue of a deleted topic begins anew once nothing is left of it; what was acknowledged is none of it."""
        told = self.data[topic, queue]
        if self.deleted[topic, queue] == len(told):
            told.clear()
            self.acked -= {one for one in self.acked if one[:2] == (topic, queue)}

    def _queue(self) -> tuple[str, int]:
        return self.chance.choice(TOPICS), self.chance.randrange(QUEUES)

    def trim(self) -> None:
        topic, queue = self._queue()
        self.store.trim(topic, queue, self.chance.randint(0, len(self.data[topic, queue])))

    def delete(self) -> None:
        topic = self.chance.choice(TOPICS)
        self.store.delete_topic(topic)
        for queue in range(QUEUES):
            self.deleted[topic, queue] = len(self.data[topic, queue])

    def consume(self) -> None:
        topic, chance = self.chance.choice(TOPICS), self.chance
        with self.store.subscribe(topic, "workers") as workers:
            for delivery in (got := workers.receive(chance.randrange(1, 60), wait_ms=0)):
                assert (topic, delivery.message.queue_id, delivery.message.offset) not in self.acked
            if chance.random() < 0.2:
                workers.nack_batch(got)
            elif chance.random() < 0.2:
                self._ack_each(topic, workers, got[:10])
            elif got:
                workers.ack_batch(got)
                self.acked |= {(topic, one.message.queue_id, one.message.offset) for one in got}

    def _ack_each(self, topic: str, workers: Subscription, got: Sequence[Delivery]) -> None:
        for one in got:
            workers.ack(one)
            self.acked.add((topic, one.message.queue_id, one.message.offset))

    def delay(self) -> None:
        """Delayed messages of a topic of their own, made, cancelled and moved."""
        now_ms = time.time_ns() // 1_000_000
        offset = self.store.append("later", 0, b"later", deliver_at_ms=now_ms + 60_000)
        self.store.cancel_delayed("later", 0, offset)
        self.store.reschedule_delayed("later", 0, max(0, offset - 1), now_ms + 90_000)

    # -- what befalls the disk ------------------------------------------------------------------------

    def resize(self) -> None:
        disk, more = self.disk, self.chance.choice([-100, -30, 50, 100]) * KIB
        assert disk.capacity_bytes is not None
        disk.capacity_bytes = max(disk.used_bytes(), disk.capacity_bytes + more)

    def close(self) -> None:
        self.store.close()
        self.store = self._open()

    def kill(self) -> None:
        left = self.disk.kill() if self.chance.random() < 0.5 else self.disk.crash(self.chance)
        self.disk.cut_at = 0
        try:
            self.store.close()
        except (StoreError, OSError):
            self.store._running.lock.release()
        self.disk = left
        if self.chance.random() < 0.5:
            left.capacity_bytes = left.used_bytes()  # nobody leaves us anything
        self.store = self._open()

    # -- the end --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Everything goes on, and nothing is lost."""
        for (topic, queue), told in self.data.items():
            at, end = self.store.queue_bounds(topic, queue)
            if end == 0:
                self._forget(topic, queue)
            # A message without an answer may be there: its call was refused for a later one, or a crash came.
            assert end == len(told)
            while at < end:
                for message in self.store.read(topic, queue, at, max_messages=100):
                    assert (message.offset, message.data) == (at, told[at])
                    at += 1
            assert self.store.append(topic, queue, b"on") == end
            told.append(b"on")
        for topic in TOPICS:
            with self.store.subscribe(topic, "workers") as workers:
                left = {(topic, one.message.queue_id, one.message.offset) for one in workers.receive(10_000, wait_ms=0)}
            assert left.isdisjoint(self.acked)


def run_one(seed: int, steps: int = 80) -> FullDisk:
    """The run of a seed."""
    folder = Path(tempfile.mkdtemp(prefix="stratalog-", dir=SHM if SHM.is_dir() else None))
    try:
        run = FullDisk(folder / "s", random.Random(seed))
        run.run(steps)
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--first", type=int, default=random.SystemRandom().randrange(1 << 30))
    given = parser.parse_args()
    end, seed, refused = time.monotonic() + 60 * given.minutes, given.first, 0
    while time.monotonic() < end:
        refused += run_one(seed).refused
        seed += 1
    print(f"{seed - given.first} runs from seed {given.first}, {refused} calls refused, nothing wrong")


if __name__ == "__main__":
    main()
