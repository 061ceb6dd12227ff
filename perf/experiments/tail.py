"""One reader for each queue follows the appends: the layers that serve new messages (R25)."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from ...store import Message, MessageStore
from ...testing import TunedConfig
from ..machine.folders import sub_folder
from ..machine.threads import run_together
from ..machine.usage import cpu_seconds
from ..report import layers
from ..report.layers import Mark
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.contest import QueueAddress
from ..workload.memory import Memory
from .load import Load, Writer

WAIT_MS = 50
READ_MESSAGES = 512
KEEP_EVERY = 16


@dataclass
class Follower:
    """Reads one queue as it grows."""

    store: MessageStore
    address: QueueAddress
    over: threading.Event  # the writer has finished
    offset: int = 0
    waited_s: float = 0.0  # from then until it has everything
    kept: list[tuple[int, list[Message]]] = field(default_factory=list)

    def run(self) -> None:
        """Read until everything was read."""
        ended, reads = 0.0, 0
        while True:
            last = self.over.is_set()  # looked at first: nothing is written after it
            if last and not ended:
                ended = time.perf_counter()
            # A queue that has no message yet cannot be read; one that has can be waited on.
            found = self.store.read(
                *self.address, self.offset, max_messages=READ_MESSAGES, wait_ms=0 if last else WAIT_MS
            )
            if found and reads % KEEP_EVERY == 0:
                self.kept.append((self.offset, found))
            self.offset += len(found)
            reads += 1
            if last and not found:
                self.waited_s = time.perf_counter() - ended
                return

    def compare(self, data: bytes) -> int:
        """Compare the kept results. Returns the number of messages."""
        for offset, messages in self.kept:
            for index, message in enumerate(messages):
                if message.offset != offset + index or message.data != data:
                    raise WrongResult(f"{self.address}: what came at offset {offset + index} is not what was written")
        return sum(len(messages) for _, messages in self.kept)


def follow_tail(base: Path, load: Load, memory: Memory, run: Run) -> dict[str, float | None]:
    """One window of paced appends, every queue read by a thread of its own until it has everything."""
    with sub_folder(base, "tail") as folder:
        with MessageStore.open(folder, load.config(memory, base)) as store:
            writer, over = Writer(store, load), threading.Event()
            followers = [Follower(store, address, over) for address in load.addresses]

            def write() -> None:
                try:
                    writer.run()
                finally:
                    over.set()

            before, cpu_0 = Mark.now(store), cpu_seconds()
            run_together([write, *(follower.run for follower in followers)])
            served, cpu_s = layers.served(before, Mark.now(store)), cpu_seconds() - cpu_0
        read = sum(follower.offset for follower in followers)
        if read != writer.messages:
            raise WrongResult(f"the readers got {read:,} of {writer.messages:,} messages")
        run.checked(sum(follower.compare(load.written) for follower in followers))
        with MessageStore.open(folder, TunedConfig(recent_bytes=0)) as store:
            run.checked(load.check_store(store, [0] * load.queues))
    waited_ms = max(follower.waited_s for follower in followers) * 1e3
    rates = {"written_per_s": writer.messages / writer.seconds, "caught_up_ms": waited_ms, "cpu_s": cpu_s}
    return {**rates, **{f"served.{name}": value for name, value in served.items()}}
