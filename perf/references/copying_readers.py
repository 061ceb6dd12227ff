"""Readers in other processes without a store: they copy messages out of shared memory and hash them, nothing else.

They take each message at the pace at which a writer appends it, in shares as readers of a store do, and pause as these
do. So the writer's rate beside them shows the effect of the processors alone, without a store's readers.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import xxhash

from ..workload.reader_processes import Share

MESSAGES_BYTES = 32 << 20  # of memory, used in a circle: as much as a store shares with its readers


@dataclass(frozen=True)
class Shared:
    """The memory of the readers: for each producer a word with its number of appended messages, and then messages.

    Attributes:
        path: by which other processes open it.
        producers: how many words there are.
        message_bytes: of each message.
    """

    path: Path
    producers: int
    message_bytes: int

    @property
    def begin(self) -> int:
        """The position of the messages, in bytes."""
        return -(-8 * self.producers // mmap.PAGESIZE) * mmap.PAGESIZE

    @property
    def held(self) -> int:
        """The number of messages that have room."""
        return MESSAGES_BYTES // self.message_bytes


@contextmanager
def shared_messages(data: bytes, producers: int) -> Iterator[tuple[Shared, memoryview]]:
    """Memory full of a message, and its words, which the producers count up. It goes with the block and the readers."""
    descriptor = os.memfd_create("stratalog-perf")
    shared = Shared(Path(f"/proc/{os.getpid()}/fd/{descriptor}"), producers, len(data))
    try:
        os.ftruncate(descriptor, shared.begin + MESSAGES_BYTES)
        with mmap.mmap(descriptor, 0) as memory:
            memory.seek(shared.begin)
            memory.write(data * shared.held)
            with memoryview(memory) as whole, whole[: 8 * producers].cast("Q") as counts:
                yield shared, counts
    finally:
        os.close(descriptor)


def copy_and_hash(pipe: Connection, shared: Shared, share: Share) -> None:
    """Take a share of what the producers append from now on, until it has all up to a number that it is told; send how
    many it took, and how many there were up to that at least."""
    with shared.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        begun = taken = len(range(share.first, _appended(memory, shared), share.count))
        pipe.send("ready")
        end = -1
        while end < 0 or taken < end:
            found = _take(memory, shared, share, taken)
            taken += found
            if found < share.few:
                time.sleep(share.pause_s)
            if pipe.poll():
                end = len(range(share.first, pipe.recv(), share.count))
    pipe.send((taken - begun, end - begun))


def _appended(memory: mmap.mmap, shared: Shared) -> int:
    return sum(memoryview(memory)[: 8 * shared.producers].cast("Q"))


def _take(memory: mmap.mmap, shared: Shared, share: Share, taken: int) -> int:
    """Copy and hash the messages, up to the memory's end. Returns their number."""
    appended = _appended(memory, shared)
    first, size = share.first + taken * share.count, shared.message_bytes
    at = first % shared.held
    numbers = range(at, min(at + appended - first, shared.held), share.count)
    places = range(shared.begin + at * size, shared.begin + numbers.stop * size, share.count * size)
    datas = [memory[place : place + size] for place in places]
    return len([*map(xxhash.xxh3_64_intdigest, datas)])
