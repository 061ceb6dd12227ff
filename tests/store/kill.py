"""The SIGKILL loop: a child appends and tells of every answer, dies at a random moment, and the folder is checked.

`python -m tests.store.kill --cycles 500 --producers 40` is the long form. The store lives on through all
cycles, so later kills also hit sealed segments, rolled ones and recovery itself.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from store import CacheConfig, MessageStore, StoreConfig
from store.config import Alignment, Durability
from store.format import checksum64

from ..seeds import draw_seed

RECORD = struct.Struct("<IQQI")  # queue, offset, seed of the payload, its length
QUEUE_COUNT = 16
TOPIC = "kill"
ROOT = Path(__file__).resolve().parents[2]


class Settings(NamedTuple):
    """What parent and child must agree on."""

    producers: int
    lanes: int
    alignment: Alignment
    durability: Durability
    cache_bytes: int = 0

    def config(self) -> StoreConfig:
        """Small segments, so that they roll and are sealed all the time."""
        return StoreConfig(
            lanes=self.lanes, alignment=self.alignment, durability=self.durability,
            segment_bytes=256 << 10, max_message_bytes=64 << 10, max_frame_bytes=64 << 10, recent_bytes=0,
            cache=CacheConfig(off_heap_bytes=self.cache_bytes, block_bytes=4096) if self.cache_bytes else None,
            read_cache_bytes=self.cache_bytes,
        )  # fmt: skip


def settings_of(producers: Any, lanes: Any, alignment: Any, durability: Any, cache_bytes: Any) -> Settings:
    """From the words of a command line; the store refuses what is no alignment or durability."""
    return Settings(int(producers), int(lanes), alignment, durability, int(cache_bytes))


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
                if self.store.get_range(TOPIC, queue, offset, 1) != {0: payload(seed, length)}:
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
        reading, writing = os.pipe()
        child_seed = self.chance.getrandbits(31)
        arguments = ["--child", str(self.path), str(child_seed), str(writing), *map(str, self.settings)]
        child = subprocess.Popen([sys.executable, "-m", "tests.store.kill", *arguments], cwd=ROOT, pass_fds=[writing])
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            started = pipe.read(RECORD.size)
            first = pipe.read(RECORD.size) if number % 2 else b""  # of every other life something is acknowledged
            killer = threading.Timer(self.chance.uniform(0.0, 0.5), child.send_signal, [signal.SIGKILL])
            killer.start()
            content = first + pipe.read()
            killer.join()
        assert child.wait() == -signal.SIGKILL, f"the child ended by itself in cycle {number}"
        assert len(started) == RECORD.size
        whole = len(content) // RECORD.size * RECORD.size
        return list(RECORD.iter_unpack(content[:whole]))

    def check(self, number: int) -> None:
        """Reopen: every acknowledged message is there, in order and unharmed; now and then from the first on."""
        everything = number % 10 == 9
        with MessageStore.open(self.path, self.settings.config()) as store:
            assert not store.losses
            for queue, told in enumerate(self.told):
                first, end = store.queue_bounds(TOPIC, queue)
                assert first == 0
                assert end > max(told, default=-1), f"queue {queue} ends at {end} and {max(told)} was acknowledged"
                self.check_queue(store, queue, 0 if everything else self.checked_up_to[queue], end)
                self.checked_up_to[queue] = end

    def check_queue(self, store: MessageStore, queue: int, at: int, end: int) -> None:
        told = self.told[queue]
        while at < end:
            batch = store.read_batch(TOPIC, queue, at, 1000)
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
        path, seed, pipe, producers, lanes, alignment, durability, cache_bytes = sys.argv[2:]
        settings = settings_of(producers, lanes, alignment, durability, cache_bytes)
        Child(path, settings, int(seed), int(pipe)).run()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--producers", type=int, default=40)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--alignment", default="adaptive")
    parser.add_argument("--durability", default="force")
    parser.add_argument("--cache-bytes", type=int, default=0, help="of the message cache and of the read cache")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--dir", type=Path, default=None)
    given = parser.parse_args()
    given.seed = draw_seed() if given.seed is None else given.seed
    settings = settings_of(given.producers, given.lanes, given.alignment, given.durability, given.cache_bytes)
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        total = run(Path(folder) / "store", settings, given.cycles, given.seed, verbose=True)
    print(f"{given.cycles} kills, {total} acknowledged messages, none lost, none harmed")


if __name__ == "__main__":
    main()
