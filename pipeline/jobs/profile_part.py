"""The counts of one part for a profile: the work of a task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import xxhash

from ...store import ScanBatch, ScanPart, StoreCorrupt, StreamTable, read_part
from ..schema import Int64s

SCHEMA = (
    "kind string, topic string, queue_id int, bucket bigint, messages bigint, bytes double, least bigint, most bigint"
)
JOB = f"{__name__}:profile_part"
QUEUE, MINUTE, SIZE, DELAY, KEY = "queue", "minute", "size", "delay", "key"
MINUTE_MS = 60_000
SKETCH = 1024  # the smallest hashes of a topic's keys: they give the number of keys within some 3 %
HASHES = 1 << 64
Row = tuple[str, str, int | None, int | None, int, float, int | None, int | None]
NO_LEAST = np.iinfo(np.int64).max


def profile_part(part: ScanPart | tuple[str, StoreCorrupt]) -> Iterator[Row]:
    """The counts of a part, as rows of SCHEMA. Raises StoreCorrupt."""
    if isinstance(part, tuple):
        raise part[1]
    topics, keys = _TopicCounts(), _KeySketches()
    queues: _QueueCounts | None = None
    for batch in read_part(part, payload=False):
        if queues is None or queues.table is not batch.streams:
            yield from queues.rows() if queues is not None else ()
            queues = _QueueCounts(batch.streams)
        queues.add(batch)
        topics.add(batch)
        keys.add(batch)
    yield from queues.rows() if queues is not None else ()
    yield from topics.rows()
    yield from keys.rows()


class _QueueCounts:
    """Messages, bytes, and the smallest and largest size of each stream of a table; (s,) each."""

    def __init__(self, table: StreamTable) -> None:
        self.table = table
        count = len(table)
        self._messages, self._bytes = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._least, self._most = np.full(count, NO_LEAST), np.zeros(count, np.int64)

    def add(self, batch: ScanBatch) -> None:
        """Count a frame's messages."""
        index, lengths = batch.stream_index, batch.lengths
        np.add.at(self._messages, index, 1)
        np.add.at(self._bytes, index, lengths)
        np.minimum.at(self._least, index, lengths)
        np.maximum.at(self._most, index, lengths)

    def rows(self) -> Iterator[Row]:
        """A row for each stream with messages."""
        table = self.table
        for number in np.flatnonzero(self._messages).tolist():
            yield (
                QUEUE, table.topics[int(table.topic_index[number])], int(table.queue_ids[number]), None,
                int(self._messages[number]), float(self._bytes[number]), int(self._least[number]),
                int(self._most[number]),
            )  # fmt: skip


class _TopicCounts:
    """Messages, bytes, and the least and largest value of each topic's minutes, sizes and delays."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], tuple[int, float, int, int]] = {}

    def add(self, batch: ScanBatch) -> None:
        """Count a frame's messages."""
        for number, rows in groups(batch.topic_index.astype(np.int64)):
            topic, lengths, times = batch.streams.topics[number], batch.lengths[rows], batch.times_ms[rows]
            minute = int(times[0]) // MINUTE_MS * MINUTE_MS  # all messages of a frame have one time
            self._note((MINUTE, topic, minute), lengths, times)
            for bucket, members in groups(classes_of(lengths)):
                self._note((SIZE, topic, bucket), lengths[members], lengths[members])
            if batch.deliver_at_ms is not None:
                due = batch.deliver_at_ms[rows]
                delays = np.maximum(due[due >= 0] - times[due >= 0], 0)
                for bucket, members in groups(classes_of(delays)):
                    self._note((DELAY, topic, bucket), delays[members], delays[members])

    def _note(self, at: tuple[str, str, int], sizes: Int64s, values: Int64s) -> None:
        """Add to the figures. Sums are floats: sums of endless delays exceed 64 bits, and sums of bytes stay exact."""
        messages, size, least, most = self._counts.get(at, (0, 0.0, int(values[0]), int(values[0])))
        self._counts[at] = (
            messages + len(sizes), size + float(sizes.sum(dtype=np.float64)), min(least, int(values.min())),
            max(most, int(values.max())),
        )  # fmt: skip

    def rows(self) -> Iterator[Row]:
        """A row for each kind, topic and bucket."""
        for (kind, topic, bucket), (messages, size, least, most) in self._counts.items():
            yield (kind, topic, None, bucket, messages, size, least, most)


class _KeySketches:
    """The smallest hashes of each topic's keys, and the number of messages with a key."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[Int64s, int]] = {}

    def add(self, batch: ScanBatch) -> None:
        """Note a frame's keys."""
        if batch.keys is None:
            return
        there = np.flatnonzero(batch.keys.lengths >= 0)
        begins, sizes = batch.keys.places()
        data = bytes(batch.keys.data)
        places = zip(begins[there].tolist(), sizes[there].tolist(), strict=True)
        sums = [xxhash.xxh3_64_intdigest(data[begin : begin + size]) - HASHES // 2 for begin, size in places]
        hashes = np.array(sums, np.int64)
        for number, rows in groups(batch.topic_index[there].astype(np.int64)):
            topic = batch.streams.topics[number]
            known, messages = self._keys.get(topic, (np.zeros(0, np.int64), 0))
            smallest = np.unique(np.concatenate([known, hashes[rows]]))[:SKETCH]
            self._keys[topic] = smallest, messages + len(rows)

    def rows(self) -> Iterator[Row]:
        """A row for each hash; the first row of a topic has the number of messages."""
        for topic, (hashes, messages) in self._keys.items():
            for at, one in enumerate(hashes.tolist()):
                yield (KEY, topic, None, one, messages if at == 0 else 0, 0.0, None, None)


def groups(values: Int64s) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Each different value, ascending, and the rows that have it."""
    if not len(values):
        return
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()]
    for begin, end in zip(begins, [*begins[1:], len(ordered)], strict=True):
        yield int(ordered[begin]), order[begin:end]


def classes_of(values: Int64s) -> Int64s:
    """The lower bound of each value's class: 0, 1, 2, 4, 8 and so on."""
    powers = np.floor(np.log2(np.maximum(values, 1))).astype(np.int64)
    return np.where(values == 0, 0, np.int64(1) << powers)
