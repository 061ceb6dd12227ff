"""Recovery time against unsealed bytes (a process died) and against the store's size (closed cleanly);
R10."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from perf import report
from perf.fill import check_store, fill, fill_and_die
from perf.folders import drop_page_cache, files_of, sub_folder
from perf.rawfile import read_sequential, round_up
from perf.report import Figures
from perf.workload import Sizes, Workload
from store import MessageStore, StoreConfig

SEGMENT_BYTES_MAX = (1 << 32) - (1 << 21)


def _scan_ms(recovery: Figures) -> float:
    """The scan's milliseconds; the whole opening's, in which it lies, where the store doesn't tell them
    apart."""
    return float(recovery["scan_ms" if "scan_ms" in recovery else "open_ms"])


def unsealed_row(base: Path, size_bytes: int, sizes: Sizes, seed: int, queues: int) -> Figures:
    """A child appends `size_bytes` into one large segment and dies; then a cold open, beside the raw read of
    the same folder."""
    work = Workload(seed, sizes, 1, min(100, queues), queues)
    segment = min(SEGMENT_BYTES_MAX, round_up(size_bytes * 5 // 4 + (1 << 20)))
    with sub_folder(base, "crashed") as folder:
        fill_and_die(folder, work, size_bytes, {"segment_bytes": segment, "prewrite_bytes": segment})
        files = sorted(files_of(folder), key=lambda path: path.stat().st_size, reverse=True)
        drop_page_cache(folder)
        began = time.perf_counter()
        raw_bytes = read_sequential(files, size_bytes)
        raw_s = time.perf_counter() - began
        drop_page_cache(folder)
        began = time.perf_counter()
        with MessageStore.open(folder, config=StoreConfig(segment_bytes=segment)) as store:
            open_s = time.perf_counter() - began
            recovery = store.stats()["recovery"]
            check_store(store, work)
    scan_ms = _scan_ms(recovery)
    scan_mb_per_s = recovery["scanned_bytes"] / max(scan_ms, 1e-3) / 1e3
    return {
        "unsealed_mb": recovery["scanned_bytes"] / 1e6,
        "messages": int(work.written.sum()),
        "open_s": open_s,
        "scan_ms": scan_ms,
        "scan_mb_per_s": scan_mb_per_s,
        "raw_read_mb_per_s": raw_bytes / raw_s / 1e6,
        "scan_ratio": scan_mb_per_s / (raw_bytes / raw_s / 1e6),
    }


def sealed_rows(
    base: Path, steps_bytes: Sequence[int], sizes: Sizes, seed: int, queues: int
) -> list[Figures]:
    """One store that grows to each of the sizes and is closed cleanly; a cold open after each."""
    work = Workload(seed, sizes, 1, min(100, queues), queues)
    rows, total = [], 0
    with sub_folder(base, "sealed") as folder:
        for size_bytes in steps_bytes:
            with MessageStore.open(folder) as store:
                fill(store, work, size_bytes - total)
            total = size_bytes
            drop_page_cache(folder)
            began = time.perf_counter()
            with MessageStore.open(folder) as store:
                open_s = time.perf_counter() - began
                stats = store.stats()
                check_store(store, work)
            rows.append(
                {
                    "store_mb": total / 1e6,
                    "messages": int(work.written.sum()),
                    "open_s": open_s,
                    "sealed_segments": stats["segments"]["sealed"],
                    "scanned_mb": stats["recovery"]["scanned_bytes"] / 1e6,
                    "scan_ms": _scan_ms(stats["recovery"]),
                }
            )
    return rows


def run(
    base: Path,
    *,
    unsealed_bytes: Sequence[int],
    store_bytes: Sequence[int],
    repeat: int,
    seed: int = 2021,
    queues: int = 20_000,
    tick: Callable[[], None] = lambda: None,
) -> Figures:
    """Medians of `repeat` rounds of both tables; contest sizes and, for the scan, 100-byte messages too."""
    rounds, sealed = [], []
    for _ in range(repeat):
        rows = []
        for name in ("contest", "100"):
            for size in unsealed_bytes:
                rows.append({"sizes": name, **unsealed_row(base, size, Sizes.parse(name), seed, queues)})
                tick()
        rounds.append(rows)
        sealed.append(sealed_rows(base, store_bytes, Sizes.parse("contest"), seed, queues))
        tick()
    return {
        "seed": seed,
        "repeat": repeat,
        "unsealed": report.median_rows(rounds),
        "sealed": report.median_rows(sealed),
    }


def show(figures: Figures, console: Console) -> None:
    """Both tables."""
    console.print(report.table("opening after the process died, cold page cache", figures["unsealed"]))
    console.print(report.table("opening after a clean close, cold page cache", figures["sealed"]))
