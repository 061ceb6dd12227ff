"""A row of a table: a fresh store, one appending phase, its figures, and every message compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...store import MessageStore
from ...testing import TunedConfig
from ..machine.folders import sub_folder
from ..machine.threads import on_cpus
from ..machine.usage import cpu_seconds
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.comparing import check_folder
from ..workload.contest import CONTEST_QUEUES, Sizes, Workload
from ..workload.filling import check_offsets
from ..workload.phases import Api, Drive, append_phase
from ..workload.producers import BATCH_MESSAGES, Track
from ..workload.settings import prewritten
from .amplification import amplification

PREWRITE_PART = 1.3
BLOCKING_MESSAGES_PER_S = 5_000
BLOCKING_MESSAGES_PER_S_MAX = 45_000


@dataclass(frozen=True)
class Cell:
    """The run of a row. `settings` goes to StoreConfig unchanged; the labels only go to the table."""

    labels: Mapping[str, object]
    sizes: Sizes
    size_bytes: int
    threads: int = 1
    api: Api = "blocking"
    prewrite: bool = True
    cpus: int | None = None  # None: all
    seed: int = 2021
    queues: int = CONTEST_QUEUES
    batch_messages: int = BATCH_MESSAGES
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The labels in a word."""
        return " ".join(map(str, self.labels.values()))


def blocking_bytes(threads: int, sizes: Sizes, seconds: float) -> int:
    """Payload bytes that blocking producers append in about `seconds`: 5,000 msg/s with one, 40,000 with 40."""
    rate = min(BLOCKING_MESSAGES_PER_S_MAX, BLOCKING_MESSAGES_PER_S * threads**0.6)
    return int(rate * sizes.mean * seconds)


def run_cell(base: Path, cell: Cell, run: Run, look: Callable[[MessageStore], Figures] = lambda _store: {}) -> Figures:
    """The labels; rates (MB = 10^6 bytes of payload), latency; written bytes; the time with opening and closing.

    `look` gets the store right after the last append; its figures are added.
    """
    drive = Drive(cell.api, batch_messages=cell.batch_messages)
    work = Workload(cell.seed, cell.sizes, drive.producers(cell.threads), cell.queues)
    tracks = [Track(plan) for plan in work.plan(cell.size_bytes)]
    ahead = prewritten(cell.size_bytes * PREWRITE_PART, cell.settings)
    settings = ahead if cell.prewrite else {**cell.settings, "segment_bytes": ahead["segment_bytes"]}
    with sub_folder(base, "cell") as folder:
        began = time.perf_counter()
        with on_cpus(cell.cpus), MessageStore.open(folder, config=TunedConfig(**settings)) as store:
            open_s, cpu_0 = time.perf_counter() - began, cpu_seconds()
            phase = append_phase(store, work, tracks, drive)
            cpu_s, log, looked = cpu_seconds() - cpu_0, store.stats()["log"], look(store)
            began = time.perf_counter()
        close_s = time.perf_counter() - began
        check_offsets(tracks)
        written = amplification(log, phase.bytes, folder)
        run.checked(check_folder(folder, work))
    figures = phase.as_dict()
    total_s = open_s + phase.seconds + close_s
    return {
        **cell.labels,
        "messages_per_s": figures["messages_per_s"],
        "mb_per_s": figures["mb_per_s"],
        "mb_per_s_with_open_and_close": phase.bytes / total_s / 1e6,
        **written,
        "cpu_us_per_message": cpu_s / phase.messages * 1e6,
        "held_requests": log["held_requests"],
        "forces": log["forces"],
        "mean_batch": log["messages"] / max(1, log["forces"]),
        "mean_write_kib": log["written_bytes"] / max(1, log["writes"]) / 1024,
        **{f"{name}_us": mark for name, mark in figures["latency_us"].items()},
        "open_s": open_s,
        "append_s": phase.seconds,
        "close_s": close_s,
        **looked,
    }
