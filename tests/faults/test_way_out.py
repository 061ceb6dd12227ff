"""A full disk has a way out: what frees space goes on when appends get StoreFull."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreConfig, StoreFull, StoreReader, inspect_folder, verify_folder
from stratalog.store.subscriptions.subscription import Subscription
from stratalog.store.testing import TunedConfig
from tests.store.helpers import PATIENCE_S, crash_copy, run_child

from .mounts import tmpfs

DATA = bytes(1000)
HOUR_MS = 3_600_000  # longer than any machine takes for a test


def config(**settings: object) -> StoreConfig:
    given = {"segment_bytes": 256 << 10, "max_message_bytes": 32 << 10, "max_frame_bytes": 64 << 10, "recent_bytes": 0}
    return TunedConfig(**{**given, **settings})  # type: ignore[arg-type]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 4 MiB."""
    with tmpfs(tmp_path / "disk", "4m") as path:
        yield path


def fill(store: MessageStore, topics: list[str], queues: int = 4) -> dict[tuple[str, int], int]:
    """Append until the disk is full: how many messages each queue has."""
    counts = {(topic, queue): 0 for topic in topics for queue in range(queues)}
    goes_on = True
    while goes_on:  # of several lanes, each gets full at a time of its own
        goes_on = False
        for (topic, queue), count in list(counts.items()):
            try:
                offset = store.append(topic, queue, b"%s %d %d " % (topic.encode(), queue, count) + DATA)
            except StoreFull:
                continue
            assert offset == count, "offsets are dense"
            counts[topic, queue] = count + 1
            goes_on = True
    return counts


def append_patiently(store: MessageStore, topic: str, queue: int, data: bytes) -> int:
    """Space comes back by itself, a moment later."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return store.append(topic, queue, data)
        except StoreFull:
            assert time.monotonic() < deadline, "appends did not go on"
            time.sleep(0.02)  # lets the background make room; the limit is above


def check(store: StoreReader, counts: dict[tuple[str, int], int]) -> None:
    for (topic, queue), count in counts.items():
        first, following = store.queue_bounds(topic, queue)
        assert following == count
        at = first
        while at < following:
            for message in store.read(topic, queue, at, max_messages=100):
                assert message.offset == at
                assert message.data.startswith(b"%s %d %d " % (topic.encode(), queue, at))
                at += 1


@pytest.mark.parametrize("lanes", [1, 3])
def test_the_whole_way_out_of_a_full_disk(disk: Path, lanes: int) -> None:
    """Fill, see StoreFull, acknowledge, trim, delete a topic, append again: no loss, dense offsets, none twice."""
    home = disk / "store"
    with MessageStore.open(home, config(lanes=lanes)) as store:
        jobs = store.subscribe("jobs", "workers")
        counts = fill(store, ["jobs", "logs"])
        with pytest.raises(StoreFull, match=r"trim.*delete_topic"):
            store.append("jobs", 0, bytes(30_000))

        received: set[tuple[int, int]] = set()
        while batch := jobs.receive(500, wait_ms=0):
            places = [(each.message.queue_id, each.message.offset) for each in batch]
            assert received.isdisjoint(places)
            received.update(places)
            jobs.ack_batch(batch)
        assert len(received) == sum(count for (topic, _), count in counts.items() if topic == "jobs")
        assert jobs.backlog().total == 0
        late = store.subscribe("logs", "late")  # a new name takes its records from the reserve
        late.close()
        for queue in range(4):
            store.trim("jobs", queue, counts["jobs", queue])
        store.delete_topic("logs")

        for index in range(400):
            queue = index % 4
            data = b"jobs %d %d " % (queue, counts["jobs", queue]) + DATA
            assert append_patiently(store, "jobs", queue, data) == counts["jobs", queue]
            counts["jobs", queue] += 1
        again = set(drain(jobs))
        assert received.isdisjoint(again)
        assert len(again) == 400
    with MessageStore.open(home, config()) as store:
        check(store, {name: count for name, count in counts.items() if name[0] == "jobs"})
        assert store.topics() == ["jobs"]
        assert not drain(store.subscribe("jobs", "workers"))


def drain(subscription: Subscription) -> list[tuple[int, int]]:
    """Receive and acknowledge all that there is: (queue id, offset) of each."""
    found: list[tuple[int, int]] = []
    while batch := subscription.receive(500, wait_ms=100):
        found += [(each.message.queue_id, each.message.offset) for each in batch]
        subscription.ack_batch(batch)
    return found


KILLED = """
import os, sys
from stratalog import MessageStore, StoreConfig, StoreFull
from stratalog.tools import inspect_folder, verify_folder
from tests.faults.test_way_out import config, fill
store = MessageStore.open(sys.argv[1], config(lanes=int(sys.argv[2])))
jobs = store.subscribe("jobs", "workers")
counts = fill(store, ["jobs", "logs"])
for _ in range(int(sys.argv[3])):
    jobs.ack_batch(jobs.receive(10, wait_ms=0))
