"""What the tests of shards share: rows with a meaning, and what a store must have of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stratalog.store import MessageStore, Shard, ShardWriter, StoreReader
from stratalog.store.log import at_once
from stratalog.store.shards import lane_attach

Row = tuple[str, int, bytes]
Queues = dict[tuple[str, int], list[bytes]]


def attaching(
    setting: Callable[[object, str, object], None], *, as_segments: bool, frame_bytes: int = at_once.FRAME_BYTES
) -> None:
    """Set how small commits go into the log: as segments, or in frames of so many bytes."""
    setting(lane_attach, "SMALL_BYTES", -1 if as_segments else 4 << 20)
    setting(at_once, "FRAME_BYTES", frame_bytes)


@contextmanager
def held(store: MessageStore) -> Iterator[None]:
    """Inside, this thread alone attaches what waits: the store's own looks do not."""
    attacher = store._running.attacher
    assert attacher is not None
    with attacher._attaching:
        yield


def left_in(path: Path) -> list[str]:
    """What the folder `incoming` has beside the lock."""
    return sorted(one.name for one in (path / "incoming").iterdir() if one.name != "LOCK")


def rows_of(label: str, count: int, queues: int = 3, size: int = 40) -> list[Row]:
    """Rows that name themselves, over some queues of two topics."""
    return [
        (f"t{at % 2}", at * 7 % queues, f"{label}-{at}:".encode().ljust(size, b"."))
        for at in range(count)
    ]  # fmt: skip


def staged(path: Path, rows: Sequence[Row], *, calls: int = 1, **how: Any) -> tuple[Shard, ...]:
    """Shards of these rows, written by one task in so many calls."""
    with ShardWriter(path, **how) as writer:
        step = max(1, -(-len(rows) // calls))
        for at in range(0, len(rows), step):
            append(writer, rows[at : at + step])
        return writer.finish()


def append(writer: ShardWriter, rows: Sequence[Row]) -> None:
    streams = sorted({row[:2] for row in rows})
    index = [streams.index(row[:2]) for row in rows]
    writer.append_columns(streams, index, [len(row[2]) for row in rows], b"".join(row[2] for row in rows))


def queues_of(*parts: Sequence[Row]) -> Queues:
    """What each queue must have of these rows, in this order."""
    found: Queues = defaultdict(list)
    for rows in parts:
        for topic, queue_id, data in rows:
            found[topic, queue_id].append(data)
    return dict(found)


def content(store: StoreReader) -> Queues:
    """What each queue has from its first offset on."""
    found: Queues = {}
    for topic in store.topics():
        for queue_id in store.queues(topic):
            first, end = store.queue_bounds(topic, queue_id)
            datas: list[bytes] = []
            while first + len(datas) < end:
                found_here = store.get_range(topic, queue_id, first + len(datas), 5000)
                datas += [found_here[at] for at in range(len(found_here))]
            found[topic, queue_id] = datas
    return found


def scanned(store: StoreReader) -> Queues:
    """The same by a scan: offsets must be dense and in order in each queue."""
    found: Queues = defaultdict(list)
    for batch in store.scan():
        for message in map(batch.message, range(len(batch))):
            mine = found[message.topic, message.queue_id]
            assert message.offset == len(mine)
            mine.append(bytes(message.data))
    return dict(found)
