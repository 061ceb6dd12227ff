"""Opening time against unsealed bytes (a process died) and against the store's size (closed cleanly); R10."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from ...store import MessageStore, StoreConfig
from ..machine.folders import drop_page_cache, files_of, sub_folder
from ..references.rawfile import read_sequential, round_up
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.comparing import check_store
from ..workload.contest import Sizes, Workload
from ..workload.filling import fill, fill_and_die
from ..workload.settings import space_bytes
from .experiment import Experiment, queues, repeats, setting

SEGMENT_BYTES_MAX = (1 << 32) - (1 << 21)
KEPT_BEGIN_BYTES = 1 << 20
SEALED_PARTS = (4, 2, 1)  # the closed store grows to these parts of its size


def _raw_read_s(paths: Sequence[Path], size_bytes: int) -> float:
    began = time.perf_counter()
    read_sequential(paths, size_bytes)
    return time.perf_counter() - began


class Crashed:
    """The files of a process that died; they can be recovered more than once.

    Recovery changes the beginning of a file and the bytes after the log. So these parts are kept and put back: to write
    a log of the full size for each round would take most of the time.
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
        """Put all files back as they were."""
        for path in files_of(self._folder):
            if path not in self._kept:
                path.unlink()
        for path, parts in self._kept.items():
            # A recovery removes what retention had begun to remove when the process died.
            with path.open("r+b" if path.exists() else "w+b") as file:
                for position, content in parts:
                    file.seek(position)
                    file.write(content)


@dataclass(frozen=True, kw_only=True)
class Recovery(Experiment):
    """Opening time by unsealed bytes and by the size of the store, with a cold page cache."""

    NAME: ClassVar[str] = "recovery"
    METHOD: ClassVar[str] = (
        "cold page cache; beside each opening a raw sequential read of as many bytes, before it and after it"
    )

    unsealed_bytes: int = setting(1 << 30, "largest unsealed log", short=4 << 20)
    unsealed_steps: int = setting(3, "unsealed logs, each a quarter of the next", short=1, least=1)
    size_bytes: int = setting(4 << 30, "largest closed store", short=8 << 20)
    queues: int = queues()
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of the larger of the two."""
        return space_bytes(max(self.unsealed_bytes, self.size_bytes))

    def measure(self, base: Path, run: Run) -> Figures:
        """Both tables, contest sizes; and the scan of 100-byte messages at the smallest size."""
        steps = [self.unsealed_bytes // 4**step for step in reversed(range(self.unsealed_steps))]
        cells = [("contest", size) for size in steps] + [("100", steps[0])]
        run.expect(len(cells) + len(SEALED_PARTS))
        unsealed = []
        for name, size in cells:
            unsealed.append({"sizes": name, **self._unsealed_row(base, size, Sizes.parse(name), run)})
            run.one_done()
        return {"unsealed": unsealed, "sealed": self._sealed_rows(base, run)}

    def _unsealed_row(self, base: Path, size_bytes: int, sizes: Sizes, run: Run) -> Figures:
        """A child appends `size_bytes` into one large segment and dies; then cold openings, their medians."""
        work = Workload(self.seed, sizes, queues=self.queues)
        metadata = 40 * size_bytes // (sizes.low + sizes.high)  # a message's, with room to spare
        segment = min(SEGMENT_BYTES_MAX, round_up(size_bytes + metadata + size_bytes // 16 + (4 << 20)))
        with sub_folder(base, "crashed") as folder:
            fill_and_die(folder, work, size_bytes, {"segment_bytes": segment, "prewrite_bytes": segment})
            crashed = Crashed(folder, size_bytes)
            rows = []
            for _ in range(self.repeat):
                crashed.restore()
                rows.append(_recovered(folder, crashed.files, segment))
            with MessageStore.open(folder, config=StoreConfig(segment_bytes=segment)) as store:
                run.checked(check_store(store, work))
        return {"messages": int(work.written.sum()), **report.median_of(rows)}

    def _sealed_rows(self, base: Path, run: Run) -> list[Figures]:
        """One store that grows to each of the sizes and is closed cleanly; cold openings after each, their median."""
        work = Workload(self.seed, Sizes.parse("contest"), queues=self.queues)
        rows, total = [], 0
        with sub_folder(base, "sealed") as folder:
            for size_bytes in (self.size_bytes // part for part in SEALED_PARTS):
                with MessageStore.open(folder) as store:
                    fill(store, work, size_bytes - total)
                total = size_bytes
                rows.append(_opened(folder, total, self.repeat))
                run.one_done()
            with MessageStore.open(folder) as store:
                run.checked(check_store(store, work))
        return rows

    def show(self, figures: Figures, console: Console) -> None:
        """Both tables."""
        console.print(report.table("opening after the process died, cold page cache", figures["unsealed"], labels=2))
        console.print(report.table("opening after a clean close, cold page cache", figures["sealed"]))


def _recovered(folder: Path, files: Sequence[Path], segment: int) -> Figures:
    """One cold opening; a raw sequential read of the same file before and after it.

    Recovery reads all of that file to find the log's end. An opening reads as much again if the next segment was made
    ahead, to be sure that it is empty.
    """
    log_bytes, folder_bytes = files[0].stat().st_size, sum(path.stat().st_size for path in files)
    drop_page_cache(folder)
    raw_before_s = _raw_read_s(files, log_bytes)
    open_s, recovery = _open(folder, StoreConfig(segment_bytes=segment))
    drop_page_cache(folder)
    # Without what the opening has removed: files that the dead process had no more use for.
    raw_s = (raw_before_s + _raw_read_s([path for path in files if path.exists()], log_bytes)) / 2
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


def _opened(folder: Path, total_bytes: int, repeat: int) -> Figures:
    """Cold openings of a closed store, their median; beside it a raw sequential read of as many bytes as it holds."""
    opens = [_open(folder, StoreConfig())[0] for _ in range(repeat)]
    drop_page_cache(folder)
    raw_s = _raw_read_s(files_of(folder), total_bytes)
    with MessageStore.open(folder) as store:
        stats = store.stats()
    open_s = statistics.median(opens)
    return {
        "store_mb": total_bytes / 1e6,
        "sealed_segments": stats["segments"]["sealed"],
        "scanned_mb": stats["recovery"]["scanned_bytes"] / 1e6,
        "open_s": open_s,
        "raw_read_s": raw_s,
        "open_share_of_raw_read": open_s / raw_s,
    }


def _open(folder: Path, config: StoreConfig) -> tuple[float, Figures]:
    """Seconds of a cold opening, and the figures of recovery."""
    drop_page_cache(folder)
    began = time.perf_counter()
    with MessageStore.open(folder, config=config) as store:
        seconds = time.perf_counter() - began
        return seconds, dict(store.stats()["recovery"])
