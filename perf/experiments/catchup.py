"""Writes beside a reader that catches up with a backlog, with and without a read cache, and beside none (R25)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path

from ...store import MessageStore
from ...testing import TunedConfig
from ..machine.folders import drop_page_cache, sub_folder
from ..machine.threads import run_together
from ..machine.usage import cpu_seconds
from ..report import layers
from ..report.layers import Mark
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.comparing import check_payloads
from ..workload.latencies import Latencies
from ..workload.memory import Memory
from .load import Load, Writer

FETCH_MESSAGES = 100
RECENT_BYTES = 8 << 20
ALONE, COLD, READ_AHEAD = READERS = ("alone", "cold", "read_ahead")


@dataclass
class Reader:
    """Reads the backlog's queues in turn, at a given rate."""

    store: MessageStore
    load: Load
    next_offset: list[int]
    ends: list[int]
    messages: int = 0
    kept: list[tuple[int, int, dict[int, bytes]]] = field(default_factory=list)

    def warm_up(self) -> None:
        """Read some of each queue, as fast as possible."""
        for queue in range(len(self.ends)):
            until = min(self.ends[queue], self.next_offset[queue] + self.load.warm_messages)
            while self.next_offset[queue] < until:
                self._fetch(queue)
        self.messages = 0

    def run(self, over: threading.Event) -> None:
        """Read queue after queue, until the writer has finished."""
        began, queues, per_s = time.perf_counter(), cycle(range(len(self.ends))), self.load.read_per_s
        while not over.wait(max(0.0, began + self.messages / per_s - time.perf_counter())):
            queue = next(queues)
            if self.next_offset[queue] >= self.ends[queue]:
                raise WrongResult("the backlog came to its end: make it larger, or the window shorter")
            self._fetch(queue)

    def _fetch(self, queue: int) -> None:
        offset = self.next_offset[queue]
        count = min(FETCH_MESSAGES, self.ends[queue] - offset)
        found = self.store.get_range(*self.load.addresses[queue], offset, count)
        if len(found) != count:
            raise WrongResult(f"queue {queue}: {len(found)} of {count} messages came from offset {offset}")
        self.kept.append((queue, offset, found))
        self.next_offset[queue] = offset + count
        self.messages += count

    def compare(self) -> int:
        """Compare all read messages. Returns their number."""
        content = self.load.content
        return sum(check_payloads(content, queue, offset, found.values()) for queue, offset, found in self.kept)


@contextmanager
def backlog(base: Path, load: Load, run: Run) -> Iterator[dict[str, Callable[[], dict[str, float | None]]]]:
    """A filled store, and for each of READERS a window on it. A window goes on where the last of its kind stopped. At
    the end every message of the store is compared."""
    with sub_folder(base, "catchup") as folder:
        home = folder / "store"
        with MessageStore.open(home, TunedConfig(recent_bytes=0)) as store:
            ends = load.fill(store)
        yield {name: partial(_window, home, load, ends, [0] * load.queues, name, run) for name in READERS}
        with MessageStore.open(home, TunedConfig(recent_bytes=0)) as store:
            run.checked(load.check_store(store, ends))


def _window(home: Path, load: Load, ends: list[int], places: list[int], name: str, run: Run) -> dict[str, float | None]:
    """One opening of the store: writes for `window_s`, and reads beside them unless there is no reader."""
    cache_bytes = load.read_cache_bytes if name == READ_AHEAD else 0
    memory = Memory(limit_bytes=0, recent_bytes=RECENT_BYTES, read_cache_bytes=cache_bytes)
    drop_page_cache(home)
    with MessageStore.open(home, load.config(memory, home)) as store:
        writer, over = Writer(store, load), threading.Event()
        reader = Reader(store, load, places, ends)
        jobs: list[Callable[[], None]] = [writer.run]
        if name != ALONE:
            reader.warm_up()
            jobs.append(partial(reader.run, over))
        before, cpu_0 = Mark.now(store), cpu_seconds()
        run_together(jobs, finished=over.set)
        cpu_s, after = cpu_seconds() - cpu_0, Mark.now(store)
    run.checked(reader.compare())
    taken = Latencies()
    taken.add(writer.latencies_ns)
    found: dict[str, float | None] = {
        "written_per_s": writer.messages / writer.seconds, "cpu_s": cpu_s,
        "calls": taken.count, **taken.marks_us(),
    }  # fmt: skip
    if name == ALONE:
        return found
    served = {f"served.{name}": value for name, value in layers.served(before, after).items()}
    return {**found, "read_per_s": reader.messages / writer.seconds, **served}
