"""Reader processes beside a writer that is killed again and again.

`python -m tests.store.live_kill --kills 200` is the long form. The readers live through all lives of the writer. Each
notes every message that it was given: the queue, the offset, a checksum. Then:

* behind each kill, and before the next writer, each reader comes to see all that was acknowledged;
* at the end, each message that a reader was given is in the store, at this offset and with these bytes. One that
  retention has removed meanwhile has the bytes that were acknowledged.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stratalog.store import MessageStore, OffsetOutOfRange
from stratalog.store.format.layout import checksum64

from ..seeds import draw_seed
from .helpers import PATIENCE_S
from .kill import QUEUE_COUNT, ROOT, TOPIC, Loop, Settings, payload

GIVEN = struct.Struct("<IQQ")  # queue, offset, checksum
READERS = 3
AT_ONCE = 256


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
            if not found:
                self.read(self.chance.randrange(QUEUE_COUNT), wait_ms=self.chance.choice((1, 20, 200)))

    def read(self, queue: int, wait_ms: int = 0) -> int:
        """The next messages of a queue; how many."""
        try:
            found = self.store.read(TOPIC, queue, self.at[queue], AT_ONCE, wait_ms=wait_ms)
        except OffsetOutOfRange as error:
            if self.at[queue] >= error.first:
                raise
            self.at[queue] = error.first  # retention was faster
            return 1
        for message in found:
            assert message.offset == self.at[queue], f"queue {queue}: {message.offset} follows {self.at[queue]}"
            self.at[queue] += 1
        os.write(self.notes, b"".join([GIVEN.pack(queue, one.offset, checksum64(one.data)) for one in found]))
        return len(found)


class Watched:
    """A reader process as the parent sees it."""

    def __init__(self, path: Path, folder: Path, number: int) -> None:
        self.notes = folder / f"reader-{number}"
        self.notes.touch()
        self.given: list[dict[int, int]] = [{} for _ in range(QUEUE_COUNT)]
        self._read = 0
        arguments = ["--reader", str(path), str(self.notes), str(number), str(folder / "over")]
        self.process = subprocess.Popen([sys.executable, "-m", "tests.store.live_kill", *arguments], cwd=ROOT)

    def look(self) -> None:
        """Take in what it has noted. No message may be given twice."""
        with self.notes.open("rb") as notes:
            notes.seek(self._read)
            content = notes.read()
        content = content[: len(content) // GIVEN.size * GIVEN.size]
        self._read += len(content)
        for queue, offset, checksum in GIVEN.iter_unpack(content):
            assert offset not in self.given[queue], f"offset {offset} of queue {queue} was given twice"
            self.given[queue][offset] = checksum

    def until_seen(self, ends: list[int]) -> None:
        """Wait until it has come to these ends of the queues."""
        patience = time.monotonic() + PATIENCE_S
        while True:
            assert self.process.poll() is None, f"a reader ended by itself with {self.process.returncode}"
            self.look()
            behind = [queue for queue, end in enumerate(ends) if end and end - 1 not in self.given[queue]]
            if not behind:
                return
            assert time.monotonic() < patience, f"a reader has not come to the ends of the queues {behind}: it hangs"
            time.sleep(0.01)


class LiveLoop(Loop):
    """The loop of kills, with readers that live on."""

    def __init__(self, path: Path, settings: Settings, seed: int) -> None:
        super().__init__(path, settings, seed)
        MessageStore.open(path, settings.config()).close()
        self.readers = [Watched(path, path.parent, number) for number in range(READERS)]

    def cycle(self, number: int) -> int:
        """One life of the writer."""
        told = self.live_and_die(number)
        for queue, offset, seed, length in told:
            self.told[queue][offset] = (seed, length)
        if not self.settings.retention_bytes:  # else what was acknowledged may be gone
            ends = [max(rows, default=-1) + 1 for rows in self.told]
            for reader in self.readers:
                reader.until_seen(ends)
        return len(told)

    def end(self) -> int:
        """Stop the readers and compare all that they were given; how many messages."""
        settings = self.settings._replace(retention_bytes=0)
        with MessageStore.open(self.path, settings.config()) as store:
            bounds = [store.queue_bounds(TOPIC, queue) for queue in range(QUEUE_COUNT)]
            for reader in self.readers:
                reader.until_seen([end for _, end in bounds])
            (self.path.parent / "over").touch()
            for reader in self.readers:
                assert reader.process.wait(PATIENCE_S) == 0
                reader.look()
            return sum(self.compare(store, queue, *bounds[queue]) for queue in range(QUEUE_COUNT))

    def compare(self, store: MessageStore, queue: int, first: int, end: int) -> int:
        """A queue of all readers."""
        kept: dict[int, int] = {}
        while first + len(kept) < end:
            at = first + len(kept)
            kept.update({at + n: checksum64(data) for n, data in store.get_range(TOPIC, queue, at, 1000).items()})
        count = 0
        for reader in self.readers:
            for offset, checksum in reader.given[queue].items():
                assert offset < end, f"a reader was given offset {offset} of queue {queue}, which ends at {end}"
                expected = kept.get(offset)
                if expected is None and offset in self.told[queue]:
                    expected = checksum64(payload(*self.told[queue][offset]))
                assert expected in (None, checksum), f"queue {queue}, offset {offset}: a reader was given other bytes"
                count += expected is not None
        return count


def run(path: Path, settings: Settings, kills: int, seed: int, *, verbose: bool = False) -> int:
    """The loop; how many messages were compared."""
    loop = LiveLoop(path, settings, seed)
    try:
        for number in range(kills):
            loop.cycle(number)
            if verbose and number % 10 == 9:
                print(f"{number + 1} kills", flush=True)
        return loop.end()
    finally:
        for reader in loop.readers:
            reader.process.kill()
            reader.process.wait()


def main() -> None:
    """The long form, and the readers."""
    if sys.argv[1:2] == ["--reader"]:
        path, notes, number, until = sys.argv[2:]
        Reader(path, notes, int(number)).run(Path(until))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--retention-bytes", type=int, default=0, help="0 keeps everything")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = draw_seed() if given.seed is None else given.seed
    settings = Settings(given.producers, given.lanes, "adaptive", "force", 0, given.retention_bytes)
    with tempfile.TemporaryDirectory() as folder:
        compared = run(Path(folder) / "store", settings, given.kills, seed, verbose=True)
    print(f"{given.kills} kills, {compared} messages given to {READERS} readers: all there, none harmed, none hung")


if __name__ == "__main__":
    main()
