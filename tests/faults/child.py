"""The process that has to live with a fault: it appends, tells of each answer and of each error, and reads back.

`python -m tests.faults.child ORDER ..` with an `Order` as JSON, or several: one life after the other. Each line of its
output is a JSON object, written at once: {"told": [[queue, offset, seed, length], ..]}, {"error": [stage, name of the
class, text]}, {"end": poisoned}. Only errors of the store's own are reported; any other one ends the child with a
traceback, and the test with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from stratalog.store import MessageStore, StoreError
from stratalog.store.testing import TunedConfig
from tests.store.helpers import PATIENCE_S, payload

TOPIC = "faults"
QUEUE_COUNT = 4
NOBODY = 65534
AGAIN = 3  # appends that are tried once one has failed
APIS = ("append", "submit", "append_batch", "append_async")

Told = tuple[int, int, int, int]  # queue, offset, seed of the payload, its length


@dataclass
class Order:
    """What the child has to do.

    Attributes:
        path: the store's folder.
        config: arguments of `StoreConfig`.
        messages: how many to append, in all.
        prepared: so many of them before the limits below are set.
        largest: bytes of the largest message.
        api: one of `APIS`.
        file_bytes: RLIMIT_FSIZE, or None; a write beyond it is short, or fails with EFBIG.
        descriptors: RLIMIT_NOFILE, or None.
        short_writes: let every third write of a file be short, as a signal or a full disk may make it.
        forbid: take the right to make files in the store's folders away.
        abandon: end without a close, as if killed.
        seed: of sizes, queues and payloads.
    """

    path: str
    config: dict[str, Any] = field(default_factory=dict)
    messages: int = 60
    prepared: int = 0
    largest: int = 4000
    api: str = "append"
    file_bytes: int | None = None
    descriptors: int | None = None
    short_writes: bool = False
    forbid: bool = False
    abandon: bool = False
    seed: int = 1

    def as_json(self) -> str:
        """As the child's argument."""
        return json.dumps(asdict(self))


def say(**what: Any) -> None:
    """One write of less than PIPE_BUF bytes past every buffer: what was said before a kill has been said."""
    os.write(1, json.dumps(what).encode() + b"\n")


def complain(stage: str, error: StoreError) -> None:
    """Tell of an error of the store's."""
    say(error=[stage, type(error).__name__, str(error)])


class Child:
    """Carries out an order."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.chance = random.Random(order.seed)
        self.told: list[Told] = []

    def run(self) -> None:
        """From opening to closing; every stage may meet the fault."""
        order = self.order
        try:
            store = MessageStore.open(order.path, TunedConfig(**order.config))
        except StoreError as error:
            complain("open", error)
            say(end=False)
            return
        if self.append(store, order.prepared):
            self.set_limits(store)
            if not self.append(store, order.messages - order.prepared):
                for _ in range(AGAIN):
                    self.append(store, 1, "again")
        self.read_back(store)
        try:
            store.flush()
        except StoreError as error:
            complain("flush", error)
        poisoned = store.stats()["poisoned"] is not None
        if order.abandon:
            say(end=poisoned)
            os._exit(0)
        try:
            store.close()
        except StoreError as error:
            complain("close", error)
        say(end=poisoned)

    def set_limits(self, store: MessageStore) -> None:
        """Let the fault begin, where it is one that a process can bring upon itself."""
        if self.order.file_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.order.file_bytes, resource.RLIM_INFINITY))
        if self.order.descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.order.descriptors, self.order.descriptors))
        if self.order.short_writes:
            shorten_writes()
        if self.order.forbid:
            # A segment that is being made would stay with the files' former owner.
            with store._upkeep.spares_of(0).making:
                forbid(Path(self.order.path))

    def append(self, store: MessageStore, count: int, stage: str = "append") -> bool:
        """Append messages, a few a call where the call takes more than one; False once one has failed."""
        while count > 0:
            size = min(count, 1 if self.order.api == "append" else self.chance.randrange(1, 12))
            rows = [self.message() for _ in range(size)]
            try:
                offsets = answers_of(store, self.order.api, [(queue, data) for queue, _, data in rows])
            except StoreError as error:
                complain(stage, error)
                return False
            told = [(queue, offset, seed, len(data)) for (queue, seed, data), offset in zip(rows, offsets, strict=True)]
            self.told += told
            say(told=told)
            count -= size
        return True

    def message(self) -> tuple[int, int, bytes]:
        """A queue, a seed and its payload."""
        seed = self.chance.getrandbits(63)
        return self.chance.randrange(QUEUE_COUNT), seed, payload(seed, self.chance.randrange(self.order.largest))

    def read_back(self, store: MessageStore) -> None:
        """What was acknowledged can be read, whatever has failed."""
        try:
            for queue, offset, seed, length in self.told:
                (message,) = store.read(TOPIC, queue, offset, max_messages=1)
                assert message.data == payload(seed, length), f"queue {queue}, offset {offset} has other bytes"
        except StoreError as error:
            complain("read", error)


def answers_of(store: MessageStore, api: str, rows: Sequence[tuple[int, bytes]]) -> list[int]:
    """Append by one of the four ways; the offsets. Raises the first error."""
    if api == "append":
        return [store.append(TOPIC, queue, data) for queue, data in rows]
    if api == "submit":
        tickets = [store.submit(TOPIC, queue, data) for queue, data in rows]
        return [ticket.result(PATIENCE_S) for ticket in tickets]
    if api == "append_batch":
        return list(map(int, store.append_batch([(TOPIC, queue, data) for queue, data in rows])))

    async def together() -> list[int]:
        return await asyncio.gather(*(store.append_async(TOPIC, queue, data) for queue, data in rows))

    return asyncio.run(together())


def forbid(path: Path) -> None:
    """Make the folders read-only; root, who may write everywhere, becomes the files' owner of no privilege."""
    folders = [path, *(child for child in path.iterdir() if child.is_dir())]
    if os.geteuid() == 0:
        for name in [path, *path.rglob("*")]:
            os.chown(name, NOBODY, NOBODY)
    for folder in folders:
        folder.chmod(0o500)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)


def shorten_writes() -> None:
    """Every third write takes half of its blocks, or nothing, as the kernel may always do."""
    whole, calls = os.pwritev, [0]

    def short(descriptor: int, parts: Sequence[memoryview], position: int, flags: int = 0) -> int:
        calls[0] += 1
        if calls[0] % 3:
            return whole(descriptor, parts, position, flags)
        first = memoryview(parts[0])
        half = len(first) // 2 & -4096  # whole blocks of the same memory: O_DIRECT takes nothing else
        return whole(descriptor, [first[:half]], position, flags) if half else 0

    mock.patch.object(os, "pwritev", short).start()  # for the rest of this process


def main() -> None:
    """The child. Each order but the last is carried out by a fork, so that its limits hold for no other."""
    *others, last = [Order(**json.loads(given)) for given in sys.argv[1:]]
    for order in others:
        child = os.fork()
        if not child:
            Child(order).run()
            return
        if status := os.waitpid(child, 0)[1]:
            sys.exit(f"ended with {status}: {order}")
    Child(last).run()


if __name__ == "__main__":
    main()
