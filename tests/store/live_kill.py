"""Reader processes that live through many writers, each with other settings; some are killed, some close the store.

`python -m tests.store.live_kill --writers 200 --killed 1` is a long form with kills alone, and
`python -m tests.store.live_kill --writers 50 --messages 1000000` one that compares a million messages. The readers
live through all lives of the writer. Each message says which it is: all of its bytes, its key, its properties and its
delivery time follow from a number that it carries. A reader compares all of these, by each way of reading, of what is
new and now and then of what is old, and notes the numbers. Then:

* after each life, and before the next writer, each reader comes to see all that was acknowledged, but for a writer with
  durability "os" that was killed: the next opening shows that;
* before some lives the store is opened with `repair=True`, which finds nothing to do;
* at the end, each message that a reader was given is in the store, at this offset. One that retention has removed
  meanwhile is the one that was acknowledged.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stratalog.store import MessageStore, OffsetOutOfRange, StoreConfig

from ..seeds import draw_seed
from .helpers import PATIENCE_S, ROOT, run_child
from .lives import NUMBER, OPEN, QUEUE_COUNT, ROW, TOPIC, Life, check, draw_life, made

ROWS = np.dtype([("queue", "<u4"), ("offset", "<u8"), ("number", "<u8")])
READERS = 3
AT_ONCE = 2000


# -- a reader -----------------------------------------------------------------------------------------


class Reader:
    """A reader process: reads all queues for ever, and notes what it was given."""

    def __init__(self, path: str, notes: str, seed: int) -> None:
        self.at = [0] * QUEUE_COUNT
        self.chance = random.Random(seed)
        self.notes = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.store = MessageStore.open(path, read_only=True)

    def run(self, until: Path) -> None:
        """Until the file `until` is there, and nothing is left to read."""
        while True:
            last = until.exists()
            found = sum(self.read(queue) for queue in range(QUEUE_COUNT))
            if last and not found:
                return
            self.look_back(self.chance.randrange(QUEUE_COUNT))
            if not found:
                self.read(self.chance.randrange(QUEUE_COUNT), wait_ms=self.chance.choice((1, 20, 200)))

    def read(self, queue: int, wait_ms: int = 0) -> int:
        """The next messages of a queue; how many."""
        try:
            found = list(self.messages(queue, self.at[queue], self.chance.choice((1, 30, AT_ONCE)), wait_ms))
        except OffsetOutOfRange as error:
            if self.at[queue] >= error.first:
                raise
            self.at[queue] = error.first  # retention was faster
            return 1
        rows = []
        for offset, number in found:
            assert offset == self.at[queue], f"queue {queue}: {offset} follows {self.at[queue]}"
            rows.append(ROW.pack(queue, offset, number))
            self.at[queue] += 1
        os.write(self.notes, b"".join(rows))
        return len(found)

    def look_back(self, queue: int) -> None:
        """Some messages that were read before."""
        if self.at[queue]:
            with contextlib.suppress(OffsetOutOfRange):
                list(self.messages(queue, self.chance.randrange(self.at[queue]), 20, 0))

    def messages(self, queue: int, offset: int, most: int, wait_ms: int) -> Iterator[tuple[int, int]]:
        """Offsets and numbers of messages, read in some way; each is compared."""
        way = self.chance.randrange(3) if not wait_ms else 0
        if way == 0:
            found = self.store.read(TOPIC, queue, offset, max_messages=most, wait_ms=wait_ms)
        elif way == 1:
            found = self.store.read_batch(TOPIC, queue, offset, max_messages=most).messages()
        else:
            for at, data in self.store.get_range(TOPIC, queue, offset, most).items():
                (number,) = NUMBER.unpack_from(data)
                assert data == made(number).data, f"queue {queue}, offset {offset + at}"
                yield offset + at, number
            return
        for message in found:
            assert message.queue_id == queue
            yield message.offset, check(message)


class Watched:
    """A reader process as the parent sees it. `given` has the numbers by queue and offset, 0 for those left out."""

    def __init__(self, path: Path, folder: Path, number: int) -> None:
        self.notes = folder / f"reader-{number}"
        self.notes.touch()
        self.given = [np.zeros(0, np.uint64) for _ in range(QUEUE_COUNT)]
        self._read = 0
        arguments = ["--reader", str(path), str(self.notes), str(number), str(folder / "over")]
        self.process = subprocess.Popen([sys.executable, "-m", "tests.store.live_kill", *arguments], cwd=ROOT)

    def look(self) -> None:
        """Take in what it has noted. No message may be given twice."""
        with self.notes.open("rb") as notes:
            notes.seek(self._read)
            content = notes.read()
        content = content[: len(content) // ROW.size * ROW.size]
        self._read += len(content)
        rows = np.frombuffer(content, ROWS)
        for queue in np.unique(rows["queue"]).tolist():
            mine = rows[rows["queue"] == queue]
            offsets = mine["offset"].astype(np.int64)
            assert (np.diff(offsets) > 0).all() and offsets[0] >= len(self.given[queue]), f"queue {queue}: given twice"
            self.given[queue] = placed(self.given[queue], offsets, mine["number"])

    def until_seen(self, ends: list[int]) -> None:
        """Wait until it has come to these ends of the queues."""
        patience = time.monotonic() + PATIENCE_S
        while True:
            assert self.process.poll() is None, f"a reader ended by itself with {self.process.returncode}"
            self.look()
            behind = [queue for queue, end in enumerate(ends) if len(self.given[queue]) < end]
            if not behind:
                return
            assert time.monotonic() < patience, f"a reader has not come to the ends of the queues {behind}: it hangs"
            time.sleep(0.01)


def placed(numbers: Any, offsets: Any, more: Any) -> Any:
    """The numbers by offset, with some more."""
    grown = np.zeros(max(len(numbers), int(offsets.max()) + 1), np.uint64)
    grown[: len(numbers)] = numbers
    grown[offsets] = more
    return grown


# -- the parent ---------------------------------------------------------------------------------------


class LiveLoop:
    """Lives of a writer, and readers that live on. `told` has what was acknowledged, as `given`."""

    def __init__(self, path: Path, lanes: int, seed: int, retention_bytes: int) -> None:
        self.path = path
        self.lanes = lanes
        self.retention_bytes = retention_bytes
        self.chance = random.Random(seed)
        self.told = [np.zeros(0, np.uint64) for _ in range(QUEUE_COUNT)]
        self.kills = self.repairs = 0
        MessageStore.open(path, StoreConfig(lanes=lanes)).close()
        self.readers = [Watched(path, path.parent, number) for number in range(READERS)]

    def live(self, messages: int, killed: float) -> int:
        """One life of the writer; how many messages were acknowledged."""
        life = draw_life(self.chance, self.lanes, messages, killed, self.retention_bytes)
        if life.is_repaired:
            done = run_child(
                "import sys; from stratalog import MessageStore, StoreConfig\n"
                "with MessageStore.open(sys.argv[1], StoreConfig(), repair=True) as store: assert not store.losses",
                str(self.path),
            )
            assert done.returncode == 0, done.stderr
        self.kills, self.repairs = self.kills + life.is_killed, self.repairs + life.is_repaired
        rows = np.frombuffer(self.content(life), ROWS)[1:]
        for queue in np.unique(rows["queue"]).tolist():
            mine = rows[rows["queue"] == queue]
            offsets, known = mine["offset"].astype(np.int64), self.told[queue]
            assert len(np.unique(offsets)) == len(offsets) and not known[offsets[offsets < len(known)]].any(), "twice"
            self.told[queue] = placed(known, offsets, mine["number"])
        is_durable = life.config["durability"] == "force" or not life.is_killed
        if is_durable and not self.retention_bytes:  # else what was acknowledged may be gone
            for reader in self.readers:
                reader.until_seen([len(told) for told in self.told])
        return len(rows)

    def content(self, life: Life) -> bytes:
        """Start the writer, and kill it when it has told of enough; all that it tells of."""
        reading, writing = os.pipe()
        arguments = [str(self.path), str(self.chance.getrandbits(31)), str(writing), json.dumps(life)]
        command = [sys.executable, "-m", "tests.store.lives", *arguments]
        with subprocess.Popen(command, cwd=ROOT, pass_fds=[writing]) as writer:
            os.close(writing)
            content, is_killed = bytearray(), False
            with os.fdopen(reading, "rb", buffering=0) as pipe:
                while part := pipe.read(1 << 16):
                    content += part
                    if life.is_killed and not is_killed and len(content) >= life.messages * ROW.size:
                        writer.send_signal(signal.SIGKILL)
                        is_killed = True
            assert writer.wait() == (-signal.SIGKILL if life.is_killed else 0), f"the writer ended by itself: {life}"
        assert content.startswith(OPEN)
        return bytes(content[: len(content) // ROW.size * ROW.size])

    def end(self) -> int:
        """Stop the readers and compare all that they were given; how many messages."""
        with MessageStore.open(self.path, StoreConfig(lanes=self.lanes)) as store:
            bounds = [store.queue_bounds(TOPIC, queue) for queue in range(QUEUE_COUNT)]
            for reader in self.readers:
                reader.until_seen([end for _, end in bounds])
            (self.path.parent / "over").touch()
            for reader in self.readers:
                assert reader.process.wait(PATIENCE_S) == 0
                reader.look()
            return sum(self.compare(store, queue, *bounds[queue]) for queue in range(QUEUE_COUNT))

    def compare(self, store: MessageStore, queue: int, first: int, end: int) -> int:
        """A queue of all readers: what is in the store, and before that what was acknowledged."""
        kept = np.zeros(end, np.uint64)
        kept[: min(first, len(self.told[queue]))] = self.told[queue][:first]
        at = first
        while at < end:
            for message in store.read_batch(TOPIC, queue, at, max_messages=AT_ONCE).messages():
                assert message.offset == at
                kept[at] = check(message)
                at += 1
        told = self.told[queue]
        assert len(told) <= end and (told[told != 0] == kept[: len(told)][told != 0]).all(), (
            f"queue {queue}: acknowledged"
        )
        count = 0
        for reader in self.readers:
            given = reader.given[queue]
            assert len(given) <= end, (
                f"a reader was given offset {len(given) - 1} of queue {queue}, which ends at {end}"
            )
            known = (given != 0) & (kept[: len(given)] != 0)
            wrong = np.flatnonzero(known & (given != kept[: len(given)]))
            assert not len(wrong), f"queue {queue}, offset {wrong[0]}: a reader was given another message"
            count += int(known.sum())
        return count


def run(
    path: Path, lanes: int, writers: int, messages: int, killed: float, seed: int, *, retention_bytes: int = 0,
    verbose: bool = False,
) -> int:  # fmt: skip
    """The loop, with so many messages in all, about; how many were compared."""
    loop, total = LiveLoop(path, lanes, seed, retention_bytes), 0
    try:
        for number in range(writers):
            total += loop.live(max(2, messages // writers), killed)
            if verbose and number % 10 == 9:
                print(f"{number + 1} writers, {loop.kills} killed, {total} messages acknowledged", flush=True)
        compared = loop.end()
    finally:
        for reader in loop.readers:
            reader.process.kill()
            reader.process.wait()
    if verbose:
        print(
            f"seed {seed}: {writers} writers, {loop.kills} killed, {loop.repairs} repairs, {total} messages "
            f"acknowledged, {compared} given to {READERS} readers: no wrong byte, key, property or time, none missing, "
            "none hung"
        )
    return compared


def main() -> None:
    """The long form, and the processes that it starts."""
    if sys.argv[1:2] == ["--reader"]:
        path, notes, number, until = sys.argv[2:]
        Reader(path, notes, int(number)).run(Path(until))
        return
    parser = argparse.ArgumentParser(prog="python -m tests.store.live_kill", description=__doc__.splitlines()[0])
    parser.add_argument("--writers", type=int, default=50)
    parser.add_argument("--messages", type=int, default=1_000_000, help="of all writers together, about")
    parser.add_argument("--killed", type=float, default=0.5, help="this share of the writers is killed")
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--retention-bytes", type=int, default=0, help="0 keeps everything")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--dir", type=Path, default=None)
    given = parser.parse_args()
    seed = draw_seed() if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        run(
            Path(folder) / "store", given.lanes, given.writers, given.messages, given.killed, seed,
            retention_bytes=given.retention_bytes, verbose=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