print(repr(counts), flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(("lanes", "acks"), [(1, 3), (2, 0)])
def test_a_store_killed_on_a_full_disk_opens_and_has_its_way_out(disk: Path, lanes: int, acks: int) -> None:
    """Again and again: each opening recovers without space, and the reserve has a place for trims still."""
    home = disk / "store"
    done = run_child(KILLED, str(home), str(lanes), str(acks))
    assert done.returncode == -9, done.stderr
    counts = ast.literal_eval(done.stdout)
    for round_ in range(2):
        done = run_child(
            """
import os, sys
from stratalog import MessageStore
from tests.faults.test_way_out import config
store = MessageStore.open(sys.argv[1], config())
queue = int(sys.argv[2])
store.trim("logs", queue, 1)
os.kill(os.getpid(), 9)
""",
            str(home), str(round_),
        )  # fmt: skip
        assert done.returncode == -9, done.stderr
    with MessageStore.open(home, config()) as store:
        check(store, {name: count for name, count in counts.items() if name[0] == "jobs"})
        assert store.queue_bounds("logs", 0)[0] == 1
        store.delete_topic("logs")
        for queue in range(4):
            store.trim("jobs", queue, counts["jobs", queue])
        for queue in range(4):
            data = b"jobs %d %d " % (queue, counts["jobs", queue])
            assert append_patiently(store, "jobs", queue, data) == counts["jobs", queue]


def test_readers_verify_and_repair_agree_on_a_store_whose_reserve_is_in_use(disk: Path) -> None:
    home = disk / "store"
    with MessageStore.open(home, config()) as store:
        counts = fill(store, ["jobs", "logs"])
        low = 0
        while store.stats()["reserve"]["bytes"]:
            low += 1
            store.trim("logs", low % 4, low // 4 + 1)
        assert not verify_folder(home).places
        with MessageStore.open(home, read_only=True) as reader:
            check(reader, counts)
            assert reader.queue_bounds("logs", low % 4)[0] == low // 4 + 1
        killed = crash_copy(home, disk.parent / "killed")
    for folder in (home, killed):
        report = verify_folder(folder)
        assert not report.places
        inspect_folder(folder)
        with MessageStore.open(folder, read_only=True) as reader:
            check(reader, counts)
        with MessageStore.open(folder, config(), repair=True) as store:
            assert not store.losses
            check(store, counts)


def test_delayed_messages_are_kept_beyond_retention_on_a_full_disk(disk: Path) -> None:
    """Their copies come from the reserve, and make the space that they take."""
    home, now_ms = disk / "store", time.time_ns() // 1_000_000
    with MessageStore.open(home, config(retention_ms=1500)) as store:
        jobs = store.subscribe("jobs", "workers")
        late = [store.append("jobs", 0, b"late", deliver_at_ms=now_ms + HOUR_MS) for _ in range(3)]
        counts = fill(store, ["logs"])
        assert store.reschedule_delayed("jobs", 0, late[0], now_ms + 2 * HOUR_MS)
        assert store.cancel_delayed("jobs", 0, late[1])
        assert append_patiently(store, "logs", 0, b"on") == counts["logs", 0]
        deadline = time.monotonic() + PATIENCE_S
        while store.queue_bounds("jobs", 0)[0] < 3 and time.monotonic() < deadline:
            append_patiently(store, "logs", 1, DATA)
            time.sleep(0.01)  # lets retention look; the limit is above
        assert store.reschedule_delayed("jobs", 0, late[2], now_ms)
        (found,) = jobs.receive(10, wait_ms=int(PATIENCE_S * 1000))
        assert (found.message.offset, found.message.data) == (late[2], b"late")
        jobs.ack(found)
        assert jobs.backlog().delayed == 1
