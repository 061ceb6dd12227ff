"""Lives of a writer, each with other settings, for readers that outlive it; and messages that say which they are."""

from __future__ import annotations

import json
import os
import random
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from stratalog.store import Message, MessageStore
from stratalog.store.testing import TunedConfig

from .helpers import payload

QUEUE_COUNT = 16
TOPIC = "kill"
NUMBER = struct.Struct("<Q")
ROW = struct.Struct("<IQQ")  # queue, offset, number
FAR_MS = 1 << 50
STREAMS = tuple((TOPIC, queue) for queue in range(QUEUE_COUNT))
OPEN = ROW.pack(0xFFFFFFFF, 0, 0)


class Made(NamedTuple):
    """A message as its number says."""

    data: bytes
    key: bytes | None
    properties: dict[str, str] | None
    due_ms: int | None


def made(number: int) -> Made:
    """All of a message: a fourth of them has data alone."""
    data = NUMBER.pack(number) + payload(number, (number >> 8) % (9000 if not number & 31 else 300))
    kind = number >> 60 & 3
    key = b"key %d" % number if kind else None
    return Made(data, key, {"n": str(number)} if kind > 1 else None, FAR_MS + number % 1000 if kind > 2 else None)


def check(message: Message) -> int:
    """A message is all that its number says: the number."""
    (number,) = NUMBER.unpack_from(message.data)
    properties = None if message.properties is None else dict(message.properties)
    found = Made(message.data, message.key, properties, message.deliver_at_ms)
    assert found == made(number), f"queue {message.queue_id}, offset {message.offset}: {found} is not {made(number)}"
    return int(number)


class Life(NamedTuple):
    """One life of the writer.

    Attributes:
        config: arguments of `StoreConfig`.
        messages: after so many it ends.
        is_killed: by a signal, else by `close`.
        is_repaired: the store is opened with `repair=True` and default settings before.
    """

    config: dict[str, Any]
    messages: int
    is_killed: bool
    is_repaired: bool


def draw_life(chance: random.Random, lanes: int, messages: int, killed: float, retention_bytes: int) -> Life:
    """Settings that change what a writer shares with readers, and where frames and segments end."""
    memory = chance.choice(
        [{}, {"recent_bytes": 0}, {"recent_bytes": chance.randrange(8 << 20)}, {"memory_limit_bytes": 256 << 20}]
    )
    config = {
        "lanes": lanes, "durability": chance.choice(("force", "os")),
        "alignment": chance.choice(("pad", "trim", "adaptive")), "retention_bytes": retention_bytes or None,
        "segment_bytes": chance.choice((256, 1024, 4096)) << 10,
        "max_message_bytes": chance.choice((16, 64, 1024)) << 10,
        "max_frame_bytes": chance.choice((4, 40, 256, 2048)) << 10, **memory,
    }  # fmt: skip
    is_killed = chance.random() < killed
    return Life(config, chance.randint(messages // 2, 3 * messages // 2), is_killed, chance.random() < 0.2)


class Writer:
    """A process that appends from two threads, and tells of each answer."""

    def __init__(self, path: str, life: Life, seed: int, pipe: int) -> None:
        self.left = 1 << 60 if life.is_killed else life.messages
        self.seed = seed
        self.pipe = pipe
        self.store = MessageStore.open(path, TunedConfig(**life.config))

    def run(self) -> None:
        """Until it is killed, or has appended its messages."""
        os.write(self.pipe, OPEN)
        threads = [threading.Thread(target=self.repeat, args=(step,)) for step in (self.some, self.columns)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.store.close()

    def repeat(self, step: Callable[[random.Random], int]) -> None:
        """Append again and again."""
        chance = random.Random(f"{self.seed}:{step.__name__}")
        while self.left > 0:
            self.left -= step(chance)

    def numbers(self, chance: random.Random, most: int) -> list[int]:
        """Of some messages; in some frames none has more than its data."""
        mask = chance.choice(((1 << 60) - 1, (1 << 62) - 1))
        return [chance.getrandbits(62) & mask | 1 << 8 for _ in range(chance.randint(1, most))]

    def some(self, chance: random.Random) -> int:
        """A few messages, each by itself, in one frame or in several."""
        rows = [(chance.randrange(QUEUE_COUNT), number) for number in self.numbers(chance, 40)]
        tickets = []
        for queue, number in rows:
            one = made(number)
            tickets.append(
                self.store.submit(
                    TOPIC, queue, one.data, key=one.key, properties=one.properties, deliver_at_ms=one.due_ms
                )
            )
        self.tell((queue, ticket.result(), number) for (queue, number), ticket in zip(rows, tickets, strict=True))
        return len(rows)

    def columns(self, chance: random.Random) -> int:
        """Many messages by one call."""
        numbers = self.numbers(chance, chance.choice((10, 1000)))
        rows = [made(number) for number in numbers]
        queues = [chance.randrange(QUEUE_COUNT) for _ in rows]
        dues = [-1 if one.due_ms is None else one.due_ms for one in rows]
        properties = [None if one.properties is None else json.dumps(one.properties).encode() for one in rows]
        offsets = self.store.append_columns(
            STREAMS, queues, [len(one.data) for one in rows], b"".join(one.data for one in rows),
            keys=column([one.key for one in rows]), properties=column(properties),
            deliver_at_ms=dues if max(dues) >= 0 else None,
        )  # fmt: skip
        self.tell(zip(queues, offsets.tolist(), numbers, strict=True))
        return len(rows)

    def tell(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """In writes of less than PIPE_BUF bytes, so that those of two threads do not mix."""
        content = b"".join(ROW.pack(*row) for row in rows)
        step = 4096 // ROW.size * ROW.size
        for at in range(0, len(content), step):
            os.write(self.pipe, content[at : at + step])


def column(values: list[bytes | None]) -> tuple[list[int], bytes] | None:
    """The column of some values; None if there is no value."""
    if all(value is None for value in values):
        return None
    return [-1 if value is None else len(value) for value in values], b"".join(value or b"" for value in values)


def main() -> None:
    """The process: the store, a seed, a pipe, and the life."""
    path, seed, pipe, life = sys.argv[1:]
    Writer(path, Life(*json.loads(life)), int(seed), int(pipe)).run()


if __name__ == "__main__":
    main()
