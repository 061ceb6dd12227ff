"""The process of the soak that works through a queue of jobs: three producers, five workers, and the disk stays flat.

Three topics go as soon as all have acknowledged them: JOBS with the subscriptions WORKERS and AUDIT, DEAD with
UNDERTAKER, and BILLS with CLERK. Workers acknowledge most jobs, some of them in a transaction with a bill for each.
They give some back, forget some until these time out, and never get on with a few, which become dead letters. The
undertaker leaves some of these for ever. Some jobs have message ids; those whose appends a kill has cut are sent again
first.

Each line of its output is a JSON list: ["open"], ["sending", [queue, seed, size], ..] before an append with ids,
["sent", [seed, size], ..] once they are durable, ["came", who, acked, seed, ..] with the count of "acked" lines that
were said before the receive began, ["asked", who, seed, ..] before an acknowledgement and ["acked", who, seed, ..]
after it, ["billing", seed, ..] before a transaction with bills and ["billed", seed, ..] after it, ["disk", held,
allowed], ["error", stage, class, text] and ["end"].
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from stratalog.store import Delivery, MessageStore, StaleReceipt, StoreError, Subscription
from stratalog.store.subscriptions import journal

from .child import Plan, message, seed_of

JOBS, DEAD, BILLS = "jobs", "dead letters", "bills"
WORKERS, AUDIT, UNDERTAKER, CLERK = "workers", "audit", "undertaker", "clerk"
TOPIC_OF = {WORKERS: JOBS, AUDIT: JOBS, UNDERTAKER: DEAD, CLERK: BILLS}
BILL_BYTES = 40
WINDOW: dict[str, Any] = {
    "id_window_ms": 1 << 40,
    "id_window_count": 2_000,  # more ids than come in one life after a kill
}
QUEUES = 4
PRODUCERS, CONSUMERS = 3, 5
MOST_WAITING = 400  # jobs; then the producers wait
NEVER_DONE, LEFT = 40, 5  # one job of so many; one dead letter of so many
SEGMENTS = 4  # of a lane: what the log may take beside twice the bytes that are not acknowledged
MESSAGE_BYTES = 150  # of a message on disk beside its data, about; more than a copy takes
SAMPLE_S = 0.05


def settings_of(who: str) -> dict[str, Any]:
    """The settings that a subscription is made with."""
    return {"max_attempts": 3, "dead_letter_topic": DEAD} if who == WORKERS else {}


class Wanted:
    """The bytes that each subscription has not acknowledged; the workers' with those of dead letters."""

    def __init__(self, carried: dict[str, int]) -> None:
        self._lock = threading.Lock()
        self._bytes = Counter[str](carried)

    def add(self, who: str, size_bytes: int) -> None:
        """Add what it has to get; negative: what it has acknowledged."""
        with self._lock:
            self._bytes[who] += size_bytes

    @property
    def total_bytes(self) -> int:
        """Of all, at the most: some messages are wanted by two."""
        with self._lock:
            return self._bytes.total()


