"""Small stores as an earlier version wrote them, kept in tests/fixtures; every later version must open them.

`python -m tests.simulation.kept` writes them anew: only for a new version of the format, under a new name.
"""

from __future__ import annotations

import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stratalog.store import MessageStore
from stratalog.store.testing import SimulatedDisk, TunedConfig

from .engine import (
    changes_of_topic,
    changes_of_trim,
    close_store,
    deterministic,
    home,
    open_store,
    requests_of,
    settle,
    upkeep_step,
)
from .shape import KIB

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
VERSION = 1
NAMES = ("closed", "crashed")
CONFIG = TunedConfig(segment_bytes=64 * KIB, max_message_bytes=16 * KIB, max_frame_bytes=16 * KIB, recent_bytes=0)
FIRST_MS = 1_700_000_000_000
TRIMMED_BEHIND = 5  # this frame
UNREAD_FRAMES = {0, 1, 2, 6}  # of the first segment: they have messages that are trimmed, and the records
DELETED = "Zürich/../x"
LOWS = {("orders", 0): 2, (DELETED, 2**31 - 1): 1}  # the first offsets that stay


class Row(NamedTuple):
    """A message of the kept stores, at its offset in its queue."""

    topic: str
    queue_id: int
    data: bytes
    key: bytes | None = None
    properties: dict[str, str] | None = None
    deliver_at_ms: int | None = None


def rows() -> list[list[Row]]:
    """The messages, a frame each list: every kind of column, empty messages, several segments; small once packed."""
    chance = random.Random("kept store")
    frames = [
        [Row("orders", 0, b"first")],
        [Row("orders", queue, b"batch %d" % queue) for queue in range(6)],
        [Row(DELETED, 2**31 - 1, b"")],
        [Row("orders", 0, b"facts", b"key", {"a": "b"}, FIRST_MS + 77), Row("orders", 1, b"plain")],
        [Row("orders", 0, b"empty facts", b"", {})],
        [Row("large", 0, chance.randbytes(30) * 500)],
    ]
    for number in range(14):
        frames.append([Row("orders", number % 3, chance.randbytes(30) * 300), Row("large", 1, b"%d" % number)])
    frames.append([Row("orders", 0, b"last but one"), Row("orders", 7, b"new queue in the last frame")])
    frames.append([Row("orders", 1, b"last")])
    return frames


def make(closed: bool) -> SimulatedDisk:
    """Write the store, on a simulated disk, with a clock of its own."""
    disk = SimulatedDisk()
    clock = iter(range(FIRST_MS, FIRST_MS + 100_000))
    with deterministic():
        store = open_store(disk, CONFIG, lambda: next(clock), random.Random("store id"))
        for number, frame in enumerate(rows()):
            for row in frame:
                store.submit(
                    row.topic, row.queue_id, row.data,
                    key=row.key, properties=row.properties, deliver_at_ms=row.deliver_at_ms,
                )  # fmt: skip
            settle(store)
            if number == TRIMMED_BEHIND:
                changes = changes_of_trim(store, ("orders", 0), LOWS["orders", 0]) + changes_of_topic(store, DELETED)
                for request in requests_of(store, changes):
                    request.stream.lane.queue.put(request)
                settle(store)
            for task in range(4):
                upkeep_step(store, task)
        if closed:
            close_store(store, lambda: settle(store))
        return disk.crash(random.Random(0), "all")


def write(name: str) -> None:
    """Keep a store as a zip file, with fixed times, so that its bytes are the same each time."""
    disk = make(closed=name == "closed")
    with zipfile.ZipFile(path_of(name), "w") as kept:
        for path, content in disk.files().items():
            member = zipfile.ZipInfo(str(path.relative_to(home())), (2026, 1, 1, 0, 0, 0))
            kept.writestr(member, content, zipfile.ZIP_DEFLATED, 9)


def path_of(name: str, version: int = VERSION) -> Path:
    """The fixture's file."""
    return FIXTURES / f"store-{version}-{name}.zip"


def unpack(name: str, folder: Path) -> Path:
    """Put a kept store into a folder."""
    with zipfile.ZipFile(path_of(name)) as kept:
        kept.extractall(folder)
    return folder


def load(name: str) -> SimulatedDisk:
    """Put a kept store on a simulated disk."""
    disk = SimulatedDisk()
    disk.make_folder(home())
    with zipfile.ZipFile(path_of(name)) as kept:
        for member in kept.namelist():
            path = home() / member
            disk.make_folder(path.parent)
            disk.open(path, create=True).write([kept.read(member)], 0, force=True)
            disk.force_folder(path.parent)
    return disk


def expected() -> dict[tuple[str, int], list[Row]]:
    """The messages of each queue, by offset, trimmed ones included."""
    queues: dict[tuple[str, int], list[Row]] = {}
    for frame in rows():
        for row in frame:
            queues.setdefault((row.topic, row.queue_id), []).append(row)
    return queues


def differences(store: MessageStore) -> list[str]:
    """What an opened store has other than it should."""
    found = []
    for (topic, queue_id), every in expected().items():
        low = LOWS.get((topic, queue_id), 0)
        mine = every[low:]
        messages = store.read(topic, queue_id, low, max_messages=10_000, max_bytes=1 << 30)
        got = [Row(m.topic, m.queue_id, m.data, m.key, _plain(m.properties), m.deliver_at_ms) for m in messages]
        if got != mine or [m.offset for m in messages] != list(range(low, len(every))):
            found.append(f"{topic}/{queue_id}: {len(got)} of {len(mine)} messages, or others")
        if store.queue_bounds(topic, queue_id) != (low, len(every)):
            found.append(f"{topic}/{queue_id}: other bounds")
    if store.topics() != sorted({topic for topic, _ in expected()} - {DELETED}):
        found.append("other topics")
    return found


def remaining() -> dict[tuple[str, int], list[bytes]]:
    """The payloads of each queue that are not trimmed, of those that have any."""
    found = {queue: [row.data for row in mine[LOWS.get(queue, 0) :]] for queue, mine in expected().items()}
    return {queue: datas for queue, datas in found.items() if datas}


def _plain(properties: object) -> dict[str, str] | None:
    return dict(properties) if isinstance(properties, dict) else None


def main(say: Callable[[str], None] = print) -> None:
    """Write the fixtures."""
    for name in NAMES:
        write(name)
        say(f"{path_of(name).name}: {path_of(name).stat().st_size} bytes")


if __name__ == "__main__":
    main()
