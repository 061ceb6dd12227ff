"""A store of very many segments, by processes that may have few descriptors.

`python -m tests.store.many_segments --segments 20000 --descriptors 256` is the long form. The store is made and killed;
opened, and read at random places; followed by three readers while it grows; compacted; and read whole. What a message
holds follows from its queue and offset, so each byte is compared. Each step is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stratalog.store import MessageStore, StoreReader, compact_store
from stratalog.store.testing import TunedConfig

from ..seeds import draw_seed
from .helpers import KIB, PATIENCE_S, ROOT

TOPIC, QUEUES = "many", 16
MESSAGE_BYTES = 1000
BATCH = 480  # messages of one call, as many in each queue: about 8 segments
READERS = 3
READS = 1_000  # random places
MORE = 15  # batches that come while readers follow
COMPACTED_BYTES = 64 << 20
SETTINGS = TunedConfig(segment_bytes=64 * KIB, max_frame_bytes=64 * KIB, max_message_bytes=64 * KIB, recent_bytes=0)


def data_of(queue: int, offset: int) -> bytes:
    """What the message of a place holds."""
    head = b"%d %d " % (queue, offset)
    return head + bytes([offset & 0xFF]) * (MESSAGE_BYTES - len(head))


def ends_of(store: StoreReader) -> list[int]:
    return [store.queue_bounds(TOPIC, queue)[1] for queue in range(QUEUES)]


def append_batch(store: MessageStore, ends: list[int]) -> None:
    """One batch over all queues, from `ends` on, which it moves."""
    rows = []
    for number in range(BATCH):
        queue = number % QUEUES
        rows.append((TOPIC, queue, data_of(queue, ends[queue])))
        ends[queue] += 1
    store.append_batch(rows)


def tell(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


# -- the steps, each in a process of its own ----------------------------------------------------------


def fill(path: str, segments: int) -> None:
    """Append until so many segments are sealed, and then on until the process is killed."""
    store = MessageStore.open(path, SETTINGS)
    ends, ready = ends_of(store), False
    for number in range(1 << 40):
        append_batch(store, ends)
        if ready or number % 50 == 0:
            ready = ready or store.stats()["segments"]["sealed"] >= segments
            tell(acknowledged=sum(ends), ready=ready)


def grow(path: str, least: int) -> None:
    """Open, read at random places, and append while others follow."""
    began = time.monotonic()
    with MessageStore.open(path, SETTINGS) as store:
        opened_s, ends = time.monotonic() - began, ends_of(store)
        assert sum(ends) >= least, f"{least - sum(ends)} acknowledged messages are lost"
        dice, began = random.Random(sum(ends)), time.monotonic()
        for _ in range(READS):
            queue = dice.randrange(QUEUES)
            offset = dice.randrange(ends[queue])
            assert store.read(TOPIC, queue, offset, max_messages=1)[0].data == data_of(queue, offset)
        read_us = (time.monotonic() - began) / READS * 1e6
        tell(open_s=opened_s, read_us=read_us, messages=sum(ends), sealed=store.stats()["segments"]["sealed"])
        sys.stdin.readline()  # the readers are there
        for _ in range(MORE):
            append_batch(store, ends)
        sys.stdin.readline()  # they have seen all


def follow(path: str, _least: int) -> None:
    """Read what comes while it comes, and old messages in between."""
    with MessageStore.open(path, read_only=True) as reader:
        ends = ends_of(reader)
        tell(follows=sum(ends))
        seen, dice = 0, random.Random(sum(ends))
        reached, last = ends.copy(), [end + MORE * BATCH // QUEUES for end in ends]
        while reached != last:
            queue = dice.choice([queue for queue in range(QUEUES) if reached[queue] < last[queue]])
            found = reader.read(TOPIC, queue, reached[queue], max_messages=100, wait_ms=int(PATIENCE_S * 1000))
            assert found, f"nothing comes behind {reached[queue]} of {last[queue]} in queue {queue}"
            for message in found:
                assert message.offset == reached[queue] and message.data == data_of(queue, message.offset)
                reached[queue] += 1
            seen += len(found)
            old = dice.randrange(ends[queue])
            assert reader.read(TOPIC, queue, old, max_messages=1)[0].data == data_of(queue, old)
        tell(seen=seen)


def compact(path: str, _least: int) -> None:
    """Few large segments of what there is."""
    began = time.monotonic()
    compact_store(path, segment_bytes=COMPACTED_BYTES)
    tell(compact_s=time.monotonic() - began)


def check(path: str, _least: int) -> None:
    """Each message of the store."""
    with MessageStore.open(path, SETTINGS) as store:
        ends = ends_of(store)
        for queue in range(QUEUES):
            at = 0
            while at < ends[queue]:
                found = store.read(TOPIC, queue, at, max_messages=1_000)
                assert found, f"nothing is at {at} of queue {queue}"
                for message in found:
                    assert message.offset == at and message.data == data_of(queue, at)
                    at += 1
        tell(messages=sum(ends), sealed=store.stats()["segments"]["sealed"])


STEPS: dict[str, Callable[[str, int], None]] = {
    "fill": fill, "grow": grow, "follow": follow, "compact": compact, "check": check,
}  # fmt: skip


# -- all of them --------------------------------------------------------------------------------------


class Step:
    """A process that takes one step, with a limit of descriptors."""

    def __init__(self, name: str, path: Path, number: int, descriptors: int) -> None:
        command = [sys.executable, "-m", __spec__.name, "--step", name, str(path), str(number), str(descriptors)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def told(self) -> dict[str, Any]:
        """The next line that it tells."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"a step ended with {self.process.wait()}"
        told: dict[str, Any] = json.loads(line)
        return told

    def say(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        assert self.process.wait(PATIENCE_S) == 0

    def kill(self) -> int:
        """Kill it at once; the most that it had told of as acknowledged, and nobody had asked for yet."""
        assert self.process.stdout is not None
        self.process.kill()
        lines = self.process.stdout.read().splitlines()
        self.process.wait()
        return max((json.loads(line)["acknowledged"] for line in lines if line.endswith("}")), default=0)


def run(path: Path, segments: int, descriptors: int, chance: random.Random) -> dict[str, Any]:
    """All steps; their figures. Raises AssertionError."""
    assert BATCH % QUEUES == 0
    filler, found = Step("fill", path, segments, descriptors), dict[str, Any]()
    while not (told := filler.told())["ready"]:
        pass
    time.sleep(chance.random() * 0.2)  # the moment of the kill, at random
    acknowledged = max(told["acknowledged"], filler.kill())
    writer = Step("grow", path, acknowledged, descriptors)
    found |= writer.told()
    readers = [Step("follow", path, 0, descriptors) for _ in range(READERS)]
    assert [reader.told()["follows"] for reader in readers] == [found["messages"]] * READERS
    writer.say()
    seen = [reader.told()["seen"] for reader in readers]
    for reader in readers:
        reader.end()
    writer.say()
    writer.end()
    compacting = Step("compact", path, 0, descriptors)
    found |= compacting.told()
    compacting.end()
    checking = Step("check", path, 0, descriptors)
    told = checking.told()
    checking.end()
    assert told["messages"] == found["messages"] + MORE * BATCH
    return {**found, "compacted": told["sealed"], "followed": seen}


def main() -> None:
    """The command, and its steps."""
    if sys.argv[1:2] == ["--step"]:
        name, path, number, descriptors = sys.argv[2:]
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(descriptors), int(descriptors)))
        STEPS[name](path, int(number))
        return
    parser = argparse.ArgumentParser(prog="python -m tests.store.many_segments", description=__doc__)
    parser.add_argument("--segments", type=int, default=20_000)
    parser.add_argument("--descriptors", type=int, default=256)
    parser.add_argument("--dir", type=Path, default=Path.cwd())
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stratalog-many-", dir=given.dir) as folder:
        print(run(Path(folder) / "store", given.segments, given.descriptors, random.Random(draw_seed())))


if __name__ == "__main__":
    main()
