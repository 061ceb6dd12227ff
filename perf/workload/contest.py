"""The contest workload (R1 and the contest's own rules): seeded, checkable, cheap to make.

A message is a 16-byte header (queue number, serial number in its queue, size, seed tag; four little-endian u32) and
then a slice of one random pool, at a position that follows from (queue, serial). So a message costs one `pack` and one
copy to make (about 0.5 us at 8.7 KB), and its content is incompressible. The queue and the offset alone
determine every byte.

Each producer owns its queues, as RocketMQ's producers hash to queues: the serial number that it writes is the offset
that `append` must return.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

HEADER = struct.Struct("<IIII")
HEADER_BYTES = HEADER.size
CONTEST_TOPICS = 100
CONTEST_QUEUES = 20_000
CONTEST_TOPIC_QUEUES_MAX = 10_000
POOL_BYTES = 4 << 20
CHUNK_MESSAGES = 4096

IntArray = npt.NDArray[np.int64]
_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_UNITS |= {f"{unit}b": size for unit, size in _UNITS.items() if unit not in ("", "b")}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def parse_bytes(text: str) -> int:
    """Bytes of a human size: "1GiB", "64 MiB", "300MB", "4096"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is no size: write a number and one of B, KB, MB, GB, KiB, MiB, GiB")
    return int(float(found[1]) * _UNITS[found[2].lower()])


@dataclass(frozen=True)
class Sizes:
    """Payload sizes, uniform over low..high bytes inclusive."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not HEADER_BYTES <= self.low <= self.high:
            raise ValueError(f"sizes {self.low}..{self.high}: the least is {HEADER_BYTES} bytes (a message's header)")

    @property
    def mean(self) -> float:
        """Mean payload in bytes."""
        return (self.low + self.high) / 2

    def draw(self, rng: np.random.Generator, count: int) -> IntArray:
        """`count` sizes in bytes."""
        drawn: IntArray = rng.integers(self.low, self.high + 1, count, dtype=np.int64)
        return drawn

    @classmethod
    def parse(cls, text: str) -> Sizes:
        """ "contest" (100 B to 17 KiB), "small" (100 to 1,000 B), or one size ("1KiB", "100")."""
        if text == "contest":
            return cls(100, 17 << 10)
        if text == "small":
            return cls(100, 1000)
        one = parse_bytes(text)
        return cls(one, one)


class QueueAddress(NamedTuple):
    """The place of a queue number of the workload in the store."""

    topic: str
    queue_id: int


def queue_counts(topics: int, queues: int) -> IntArray:
    """Queues a topic, zipf-like, each between 1 and the contest's 10,000; they sum to `queues`."""
    if not topics <= queues <= topics * CONTEST_TOPIC_QUEUES_MAX:
        raise ValueError(f"{queues} queues don't fit into {topics} topics of 1 to {CONTEST_TOPIC_QUEUES_MAX}")
    weights = 1.0 / np.arange(1, topics + 1)
    counts: IntArray = 1 + np.floor(weights / weights.sum() * (queues - topics)).astype(np.int64)
    counts[0] += queues - int(counts.sum())
    for rank in range(topics - 1):
        surplus = max(0, int(counts[rank]) - CONTEST_TOPIC_QUEUES_MAX)
        counts[rank] -= surplus
        counts[rank + 1] += surplus
    return counts


class Content:
    """Makes the bytes of message (queue, serial) and checks them. Immutable, shared by all threads."""

    def __init__(self, seed: int, size_max: int, pool_bytes: int = POOL_BYTES) -> None:
        self.tag = seed & 0xFFFFFFFF
        self.positions = pool_bytes
        self.pool = np.random.default_rng(seed).bytes(pool_bytes + size_max)
        self.view = memoryview(self.pool)

    def position(self, queue: int, serial: int) -> int:
        """The position of a message's body in the pool."""
        return (queue * 2_654_435_761 + serial * 40_503) % self.positions

    def make(self, queue: int, serial: int, size_bytes: int) -> bytes:
        """The message's bytes (the loops of the producers do the same inline, from a plan)."""
        start = self.position(queue, serial)
        body = self.view[start : start + size_bytes - HEADER_BYTES]
        return HEADER.pack(queue, serial, size_bytes, self.tag) + body

    def matches(self, data: bytes, queue: int, serial: int) -> bool:
        """Whether `data` is, to the byte, the message (queue, serial); compares without copying."""
        size = len(data)
        if size < HEADER_BYTES or not data.startswith(HEADER.pack(queue, serial, size, self.tag)):
            return False
        start = self.position(queue, serial)
        return data.endswith(self.view[start : start + size - HEADER_BYTES])


