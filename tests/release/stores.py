"""A small store with something of everything that the format knows, kept as a file for each version of the format.

`python -m tests.release stores` writes it, by the public calls alone, under the version that the code writes now: a new
version adds a file, and the old ones are never written again. What the store held is written beside it, in the words
of `seen`: so a later version is compared with what the earlier one saw. `tests/simulation/kept.py` has two more stores
of version 1, by the simulated disk, one of them crashed.
"""

from __future__ import annotations

import json
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from stratalog import MessageStore
from stratalog.bulk import ShardWriter, commit_shards
from stratalog.store.format.layout import FORMAT_VERSION
from stratalog.testing import TunedConfig, VirtualClock

from .environments import ROOT

FIXTURES = ROOT / "tests" / "fixtures"
FOLDER, SEEN = "store", "seen.json"
CONFIG = TunedConfig(lanes=2, segment_bytes=1 << 16, max_message_bytes=1 << 14, max_frame_bytes=1 << 14)
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
PATIENCE_S = 60.0
MEMBER_TIME = (2026, 1, 1, 0, 0, 0)


def path_of(version: int) -> Path:
    """The file of a version."""
    return FIXTURES / f"store-{version}-everything.zip"


def versions() -> list[int]:
    """The versions that have a file."""
    return sorted(int(path.name.split("-")[1]) for path in FIXTURES.glob("store-*-everything.zip"))


def opened(folder: Path, clock: VirtualClock | None = None) -> MessageStore:
    """The store in a folder, at the time at which it was written."""
    return MessageStore.open(folder, CONFIG, clock=clock or VirtualClock(start_ms=START_MS))


def fill(folder: Path) -> dict[str, Any]:
    """Make the store in a new folder; what it holds then."""
    clock = VirtualClock(start_ms=START_MS)
    with opened(folder, clock) as store:
        store.append("orders", 0, b"first")
    with ShardWriter(folder) as writer:
        writer.append_columns([("bulk", 0), ("bulk", 1)], [0, 1, 0], [1, 2, 3], b"abbccc")
        commit_shards(folder, writer.finish(), name="load")  # by the system's clock: before all that has a time
    with opened(folder, clock) as store:
        _messages(store)
        _jobs(store)
        _later(store)
    with opened(folder, clock) as store:
        return seen(store)


def _messages(store: MessageStore) -> None:
    """Several sealed segments, all columns, a trimmed queue, a deleted topic, ids, a transaction over both lanes."""
    store.append("orders", 1, b"", key=b"\x00key", properties={"colour": "red", "price": "7"})
    for number in range(40):
        store.append_batch([("large", queue, bytes([number]) * 3000) for queue in range(4)])
    store.append("\u00fcgly/../name", 2**31 - 1, b"far")
    store.append("gone", 0, b"gone")
    store.delete_topic("gone")
    store.trim("large", 1, 7)
    store.configure_topic("ids", id_window_ms=HOUR_MS, id_window_count=1000)
    store.append("ids", 0, b"once", message_id="o-17")
    with store.transaction() as tx:
        for queue in range(4):
            tx.append("together", queue, b"all or nothing %d" % queue)
    store.configure_topic("orders", queues=8, retention_ms=HOUR_MS, types=["normal", "fifo"])


def _jobs(store: MessageStore) -> None:
    """Subscriptions: acknowledgements with holes, attempts, a dead letter, filters, an order, a work queue."""
    store.append_batch([("jobs", number % 2, b"job %d" % number) for number in range(20)])
    workers = store.subscribe("jobs", "workers", max_attempts=1, dead_letter_topic="failed")
    taken = workers.receive(12)
    workers.ack_batch([one for at, one in enumerate(taken) if at % 3])
    workers.nack(taken[0], reason="no such customer")
    deadline = time.monotonic() + PATIENCE_S
    while "failed" not in store.topics():
        workers.receive(1)
        if time.monotonic() > deadline:
            raise TimeoutError("no dead letter came")
    store.subscribe("jobs", "red", filter="colour = 'red' AND price BETWEEN 1 AND 9")
    store.subscribe(["jobs", "orders"], "office")
    store.configure_topic("work", keep="until_acknowledged")
    with store.subscribe("work", "all") as every:
        store.append_batch([("work", 0, b"%d" % number) for number in range(4)])
        every.ack_batch(every.receive(3))


def _later(store: MessageStore) -> None:
    """Delayed messages: one cancelled, one moved, some far away."""
    later = [store.append("later", 0, b"%d" % hour, deliver_at_ms=START_MS + hour * HOUR_MS) for hour in range(1, 50)]
    store.cancel_delayed("later", 0, later[1])
    store.reschedule_delayed("later", 0, later[2], START_MS + 999 * HOUR_MS)
    store.subscribe("later", "waiting")


def seen(store: MessageStore) -> dict[str, Any]:
    """All that a store holds, ready for JSON."""
    found: dict[str, Any] = {"topics": {}, "settings": {}, "subscriptions": {}}
    for topic in store.topics():
        for queue in store.queues(topic):
            first, end = store.queue_bounds(topic, queue)
            messages = store.read(topic, queue, first, max_messages=1000) if first < end else []
            rows = [
                [one.offset, len(one.data), one.data[:40].hex(), one.key and one.key.hex(),
                 one.properties and dict(one.properties), one.deliver_at_ms, one.timestamp_ms]
                for one in messages
            ]  # fmt: skip
            found["topics"][f"{topic}/{queue}"] = [first, end, rows]
        found["settings"][topic] = _fields(store.topic_settings(topic))
    for info in store.subscriptions():
        places = {str(place): list(at) for place, at in info.positions.items()}
        counts = [info.backlog.ready, info.backlog.delayed, info.expired]
        found["subscriptions"][f"{info.topic}/{info.name}"] = [places, counts, _fields(info.settings)]
    return found


def _fields(settings: Any) -> dict[str, str]:
    return {name: repr(getattr(settings, name)) for name in settings.__annotations__}


def write(version: int = FORMAT_VERSION) -> Path:
    """Keep the store of this version; its file. Raises FileExistsError: a version's store is written once."""
    with tempfile.TemporaryDirectory(prefix="stratalog-release-") as name:
        folder = Path(name) / FOLDER
        held = fill(folder)
        with zipfile.ZipFile(path_of(version), "x") as kept:
            for path in sorted(one for one in folder.rglob("*") if one.is_file()):
                member = zipfile.ZipInfo(f"{FOLDER}/{path.relative_to(folder)}", MEMBER_TIME)
                kept.writestr(member, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)
            kept.writestr(zipfile.ZipInfo(SEEN, MEMBER_TIME), json.dumps(held, indent=1), zipfile.ZIP_DEFLATED, 9)
    return path_of(version)


def unpack(version: int, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Put the store of a version into a folder: its path, and what it held."""
    with zipfile.ZipFile(path_of(version)) as kept:
        kept.extractall(folder)
    return folder / FOLDER, json.loads((folder / SEEN).read_text())
