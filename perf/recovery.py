"""Recovery time against unsealed bytes (a process died) and against the store's size (closed cleanly);
R10."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from perf import report
from perf.fill import check_store, fill, fill_and_die
from perf.folders import drop_page_cache, files_of, sub_folder
from perf.progress import Parts
from perf.rawfile import read_sequential, round_up
from perf.report import Figures
from perf.workload import Sizes, Workload
from store import MessageStore, StoreConfig

SEGMENT_BYTES_MAX = (1 << 32) - (1 << 21)
KEPT_BEGIN_BYTES = 1 << 20


def _raw_read_s(paths: Sequence[Path], size_bytes: int) -> float:
    began = time.perf_counter()
    read_sequential(paths, size_bytes)
    return time.perf_counter() - began


class Crashed:
    """The files of a process that died, to be recovered more than once.

    Recovery changes the begin of a file and what lies behind the log. So that is kept and put back; writing a log of
    the full size anew for each round would take most of the time.
    """

    def __init__(self, folder: Path, log_bytes: int) -> None:
        self._folder = folder
        self._kept = {path: self._parts(path, log_bytes) for path in files_of(folder)}
        self.files = sorted(self._kept, key=lambda path: (-path.stat().st_size, path))

    @staticmethod
    def _parts(path: Path, log_bytes: int) -> list[tuple[int, bytes]]:
        with path.open("rb") as file:
            begin = file.read(KEPT_BEGIN_BYTES)
            file.seek(max(len(begin), log_bytes))
            return [(0, begin), (file.tell(), file.read())]

    def restore(self) -> None:
        """All files as they were."""
        for path in files_of(self._folder):
            if path not in self._kept:
                path.unlink()
        for path, parts in self._kept.items():
            with path.open("r+b") as file:
                for position, content in parts:
                    file.seek(position)
                    file.write(content)


def unsealed_row(base: Path, size_bytes: int, sizes: Sizes, seed: int, queues: int, repeat: int) -> Figures:
    """A child appends `size_bytes` into one large segment and dies; then `repeat` cold openings, their medians."""
    work = Workload(seed, sizes, 1, min(100, queues), queues)
    metadata = 40 * size_bytes // (sizes.low + sizes.high)  # a message's, with room to spare
    segment = min(SEGMENT_BYTES_MAX, round_up(size_bytes + metadata + size_bytes // 16 + (4 << 20)))
    with sub_folder(base, "crashed") as folder:
        fill_and_die(folder, work, size_bytes, {"segment_bytes": segment, "prewrite_bytes": segment})
        crashed = Crashed(folder, size_bytes)
        rows = []
        for _ in range(repeat):
            crashed.restore()
            rows.append(_recovered(folder, crashed.files, segment))
        with MessageStore.open(folder, config=StoreConfig(segment_bytes=segment)) as store:
            check_store(store, work)
    return {"messages": int(work.written.sum()), **report.median_of(rows)}


def _recovered(folder: Path, files: Sequence[Path], segment: int) -> Figures:
    """One cold opening. Beside it, before and after, a raw sequential read of the same file.

    Recovery reads all of that file to find the log's end. Opening reads as much again when the next segment stands
    ready, to be sure that it is empty.
    """
    log_bytes, folder_bytes = files[0].stat().st_size, sum(path.stat().st_size for path in files)
    drop_page_cache(folder)
    raw_before_s = _raw_read_s(files, log_bytes)
    drop_page_cache(folder)
    began = time.perf_counter()
    with MessageStore.open(folder, config=StoreConfig(segment_bytes=segment)) as store:
        open_s = time.perf_counter() - began
        recovery = store.stats()["recovery"]
    drop_page_cache(folder)
    raw_s = (raw_before_s + _raw_read_s(files, log_bytes)) / 2
    scan_s = recovery["scan_ms"] / 1e3
    return {
        "unsealed_mb": recovery["scanned_bytes"] / 1e6,
        "file_mb": log_bytes / 1e6,
        "scan_s": scan_s,
        "raw_read_s": raw_s,
        "scan_mb_per_s": log_bytes / scan_s / 1e6,
        "raw_read_mb_per_s": log_bytes / raw_s / 1e6,
        "scan_ratio": raw_s / scan_s,
        "open_s": open_s,
        "folder_mb": folder_bytes / 1e6,
        "open_ratio": raw_s / log_bytes * folder_bytes / open_s,
    }


def sealed_rows(
    base: Path, steps_bytes: Sequence[int], sizes: Sizes, seed: int, queues: int, repeat: int
) -> list[Figures]:
    """One store that grows to each of the sizes and is closed cleanly; `repeat` cold opens after each, their
    median. Beside it a raw sequential read of as many bytes as the store holds."""
    work = Workload(seed, sizes, 1, min(100, queues), queues)
    rows, total = [], 0
    with sub_folder(base, "sealed") as folder:
        for size_bytes in steps_bytes:
            with MessageStore.open(folder) as store:
                fill(store, work, size_bytes - total)
            total = size_bytes
            opens = [_open_s(folder) for _ in range(repeat)]
            drop_page_cache(folder)
            raw_s = _raw_read_s(files_of(folder), total)
            with MessageStore.open(folder) as store:
                stats = store.stats()
                check_store(store, work)
            open_s = statistics.median(opens)
            rows.append(
                {
                    "store_mb": total / 1e6,
                    "messages": int(work.written.sum()),
                    "sealed_segments": stats["segments"]["sealed"],
                    "scanned_mb": stats["recovery"]["scanned_bytes"] / 1e6,
                    "open_s": open_s,
                    "raw_read_s": raw_s,
                    "open_share_of_raw_read": open_s / raw_s,
                }
            )
    return rows


def _open_s(folder: Path) -> float:
    drop_page_cache(folder)
    began = time.perf_counter()
    with MessageStore.open(folder):
        return time.perf_counter() - began


def run(
    base: Path,
    *,
    unsealed_bytes: Sequence[int],
    store_bytes: Sequence[int],
    repeat: int,
    seed: int = 2021,
    queues: int = 20_000,
    parts: Parts,
) -> Figures:
    """Both tables, medians of `repeat` openings, contest sizes; the scan of 100-byte messages at the smallest size
    as well: making so many takes longer than all of the rest."""
    cells = [("contest", size) for size in unsealed_bytes] + [("100", unsealed_bytes[0])]
    unsealed = []
    parts.expect(len(cells) + 1)
    for name, size in cells:
        unsealed.append({"sizes": name, **unsealed_row(base, size, Sizes.parse(name), seed, queues, repeat)})
        parts.one_done()
    sealed = sealed_rows(base, store_bytes, Sizes.parse("contest"), seed, queues, repeat)
    parts.one_done()
    return {"seed": seed, "repeat": repeat, "unsealed": unsealed, "sealed": sealed}


def show(figures: Figures, console: Console) -> None:
    """Both tables."""
    console.print(report.table("opening after the process died, cold page cache", figures["unsealed"], labels=2))
    console.print(report.table("opening after a clean close, cold page cache", figures["sealed"]))
