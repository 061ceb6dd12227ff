"""The two experiments of R25: tail read and catch-up read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from ..report.layers import LAYERS
from ..report.progress import Run
from ..report.record import Chapter
from ..report.words import sentence
from ..workload.latencies import Latencies
from ..workload.memory import Memory
from ..workload.settings import space_bytes
from .catchup import ALONE, COLD, READ_AHEAD, backlog
from .experiment import repeats, setting
from .load import Load
from .parts import Count, Part, latencies, measured, of
from .reported import Reported, Study
from .tail import follow_tail

WRITTEN = Count(figure="written_per_s", what="appends", unit="msg/s", better="neither",
                meaning="at the pace that --write asks for, if the store keeps up")  # fmt: skip
CPU = Count(figure="cpu_s", what="processor time", unit="s", better="lower")


def _served(*layers: str) -> tuple[Count, ...]:
    return tuple(
        Count(figure=f"served.{layer}.percent", what=f"reads served by {LAYERS[layer]}", unit="%", better="neither",
              meaning="of the messages that were read")
        for layer in layers
    )  # fmt: skip


DEVICE = (
    Count(figure="served.device_reads", what="reads of the device", unit="", better="lower"),
    Count(figure="served.device_mb", what="read from the device", unit="MB", better="lower"),
)
TAIL = (
    WRITTEN,
    Count(figure="served.messages", what="messages read", unit="", better="neither"),
    Count(figure="caught_up_ms", what="from the last append until the last reader has all", unit="ms", better="lower"),
    *_served("ring", "off-heap", "read cache", "device"), *DEVICE, CPU,
)  # fmt: skip
CATCHUP = (
    Count(figure="written_per_s", what="appends", unit="msg/s", beside=f"catchup.{ALONE}.written_per_s",
          beside_what="without a reader", beside_is_store=True,
          meaning="1.00: the reader costs the writers nothing"),
    *latencies("a call that appends waits", "calls come at a fixed rate; counted from when a call was due"),
    Count(figure="read_per_s", what="reads", unit="msg/s", meaning="at the pace that --read asks for"),
    *_served("ring", "read cache", "device"), *DEVICE, CPU,
)  # fmt: skip
WAYS = {
    ALONE: "no reader", COLD: "a reader without a read cache", READ_AHEAD: "a reader with a read cache",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TailCatchup(Reported):
    """Tail and catch-up reads: which layer serves them, and what they cost the writers."""

    NAME: ClassVar[str] = "tail_catchup"
    TITLE: ClassVar[str] = "Tail and catch-up reads beside appends"
    METHOD: ClassVar[str] = "calls of 330 messages, each timed from the moment when it was due"

    write: int = setting(33_000, "messages appended per second; 0: as many as possible", short=3_000, least=0)
    read: int = setting(5_000, "messages per second of the catch-up reader", short=1_000, least=1)
    message_bytes: int = setting(1045, "bytes per message", least=16, option="size")
    queues: int = setting(4, "queues", least=1)
    backlog_bytes: int = setting(1 << 30, "payload written before the first window", short=2 << 20)
    seconds: float = setting(4.0, "seconds per window", short=0.3, least=0)
    warm_messages: int = setting(2000, "messages of each queue that are read before a window", short=100, least=0)
    read_cache_bytes: int = setting(64 << 20, "bytes of the read cache", short=4 << 20)
    tail_cache_bytes: int = setting(64 << 20, "bytes of the message cache", short=4 << 20)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of the backlog and of the windows."""
        return space_bytes(self.backlog_bytes)

    def study(self, base: Path, run: Run) -> Study:
        """Windows by turns: the readers at the tail, and the three ways of catching up."""
        Latencies()  # raises before the work if its package is missing
        load = Load(
            self.write, self.read, self.message_bytes, self.queues, self.backlog_bytes, self.seconds,
            self.warm_messages, self.seed, self.read_cache_bytes,
        )  # fmt: skip
        memory = Memory(limit_bytes=0, off_heap_bytes=self.tail_cache_bytes, read_cache_bytes=self.read_cache_bytes)
        with backlog(base, load, run) as windows:
            parts = [
                Part("tail", partial(follow_tail, base, load, memory, run), TAIL),
                *(Part(f"catchup.{name}", windows[name], CATCHUP, what) for name, what in WAYS.items()),
            ]
            found = measured(parts, self.repeat, run)
        tail = Chapter(
            title="Readers at the tail",
            measures=of(found, "tail."),
            text="A thread reads each queue as it grows. New messages should all be in the ring.",
        )
        behind = Chapter(
            title="A reader that catches up",
            measures=of(found, "catchup."),
            text="It reads a backlog from a cold page cache beside appends at a fixed rate.",
        )
        ring, writers = found["tail.served.ring.percent"], found[f"catchup.{READ_AHEAD}.written_per_s"]
        return Study(summary=(sentence(ring), sentence(writers)), chapters=(tail, behind))
