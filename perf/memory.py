"""Metadata a message: on disk, in the queue tables of open and of sealed segments, and of the process."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from perf import report
from perf.folders import bytes_of, sub_folder
from perf.progress import Parts
from perf.report import Figures
from perf.workload import Sizes, Workload
from store import MessageStore, StoreConfig, inspect_folder

BATCH_MESSAGES = 10_000
SAMPLE_BATCHES = 20


def run(
    base: Path,
    *,
    messages: int,
    size_bytes: int,
    queues: int,
    seed: int = 2021,
    parts: Parts,
) -> Figures:
    """Bytes a message. The open tables are sampled during the run, when they hold most."""
    work = Workload(seed, Sizes(size_bytes, size_bytes), 1, min(100, queues), queues)
    data = work.content.make(0, 0, size_bytes)
    rng = np.random.default_rng([seed, 4])
    # One list of items is reused, so that the process's growth is the store's.
    drawn = rng.integers(0, len(work.addresses), BATCH_MESSAGES).tolist()
    items = [(*work.addresses[queue], data) for queue in drawn]
    fullest: Figures = {"open_bytes": 0, "open_messages": 0}
    began = time.perf_counter()
    with sub_folder(base, "memory") as folder:
        with MessageStore.open(folder, config=StoreConfig()) as store:
            parts.expect(math.ceil(messages / BATCH_MESSAGES))
            rss_before = report.resident_bytes()
            for index, first in enumerate(range(0, messages, BATCH_MESSAGES)):
                store.append_batch(items[: messages - first])
                if index % SAMPLE_BATCHES == 0:
                    tables = store.stats()["queue_tables"]
                    fullest = max(fullest, tables, key=lambda sample: int(sample["open_messages"]))
                parts.one_done()
            stats, rss_after = store.stats(), report.resident_bytes()
        append_s = time.perf_counter() - began
        disk = _on_disk(inspect_folder(folder), stats["log"]["padding_bytes"], messages, messages * size_bytes)
        folder_bytes = bytes_of(folder)
    return {
        "messages": messages,
        "size_bytes": size_bytes,
        "seed": seed,
        **disk,
        **_in_memory(stats["queue_tables"], fullest),
        "rss_growth_bytes_per_message": (rss_after - rss_before) / messages,
        "rss_growth_mb": (rss_after - rss_before) / 1e6,
        "folder_mb": folder_bytes / 1e6,
        "append_s": append_s,
        "stats": stats,
    }


def _on_disk(folder: Figures, padding_bytes: int, messages: int, payload_bytes: int) -> Figures:
    """What the closed store's segments hold beside the payloads: all bytes that were written to them, footers too;
    not the space that is only pre-written."""
    segments = [row for lane in folder["lanes"] for row in lane["segments"] if row["state"] != "spare"]
    log_bytes = sum(row["data_end"] for row in segments)
    footer_bytes = sum(row["footer_bytes"] for row in segments)
    frames_bytes = log_bytes - payload_bytes - padding_bytes
    return {
        "disk_bytes_per_message": (log_bytes + footer_bytes - payload_bytes) / messages,
        "disk_padding_bytes_per_message": padding_bytes / messages,
        "disk_frames_bytes_per_message": frames_bytes / messages,  # headers and columns
        "disk_footers_bytes_per_message": footer_bytes / messages,
        "disk_metadata_bytes_per_message": (frames_bytes + footer_bytes) / messages,
        "frames": sum(row["frames"] for row in segments),
        "segments": len(segments),
    }


def _in_memory(tables: Figures, fullest: Figures) -> Figures:
    sealed = tables["sealed_messages"]
    return {
        "open_table_bytes_per_message": fullest["open_bytes"] / max(1, fullest["open_messages"]),
        "open_table_messages": fullest["open_messages"],
        "sealed_table_bytes_per_message": tables["sealed_bytes"] / sealed if sealed else None,
        "sealed_table_messages": sealed,
    }


def show(figures: Figures, console: Console) -> None:
    """One line a figure."""
    console.print(
        report.pairs(
            f"{figures['messages']:,} messages of {figures['size_bytes']} B",
            {name: value for name, value in figures.items() if name != "stats"},
        )
    )
