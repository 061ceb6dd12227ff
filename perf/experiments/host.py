"""What a host can do: its device, its memory, its wake-ups, and the store on it, with the settings that fit."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import psutil

from ..machine.folders import check_space, sub_folder, there
from ..machine.usage import file_system_of
from ..references.device_calls import Writes
from ..report.progress import Run
from ..report.record import Chapter, Chart, Measure
from ..workload.latencies import Latencies
from ..workload.timed import BATCH_MESSAGES
from .experiment import repeats, setting
from .host_advice import HostFigures, advice, known, summary
from .host_device import FEW_SIZES, MIB, SIZES, WRITERS, device_parts, memory_parts, name_of, wake_parts
from .host_store import MESSAGE_BYTES, THREADS, TIER_ROOM, Stores, append_parts, read_parts, setting_parts
from .parts import Part, measured, of
from .reported import Reported, Study

WORK_PART = 0.6  # of a part's time: the rest opens, fills and compares
LEAST_S = 0.02
STORED, AHEAD_BYTES = 1.25, 2 << 30  # a store's bytes over its payload's; segments that four lanes write ahead
MEMORY_KINDS = frozenset({"tmpfs", "ramfs"})  # file systems
READ_MESSAGES, FEW_MESSAGES = 40_000, 512


@dataclass(frozen=True, kw_only=True)
class Host(Reported):
    """What this host can do, which StoreConfig fits it, and what each setting is worth here. Start here."""

    NAME: ClassVar[str] = "host"
    TITLE: ClassVar[str] = "What this host can do"
    WRITES_HERE: ClassVar[bool] = True
    METHOD: ClassVar[str] = (
        "each part once a round; a fresh store a part, all of its messages compared; latencies of callers that wait "
        "for each answer (a stalled caller asks for less: `bench latency` has them at a fixed rate)"
    )

    pmem: Path | None = setting(None, "a folder on persistent memory or a tmpfs, for tiers of the cache")
    minutes: float = setting(5.0, "minutes of the run, about", short=0.001, least=0)
    file_bytes: int = setting(64 << 20, "files of the device's parts, and the tiers", short=2 << 20, option="file")
    messages: int = setting(READ_MESSAGES, "messages of a store that is read", short=FEW_MESSAGES, least=256)
    repeat: int = repeats()

    def __post_init__(self) -> None:
        Reported.__post_init__(self)
        if self.pmem is not None:
            there(self.pmem)
        if self.file_bytes < MIB:
            raise ValueError(f"--file: {self.file_bytes:,} B are less than 1 MiB")

    @property
    def short(self) -> bool:
        """Whether so little is asked for that a few sizes of writes will do."""
        return self.minutes < 0.1

    @property
    def most_bytes(self) -> int:
        """A part that appends ends after so many bytes of payload: the space does not grow with the minutes."""
        return 32 << 20 if self.short else 2 << 30

    def need_bytes(self) -> float:
        """Space for the largest part: a store of what is appended or read, and segments written ahead."""
        stored = max(self.most_bytes, self.messages * MESSAGE_BYTES)
        return 2.0 * self.file_bytes + STORED * stored + (AHEAD_BYTES if not self.short else 0)

    def study(self, base: Path, run: Run) -> Study:
        """All parts by turns, then the chapters, the summary and the advice."""
        Latencies()  # raises before the work if its package is missing
        if self.pmem is None:
            return self._study(base, None, run)
        check_space(self.pmem, self.file_bytes + 2.0 * TIER_ROOM * self.messages * MESSAGE_BYTES)
        with sub_folder(self.pmem, f"{base.name}-pmem") as tier:
            return self._study(base, tier, run)

    def _study(self, base: Path, tier: Path | None, run: Run) -> Study:
        free, tier_free = (0 if one is None else shutil.disk_usage(one).free for one in (base, tier))
        memory = None if tier is None else memory_behind(tier)
        count = len(self._parts(base, tier, run, LEAST_S))
        seconds = max(LEAST_S, WORK_PART * self.minutes * 60 / (count * self.repeat))
        failed: dict[str, str] = {}
        found = measured(self._parts(base, tier, run, seconds), self.repeat, run, failed)
        told = HostFigures(found, free, self.pmem, tier_free, memory)
        shown = chapters(found, self.sizes, pmem=self.pmem is not None)
        return Study(summary=(*missing(failed), *summary(told)), chapters=shown, advice=advice(told))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of writes."""
        return FEW_SIZES if self.short else SIZES

    def _parts(self, base: Path, tier: Path | None, run: Run, seconds: float) -> list[Part]:
        stores = Stores(
            base,
            run,
            seconds,
            self.messages // BATCH_MESSAGES * BATCH_MESSAGES,
            self.seed,
            tier,
            self.file_bytes,
            self.most_bytes,
        )
        return [
            *device_parts(base, seconds, self.file_bytes, self.sizes),
            *memory_parts(base, tier, seconds, self.file_bytes // MIB * MIB),
            *wake_parts(seconds),
            *append_parts(stores),
            *read_parts(stores),
            *setting_parts(stores),
        ]


def memory_behind(folder: Path) -> int | None:
    """The bytes of memory that are available, if the folder is made of memory; None for one on a device."""
    return psutil.virtual_memory().available if file_system_of(folder) in MEMORY_KINDS else None


def missing(failed: Mapping[str, str]) -> tuple[str, ...]:
    """The first line of a report without some of its parts; nothing for a whole one."""
    parts = "; ".join(f"{name} ({why})" for name, why in failed.items())
    return (f"Missing here: rounds of these parts, which were refused: {parts}.",) if failed else ()


def chapters(found: Mapping[str, Measure], sizes: tuple[int, ...], *, pmem: bool) -> tuple[Chapter, ...]:
    """The measures by subject."""
    tier = "the last is in --pmem" if pmem else "give --pmem DIR to see persistent memory or a tmpfs beside them"
    appends = "Messages of 1 KiB in a fresh store with the default StoreConfig. Each was read again and compared."
    return (
        Chapter(
            title="Appends",
            text=appends,
            measures=of(found, "store.append", "store.async", "store.submit", "store.batch", "floor"),
            charts=known(lambda: _by_threads(found)),
        ),
        Chapter(
            title="Reads and jobs",
            text="One message a call at random places, by what has it; "
            "and a job queue in which each acknowledgement is durable.",
            measures=of(found, "store.read", "store.jobs"),
        ),
        Chapter(
            title="Settings",
            text="One setting changed, the same work by turns with the default.",
            measures=of(found, "setting"),
        ),
        Chapter(
            title="The device: forced writes",
            text="Without a store. A forced write is durable when its call returns.",
            measures=of(found, "write.forced"),
            charts=known(lambda: _by_size(found, sizes)),
        ),
        Chapter(
            title="The device: writes without a force, and reads",
            text="Without a store.",
            measures=of(found, "write.unforced", "read."),
        ),
        Chapter(title="Memory", text=f"What tiers of the cache are made of: {tier}.", measures=of(found, "memory")),
        Chapter(
            title="Wake-ups",
            text="Without a store and without a device: what waiting costs.",
            measures=of(found, "wake"),
        ),
    )


def _by_threads(found: Mapping[str, Measure]) -> Chart:
    marks = {
        "40 coroutines": found["store.async.40.per_s"].value,
        "40 threads without a store": found["floor.40.per_s"].value,
    }
    rates = tuple(found[f"store.append.{threads}.per_s"].value for threads in THREADS)
    return Chart(
        title="Durable appends by the number of waiting threads",
        x_what="threads",
        y_what="msg/s",
        log_x=True,
        marks=marks,
        x=tuple(map(float, THREADS)),
        lines={"`append`": rates},
        meaning="Threads that wait together share a force.",
    )


def _by_size(found: Mapping[str, Measure], sizes: tuple[int, ...]) -> Chart:
    ways = {f"O_DIRECT, {writers} writers": [Writes(size, writers) for size in sizes] for writers in WRITERS}
    ways["page cache, 1 writer"] = [Writes(size, direct=False) for size in sizes]
    return Chart(
        title="Forced writes by their size",
        x_what="KiB",
        y_what="MB/s",
        log_x=True,
        log_y=True,
        x=tuple(size / 1024 for size in sizes),
        meaning="Where a line is flat, the device is full.",
        lines={way: tuple(found[f"{name_of(one)}.mb_per_s"].value for one in writes) for way, writes in ways.items()},
    )
