"""The SIGKILL loop: a child appends and tells of every answer, dies at a random moment, and the folder is checked.

`python -m tests.store.kill --cycles 500 --producers 40` is the long form. The store lives on through all
cycles, so later kills also hit sealed segments, rolled ones and recovery itself.

With `--retention-bytes`, the oldest segments of a lane are removed meanwhile, whole and sealed ones. So a queue's
bounds only grow, what is left of a lane is the end of its log, and the store stays as large as it may be.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from stratalog.store import MessageStore, OffsetOutOfRange, StoreConfig
from stratalog.store.config import Alignment, Durability
from stratalog.store.format.layout import checksum64, lane_name
from stratalog.store.log.streams import lane_of
from stratalog.store.testing import TunedCacheConfig, TunedConfig

from ..seeds import draw_seed
from .killing import PIPE, told_until_killed

RECORD = struct.Struct("<IQQI")  # queue, offset, seed of the payload, its length
QUEUE_COUNT = 16
SEGMENT_BYTES = 256 << 10
TOPIC = "kill"


class Settings(NamedTuple):
    """What parent and child must agree on."""

    producers: int
    lanes: int
    alignment: Alignment
    durability: Durability
    cache_bytes: int = 0
    retention_bytes: int = 0

    def config(self) -> StoreConfig:
        """Small segments, so that they roll and are sealed all the time."""
        return TunedConfig(
            lanes=self.lanes, alignment=self.alignment, durability=self.durability,
            segment_bytes=SEGMENT_BYTES, max_message_bytes=64 << 10, max_frame_bytes=64 << 10, recent_bytes=0,
            cache=TunedCacheConfig(off_heap_bytes=self.cache_bytes, block_bytes=4096) if self.cache_bytes else None,
            read_cache_bytes=self.cache_bytes, retention_bytes=self.retention_bytes or None,
        )  # fmt: skip


def settings_of(
    producers: Any, lanes: Any, alignment: Any, durability: Any, cache_bytes: Any, retention_bytes: Any
) -> Settings:
    """From the words of a command line; the store refuses what is no alignment or durability."""
    return Settings(int(producers), int(lanes), alignment, durability, int(cache_bytes), int(retention_bytes))


def payload(seed: int, length: int) -> bytes:
    """The bytes that a seed stands for."""
    word = struct.pack("<Q", checksum64(struct.pack("<Q", seed)))
    return (word * (length // 8 + 1))[:length]


# -- the child ----------------------------------------------------------------------------------------


class Child:
    """Appends for ever from several threads and one batch thread; each answer goes to the pipe at once."""

    def __init__(self, path: str, settings: Settings, seed: int, pipe: int) -> None:
        self.settings = settings
        self.seed = seed
        self.pipe = pipe
        self.told: deque[tuple[int, int, int, int]] = deque(maxlen=20_000)
        self.store = MessageStore.open(path, settings.config())

    def run(self) -> None:
        """Until killed."""
        os.write(self.pipe, RECORD.pack(0, 0, 0, 0xFFFFFFFF))  # it is open
        threads = [threading.Thread(target=self.produce, args=(number,)) for number in range(self.settings.producers)]
        threads.append(threading.Thread(target=self.produce_batches))
        threads.append(threading.Thread(target=self.flush))
        if self.settings.cache_bytes:
            threads.append(threading.Thread(target=self.read))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def message(self, chance: random.Random) -> tuple[int, int, bytes]:
        """A queue, a seed and its payload."""
        seed, length = chance.getrandbits(63), int(2 ** chance.uniform(0, 13))
        return chance.randrange(QUEUE_COUNT), seed, payload(seed, length)

    def tell(self, rows: list[tuple[int, int, int, int]]) -> None:
        """One write of less than PIPE_BUF bytes, so that records do not mix."""
        os.write(self.pipe, b"".join(RECORD.pack(*row) for row in rows))
        self.told += rows

    def produce(self, number: int) -> None:
        """One message at a time."""
        chance = random.Random(f"{self.seed}:{number}")
        while True:
            queue, seed, data = self.message(chance)
            offset = self.store.append(TOPIC, queue, data)
            self.tell([(queue, offset, seed, len(data))])

    def produce_batches(self) -> None:
        """Many at a time."""
        chance = random.Random(f"{self.seed}:batch")
        while True:
            rows = [self.message(chance) for _ in range(chance.randrange(1, 60))]
            offsets = self.store.append_batch([(TOPIC, queue, data) for queue, _, data in rows]).tolist()
            self.tell(
                [(queue, offset, seed, len(data)) for (queue, seed, data), offset in zip(rows, offsets, strict=True)]
            )

    def flush(self) -> None:
        """Barriers in between."""
        while True:
            time.sleep(0.02)  # now and then: each is a barrier in all lanes
            self.store.flush()

    def read(self) -> None:
        """What was answered, old and new: from the ring, the caches and the device. Other bytes end the process."""
        chance = random.Random(f"{self.seed}:read")
        while True:
            time.sleep(0.001)  # the producers are what is tried here
            if self.told:
                queue, offset, seed, length = self.told[chance.randrange(len(self.told))]
                try:
                    found = self.store.get_range(TOPIC, queue, offset, 1)
                except OffsetOutOfRange as error:
                    if self.settings.retention_bytes and offset < error.first:
                        continue  # retention has removed it meanwhile
                    raise
                if found != {0: payload(seed, length)}:
                    print(f"queue {queue}, offset {offset} was read as other bytes", file=sys.stderr, flush=True)
                    os._exit(3)


# -- the parent ---------------------------------------------------------------------------------------


class Loop:
    """Cycles of starting, killing and checking; `told` is everything that was ever acknowledged."""

    def __init__(self, path: Path, settings: Settings, seed: int) -> None:
        self.path = path
        self.settings = settings
        self.seed = seed
        self.chance = random.Random(seed)
        self.told: list[dict[int, tuple[int, int]]] = [{} for _ in range(QUEUE_COUNT)]
        self.checked_up_to = [0] * QUEUE_COUNT
        self.first = [0] * QUEUE_COUNT  # of each queue, when it was last looked at

    def cycle(self, number: int) -> int:
        """One life of the child; the messages that it was told of."""
        told = self.live_and_die(number)
        for queue, offset, seed, length in told:
            assert offset not in self.told[queue], f"offset {offset} of queue {queue} was given twice"
            self.told[queue][offset] = (seed, length)
        self.check(number)
        return len(told)

    def live_and_die(self, number: int) -> list[tuple[int, int, int, int]]:
        """Start the child, let it live a random while, kill it; what it told until then."""
        child_seed, alive_s = self.chance.getrandbits(31), self.chance.uniform(0.0, 0.5)
        given = (self.path, child_seed, PIPE, *self.settings)
        awaited = 1 + number % 2  # that it is open; of every other life something is acknowledged
        return told_until_killed("tests.store.kill", given, RECORD, alive_s, awaited)[1:]

    def check(self, number: int) -> None:
        """Reopen: every acknowledged message is there, in order and unharmed; now and then from the first on."""
        everything = number % 10 == 9
        settings = self.settings._replace(retention_bytes=0)  # nothing moves while it is looked at
        with MessageStore.open(self.path, settings.config()) as store:
            assert not store.losses
            begins = self.begins()  # now: opening has ended the removals that the kill cut short
            for queue, told in enumerate(self.told):
                first, end = store.queue_bounds(TOPIC, queue)
                assert end > max(told, default=-1), f"queue {queue} ends at {end} and {max(told)} was acknowledged"
                assert end >= self.checked_up_to[queue], f"queue {queue} ended at {self.checked_up_to[queue]}"
                self.check_first(queue, first, begins)
                self.check_queue(store, queue, max(first, 0 if everything else self.checked_up_to[queue]), end)
                self.checked_up_to[queue] = end
            if everything:
                self.check_log(store)
        self.check_kept(begins)

    def begins(self) -> list[int]:
        """The number of the first segment that each lane still has."""
        lanes = [lane_name(lane) for lane in range(self.settings.lanes)]
        return [min((int(path.stem) for path in (self.path / lane).glob("*.seg")), default=1) for lane in lanes]

    def check_first(self, queue: int, first: int, begins: list[int]) -> None:
        """A queue begins later only where retention has removed whole segments of its lane."""
        before, self.first[queue] = self.first[queue], first
        assert first >= before, f"queue {queue} began at {before}, and begins at {first} now"
        removed = begins[lane_of(TOPIC, queue, self.settings.lanes)] > 1
        assert removed or first == 0, f"queue {queue} begins at {first}, and no segment of its lane was removed"
        for offset in range(before, first):
            self.told[queue].pop(offset, None)

    def check_log(self, store: MessageStore) -> None:
        """A scan gives each queue from its first message to its last: what is removed is the begin of the log."""
        reached = list(self.first)
        for batch in store.scan():
            for queue, offset in zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True):
                assert offset == reached[queue], f"queue {queue} goes on with {offset} behind {reached[queue]}"
                reached[queue] += 1
        assert reached == self.checked_up_to

    def check_kept(self, begins: list[int]) -> None:
        """Retention removes no more than it must: all but a segment, and what recovery cuts off unused ones."""
        if max(begins) > 1:
            held = sum(path.stat().st_size for path in self.path.glob("lane-*/*.seg"))
            least = self.settings.retention_bytes - (self.settings.lanes + 1) * SEGMENT_BYTES
            assert held >= least, f"{held} bytes are left, and retention keeps {self.settings.retention_bytes}"

    def check_queue(self, store: MessageStore, queue: int, at: int, end: int) -> None:
        told = self.told[queue]
        while at < end:
            batch = store.read_batch(TOPIC, queue, at, max_messages=1000)
            assert batch.offsets.tolist() == list(range(at, at + len(batch)))
            for offset, data in zip(batch.offsets.tolist(), batch.payloads(), strict=True):
                if offset in told:
                    assert data == payload(*told[offset]), f"queue {queue}, offset {offset} has other bytes"
            at += len(batch)


def run(path: Path, settings: Settings, cycles: int, seed: int, *, verbose: bool = False) -> int:
    """The loop; the number of acknowledged messages."""
    loop = Loop(path, settings, seed)
    total = 0
    for number in range(cycles):
        total += loop.cycle(number)
        if verbose:
            print(f"cycle {number + 1}: {total} messages acknowledged, all there", flush=True)
    return total


def main() -> None:
    """The long form, and the child."""
    if sys.argv[1:2] == ["--child"]:
        path, seed, pipe, *words = sys.argv[2:]
        settings = settings_of(*words)
        Child(path, settings, int(seed), int(pipe)).run()
    else:
        run_long()


def run_long() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--producers", type=int, default=40)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--alignment", default="adaptive")
    parser.add_argument("--durability", default="force")
    parser.add_argument("--cache-bytes", type=int, default=0, help="of the message cache and of the read cache")
    parser.add_argument("--retention-bytes", type=int, default=0, help="0 keeps everything")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--dir", type=Path, default=None)
    given = parser.parse_args()
    seed = draw_seed() if given.seed is None else given.seed
    settings = settings_of(
        given.producers, given.lanes, given.alignment, given.durability, given.cache_bytes, given.retention_bytes
    )
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        total = run(Path(folder) / "store", settings, given.cycles, seed, verbose=True)
    print(f"{given.cycles} kills, {total} acknowledged messages, none lost, none harmed")


if __name__ == "__main__":
    main()
