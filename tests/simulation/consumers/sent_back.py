"""Jobs of a run that fail at once, become dead letters and are sent back: each is in one place more, or in none."""

from __future__ import annotations

import random
from collections import Counter

from stratalog.store import MessageStore

from ..check import BrokenPromise

JOBS, FAILED = "jobs", "failed"
REDRIVE = "stratalog.redrive"


def fail_and_send_back(store: MessageStore, chance: random.Random) -> int:
    """Some jobs, new ones and those that came back, fail; then dead letters go back. Returns how many did."""
    for _ in range(chance.randrange(3)):
        store.append(JOBS, chance.randrange(2), chance.randbytes(8))
    with store.subscribe(JOBS, "worker", max_attempts=1, dead_letter_topic=FAILED) as worker:
        for _ in range(2):  # the second call moves what has failed
            worker.nack_batch(worker.receive(chance.randrange(1, 5)), reason="broken")
    if chance.random() < 0.6:
        return store.redrive(FAILED, max_messages=chance.choice((None, 1, 2)))
    return 0


def check_sent_back(store: MessageStore) -> None:
    """Each job that came more than once was sent back so often, by the cursor. Nothing may remove jobs of the run.

    Raises BrokenPromise.
    """
    jobs, letters = _datas(store, JOBS), _datas(store, FAILED)
    again = sum(jobs.values()) - len(jobs)
    left = sum(info.backlog.total for info in store.subscriptions(FAILED) if info.name == REDRIVE)
    is_begun = any(info.name == REDRIVE for info in store.subscriptions(FAILED))
    sent = sum(letters.values()) - left if is_begun else 0
    if again != sent:
        raise BrokenPromise(f"{again} jobs came back, and {sent} dead letters were sent back")
    for data, count in letters.items():
        if not jobs[data] - 1 <= count <= jobs[data]:
            raise BrokenPromise(f"{jobs[data]} times a job, and {count} times a dead letter")


def _datas(store: MessageStore, topic: str) -> Counter[bytes]:
    found = [
        one.data for queue_id in store.queues(topic) for one in store.read(topic, queue_id, 0, max_messages=10_000)
    ]
    return Counter(found)
