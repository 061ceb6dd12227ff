"""One cell of an ablation table: a fresh store, one appending phase, its figures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf.folders import sub_folder
from perf.phases import Api, Drive, append_phase, make_tracks
from perf.progress import Parts
from perf.report import Figures, WrongResult, median_rows
from perf.settings import prewritten
from perf.workload import CONTEST_QUEUES, CONTEST_TOPICS, Sizes, Workload
from store import MessageStore, StoreConfig

PREWRITE_PART = 1.3
BLOCKING_MESSAGES_PER_S = 5_000
BLOCKING_MESSAGES_PER_S_MAX = 45_000


@dataclass(frozen=True)
class Cell:
    """What one cell runs. `settings` goes to StoreConfig as it is; the labels only go to the table."""

    labels: Mapping[str, object]
    sizes: Sizes
    size_bytes: int
    threads: int = 1
    api: Api = "blocking"
    prewrite: bool = True
    seed: int = 2021
    topics: int = CONTEST_TOPICS
    queues: int = CONTEST_QUEUES
    settings: Mapping[str, Any] = field(default_factory=dict)


def blocking_bytes(threads: int, sizes: Sizes, seconds: float) -> int:
    """Payload bytes that blocking producers append in about `seconds` (ANCHORS: 5,000 msg/s at 1, 40,000 at
    40)."""
    rate = min(BLOCKING_MESSAGES_PER_S_MAX, BLOCKING_MESSAGES_PER_S * threads**0.6)
    return int(rate * sizes.mean * seconds)


def run_cell(base: Path, cell: Cell) -> Figures:
    """The labels, then msg/s, MB/s (10^6 bytes of payload), write amplification, held requests, forces,
    latency."""
    drive = Drive(cell.api)
    work = Workload(cell.seed, cell.sizes, drive.producers(cell.threads), cell.topics, cell.queues)
    tracks = make_tracks(work.plan(cell.size_bytes))
    ahead = prewritten(cell.size_bytes * PREWRITE_PART, cell.settings)
    settings = ahead if cell.prewrite else {**cell.settings, "segment_bytes": ahead["segment_bytes"]}
    began = time.perf_counter()
    with (
        sub_folder(base, "cell") as folder,
        MessageStore.open(folder, config=StoreConfig(**settings)) as store,
    ):
        open_s = time.perf_counter() - began
        phase = append_phase(store, work, tracks, drive)
        log = store.stats()["log"]
    if wrong := sum(track.wrong_offsets for track in tracks):
        raise WrongResult(f"{wrong} appends returned a wrong offset")
    figures = phase.as_dict()
    latency = figures["latency_us"]
    assert isinstance(latency, dict)
    return {
        **cell.labels,
        "messages_per_s": figures["messages_per_s"],
        "mb_per_s": figures["mb_per_s"],
        "write_amplification": log["written_bytes"] / phase.bytes,
        "held_requests": log["held_requests"],
        "forces": log["forces"],
        "mean_batch": log["messages"] / max(1, log["forces"]),
        "mean_write_kib": log["written_bytes"] / max(1, log["writes"]) / 1024,
        "p50_us": latency["p50"],
        "p99_us": latency["p99"],
        "open_s": open_s,
    }


def median_table(base: Path, cells: list[Cell], repeat: int, parts: Parts) -> list[Figures]:
    """Each cell's medians. The rounds go over all cells in turn, so that the machine's moods fall on all
    alike."""
    rounds = []
    for _ in range(repeat):
        rows = []
        for cell in cells:
            rows.append(run_cell(base, cell))
            parts.one_done()
        rounds.append(rows)
    return median_rows(rounds)