class QueueLife:
    """Carries out a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.wanted = Wanted(plan.carried)
        self._saying = threading.Lock()
        self._acked = 0  # lines that say so
        self._over = threading.Event()
        self._failed: list[BaseException] = []
        self._waiting = 0  # jobs, about

    def say(self, *what: Any) -> None:
        """Past every buffer: what was said before a kill has been said. The lock keeps lines whole."""
        line = json.dumps(what).encode() + b"\n"
        with self._saying:
            while line:
                line = line[os.write(1, line) :]
            self._acked += what[0] == "acked"

    def run(self) -> None:
        """From opening to closing, or until killed."""
        journal.LEAST_BYTES = 3_000  # often in a short life
        store = MessageStore.open(self.plan.path, self.plan.store_config())
        for topic in (JOBS, DEAD, BILLS):
            store.configure_topic(topic, keep="until_acknowledged", **(WINDOW if topic == JOBS else {}))
        for who, topic in TOPIC_OF.items():
            store.subscribe(topic, who, **settings_of(who)).close()
        self._waiting = sum(one.backlog.total for one in store.subscriptions(JOBS))
        self.say("open")
        self._send_again(store)
        works: list[tuple[Callable[..., None], int]] = [
            (self._produce, PRODUCERS), (self._work, CONSUMERS), (self._audit, 1), (self._bury, 1), (self._collect, 1),
            (self._measure, 1),
        ]  # fmt: skip
        threads = [self._thread(work, store, number) for work, count in works for number in range(count)]
        self._over.wait(self.plan.seconds)
        self._over.set()
        for thread in threads:
            thread.join()
        if self._failed:
            raise self._failed[0]
        store.close()
        self.say("end")

    def _thread(self, work: Callable[..., None], store: MessageStore, number: int) -> threading.Thread:
        chance = random.Random(f"{self.plan.seed}:{work.__name__}:{number}")

        def run() -> None:
            try:
                work(store, chance)
            except StoreError as error:
                self.say("error", work.__name__, type(error).__name__, str(error))
            except BaseException as error:  # no error of the store's: the child ends with its traceback
                self._failed.append(error)
            finally:
                self._over.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    # -- the producers ----------------------------------------------------------------------------------

    def _produce(self, store: MessageStore, chance: random.Random) -> None:
        while not self._over.is_set():
            if self._waiting > MOST_WAITING:
                self._over.wait(0.002)
                continue
            jobs = [(chance.randrange(QUEUES), chance.getrandbits(62)) for _ in range(chance.randrange(1, 20))]
            rows = [(queue, message(queue, seed, int(2 ** chance.uniform(5, 13)))) for queue, seed in jobs]
            self._want(rows)
            self._append(store, chance, rows)
            self.say("sent", *[(seed, len(data)) for (_, seed), (_, data) in zip(jobs, rows, strict=True)])

    def _want(self, rows: Sequence[tuple[int, bytes]]) -> None:
        for who in (WORKERS, AUDIT):
            self.wanted.add(who, sum(len(data) + MESSAGE_BYTES for _, data in rows))
        self._waiting += 2 * len(rows)

    def _send_again(self, store: MessageStore) -> None:
        """The jobs with ids of which nobody knows whether they are stored: with the same ids, each is there once."""
        for queue, seed, size in self.plan.send_again:
            row = queue, message(queue, seed, size)
            self._want([row])
            self._identified(store, [row], is_joint=False)
            self.say("sent", (seed, len(row[1])))

    def _identified(self, store: MessageStore, rows: Sequence[tuple[int, bytes]], *, is_joint: bool) -> None:
        """Append jobs with ids: one by one and each twice, or in a transaction."""
        seeds = [seed_of(queue, data) for queue, data in rows]
        self.say("sending", *[(queue, seed, len(data)) for seed, (queue, data) in zip(seeds, rows, strict=True)])
        ids = [f"job {seed}" for seed in seeds]
        if is_joint:
            with store.transaction() as tx:
                for (queue, data), one in zip(rows, ids, strict=True):
                    tx.append(JOBS, queue, data, message_id=one)
            return
        for (queue, data), one in zip(rows, ids, strict=True):
            first, again = (store.append(JOBS, queue, data, message_id=one) for _ in range(2))
            assert first == again, "an id was stored twice"

    def _append(self, store: MessageStore, chance: random.Random, rows: Sequence[tuple[int, bytes]]) -> None:
        way = chance.randrange(5)
        if way > 2:
            self._identified(store, rows, is_joint=way == 3)
        elif way == 0:
            store.append_batch([(JOBS, queue, data) for queue, data in rows])
        elif way == 1:
            for ticket in [store.submit(JOBS, queue, data, key=b"k") for queue, data in rows]:
                ticket.result()
        else:
            for queue, data in rows:
                due_ms = int(time.time() * 1000) + chance.randrange(300) if chance.random() < 0.2 else None
                store.append(JOBS, queue, data, deliver_at_ms=due_ms)

    # -- the consumers ----------------------------------------------------------------------------------

    def _work(self, store: MessageStore, chance: random.Random) -> None:
        with store.subscribe(JOBS, WORKERS, **settings_of(WORKERS)) as sub:
            while not self._over.is_set():
                got = self._receive(sub, chance.randrange(1, 20), chance.choice((100, 500, 5000)))
                done = [one for one, seed in got if seed % NEVER_DONE and chance.random() < 0.95]
                back = [one for one, seed in got if seed % NEVER_DONE == 0 or chance.random() < 0.03]
                done = [one for one in done if one not in back]
                if done and chance.random() < 0.4:
                    self._bill(store, sub, done)
                else:
                    self._acknowledge(sub, done, chance)
                for one in back:  # the others time out
                    try:
                        sub.nack(one, chance.choice((0, 5, 50)), reason="cannot be done")
                    except StaleReceipt:
                        continue

    def _bill(self, store: MessageStore, sub: Subscription, done: Sequence[Delivery]) -> None:
        """Acknowledge jobs in a transaction with a bill for each. One that came too late ends it."""
        jobs = [(one.message.queue_id, seed_of(one.message.queue_id, one.message.data)) for one in done]
        seeds = [seed for _, seed in jobs]
        self.wanted.add(CLERK, len(done) * (BILL_BYTES + MESSAGE_BYTES))
        self.say("asked", WORKERS, *seeds)
        self.say("billing", *seeds)
        try:
            with store.transaction() as tx:
                for one, (queue, seed) in zip(done, jobs, strict=True):
                    assert seed is not None
                    tx.append(BILLS, queue, message(queue, seed, BILL_BYTES))
                    tx.ack(one)
        except StaleReceipt:
            self.wanted.add(CLERK, -len(done) * (BILL_BYTES + MESSAGE_BYTES))
            return
        self.say("acked", WORKERS, *seeds)
        self.say("billed", *seeds)
        self._done(sub, done)

    def _collect(self, store: MessageStore, chance: random.Random) -> None:
        with store.subscribe(BILLS, CLERK) as sub:
            while not self._over.is_set():
                self._acknowledge(sub, [one for one, _ in self._receive(sub, 50, 60_000)], chance)

    def _audit(self, store: MessageStore, chance: random.Random) -> None:
        with store.subscribe(JOBS, AUDIT) as sub:
            while not self._over.is_set():
                self._acknowledge(sub, [one for one, _ in self._receive(sub, 100, 60_000)], chance)

    def _bury(self, store: MessageStore, chance: random.Random) -> None:
        with store.subscribe(DEAD, UNDERTAKER) as sub:
            while not self._over.is_set():
                got = self._receive(sub, 10, 60_000)
                self._acknowledge(sub, [one for one, seed in got if seed // NEVER_DONE % LEFT], chance)

    def _receive(self, sub: Subscription, most: int, visibility_timeout_ms: int) -> list[tuple[Delivery, int]]:
        acked = self._acked  # another consumer may do a job that has timed out before this one says that it came
        got = sub.receive(most, wait_ms=20, visibility_timeout_ms=visibility_timeout_ms)
        seeds = [seed_of(one.message.queue_id, one.message.data) for one in got]
        assert None not in seeds, "a job has other bytes"
        if got:
            self.say("came", sub.name, acked, *seeds)
        return [(one, seed) for one, seed in zip(got, seeds, strict=True) if seed is not None]

    def _acknowledge(self, sub: Subscription, done: Sequence[Delivery], chance: random.Random) -> None:
        """By a call of a random kind. One that came too late is not acknowledged."""
        if not done:
            return
        parts = [done] if chance.random() < 0.5 else [[one] for one in done]
        for part in parts:
            seeds = [seed_of(one.message.queue_id, one.message.data) for one in part]
            self.say("asked", sub.name, *seeds)
            try:
                if len(part) > 1:
                    sub.ack_batch(part)
                else:
                    sub.ack(part[0])
            except StaleReceipt:
                continue
            self.say("acked", sub.name, *seeds)
            self._done(sub, part)

    def _done(self, sub: Subscription, part: Sequence[Delivery]) -> None:
        of = WORKERS if sub.name == UNDERTAKER else sub.name  # a dead letter is a job that the workers have not done
        self.wanted.add(of, -sum(len(one.message.data) + MESSAGE_BYTES for one in part))
        self._waiting -= len(part) if sub.name != CLERK else 0

    # -- the disk ---------------------------------------------------------------------------------------

    def _measure(self, store: MessageStore, _chance: random.Random) -> None:
        """Say what the log takes, and what it may take, now and then."""
        most = SEGMENTS * self.plan.config["segment_bytes"] * self.plan.config["lanes"]
        while not self._over.wait(SAMPLE_S):
            self.say("disk", store._upkeep.removal.held_bytes(), 2 * self.wanted.total_bytes + most)


if __name__ == "__main__":
    QueueLife(Plan(**json.loads(sys.argv[1]))).run()