@dataclass(frozen=True)
class Plan:
    """The appends of one producer in one phase, as columns: queue number, serial, size, pool position."""

    queues: IntArray
    serials: IntArray
    sizes: IntArray
    starts: IntArray

    def __len__(self) -> int:
        return len(self.queues)

    @property
    def payload_bytes(self) -> int:
        """Bytes of payload in the plan."""
        return int(self.sizes.sum())

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """(queue, serial, size, position) a message; plain ints, converted a chunk at a time."""
        for first in range(0, len(self), CHUNK_MESSAGES):
            cut = slice(first, first + CHUNK_MESSAGES)
            yield from zip(
                self.queues[cut].tolist(),
                self.serials[cut].tolist(),
                self.sizes[cut].tolist(),
                self.starts[cut].tolist(),
                strict=True,
            )


def running_serials(queues: IntArray, written: IntArray) -> IntArray:
    """Each message's serial number in its queue. Adds them to `written`, the messages so far of each queue."""
    order = np.argsort(queues, kind="stable")
    ordered = queues[order]
    index = np.arange(len(queues), dtype=np.int64)
    first = np.maximum.accumulate(np.where(np.diff(ordered, prepend=-1) != 0, index, 0))
    serials = np.empty(len(queues), np.int64)
    serials[order] = index - first + written[ordered]
    np.add.at(written, queues, 1)
    return serials


class Workload:
    """Queues, their owners, and the plans of one seeded run.

    Invariants: a queue has one owner; serials of a queue are 0, 1, 2 ... over the plans in the order they are
    made; the same seed and arguments give the same plans.
    """

    def __init__(self, seed: int, sizes: Sizes, producers: int = 1, queues: int = CONTEST_QUEUES) -> None:
        self.seed = seed
        self.sizes = sizes
        self.producers = producers
        queues = max(queues, producers)
        topics = min(CONTEST_TOPICS, queues)
        self.addresses = [
            QueueAddress(f"topic-{topic:03d}", queue_id)
            for topic, count in enumerate(queue_counts(topics, queues).tolist())
            for queue_id in range(count)
        ]
        self.content = Content(seed, sizes.high)
        self.rng = np.random.default_rng([seed, 1])
        owned = self.rng.permutation(queues)
        self.owned: list[IntArray] = [owned[index::producers].astype(np.int64) for index in range(producers)]
        self.written: IntArray = np.zeros(queues, np.int64)

    def plan(self, total_bytes: int) -> list[Plan]:
        """One plan a producer, of equally many messages; about `total_bytes` of payload in all."""
        each = max(1, round(total_bytes / self.sizes.mean / self.producers))
        return [self._plan_of(owned, each) for owned in self.owned]

    def _plan_of(self, owned: IntArray, count: int) -> Plan:
        # A power of the uniform draw fills the queues unevenly: the first tenth of them gets a fifth of the messages.
        drawn = (self.rng.random(count) ** 1.5 * len(owned)).astype(np.int64)
        queues = owned[drawn]
        serials = running_serials(queues, self.written)
        starts = (queues * 2_654_435_761 + serials * 40_503) % self.content.positions
        return Plan(queues, serials, self.sizes.draw(self.rng, count), starts)

    def choose_hot(self) -> npt.NDArray[np.bool_]:
        """Half of the queues, at random: they are read from their newest offset, the rest from 0."""
        hot = np.zeros(len(self.addresses), np.bool_)
        hot[self.rng.permutation(len(hot))[: len(hot) // 2]] = True
        return hot
