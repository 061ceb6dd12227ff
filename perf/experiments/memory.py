"""Metadata of a message: on disk, in the queue tables of open and of sealed segments, and of the process."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from rich.console import Console

from ...store import MessageStore, StoreConfig, inspect_folder
from ...testing import TunedConfig
from ..machine.folders import bytes_of, sub_folder
from ..machine.usage import resident_bytes
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.contest import Sizes, Workload
from ..workload.settings import space_bytes
from .experiment import Experiment, queues, setting

BATCH_MESSAGES = 10_000
SAMPLE_BATCHES = 20


@dataclass(frozen=True, kw_only=True)
class Memory(Experiment):
    """Bytes of metadata per message, on disk and in memory."""

    NAME: ClassVar[str] = "memory"
    METHOD: ClassVar[str] = "one run; the open tables are looked at every 200,000 messages, where they hold most"

    messages: int = setting(10_000_000, "messages", short=20_000, least=1)
    message_bytes: int = setting(100, "bytes per message", least=16, option="size")
    queues: int = queues()

    def need_bytes(self) -> float:
        """The space of the store."""
        return space_bytes(self.messages * self.message_bytes)

    def measure(self, base: Path, run: Run) -> Figures:
        """Bytes for each message."""
        sizes = Sizes(self.message_bytes, self.message_bytes)
        work = Workload(self.seed, sizes, queues=self.queues)
        data = work.content.make(0, 0, self.message_bytes)
        drawn = np.random.default_rng([self.seed, 4]).integers(0, len(work.addresses), BATCH_MESSAGES)
        # One list of items is used for all batches, so the process's growth is the store's.
        items = [(*work.addresses[queue], data) for queue in drawn.tolist()]
        fullest: Figures = {"open_bytes": 0, "open_messages": 0}
        run.expect(math.ceil(self.messages / BATCH_MESSAGES))
        with sub_folder(base, "memory") as folder:
            began = time.perf_counter()
            with MessageStore.open(folder, config=StoreConfig()) as store:
                rss_before = resident_bytes()
                for index, first in enumerate(range(0, self.messages, BATCH_MESSAGES)):
                    store.append_batch(items[: self.messages - first])
                    if index % SAMPLE_BATCHES == 0:
                        tables: Figures = {**store.stats()["queue_tables"]}
                        fullest = max(fullest, tables, key=lambda sample: int(sample["open_messages"]))
                    run.one_done()
                stats, rss_after = store.stats(), resident_bytes()
            append_s = time.perf_counter() - began
            disk = _on_disk(inspect_folder(folder), stats["log"]["padding_bytes"], self.messages, self.message_bytes)
            folder_bytes = bytes_of(folder)
            run.checked(compare(folder, work, drawn.tolist(), self.messages, data))
        return {
            **disk,
            **_in_memory({**stats["queue_tables"]}, fullest),
            "rss_growth_bytes_per_message": (rss_after - rss_before) / self.messages,
            "rss_growth_mb": (rss_after - rss_before) / 1e6,
            "folder_mb": folder_bytes / 1e6,
            "append_s": append_s,
            "stats": stats,
        }

    def show(self, figures: Figures, console: Console) -> None:
        """Show one line for each figure."""
        title = f"{figures['config']['messages']:,} messages of {figures['config']['message_bytes']} B"
        hidden = ("stats", "config", "how", "checked_messages")
        console.print(report.pairs(title, {name: figures[name] for name in figures if name not in hidden}))


def compare(folder: Path, work: Workload, drawn: list[int], messages: int, data: bytes) -> int:
    """Read the closed store in log order and compare every message: queue, offset and bytes. Returns their number."""
    next_offset, at, expected = [0] * len(work.addresses), 0, np.frombuffer(data, np.uint8)
    with MessageStore.open(folder, config=TunedConfig(recent_bytes=0)) as store:
        for batch in store.scan():
            names, offsets = batch.stream_names, batch.offsets.tolist()
            for index, offset in zip(batch.stream_index.tolist(), offsets, strict=True):
                queue = drawn[at % BATCH_MESSAGES]
                if tuple(names[index]) != work.addresses[queue] or offset != next_offset[queue]:
                    raise WrongResult(f"message {at} of the log is {names[index]}, offset {offset}")
                next_offset[queue] = offset + 1
                at += 1
            payload = np.frombuffer(b"".join(batch.payloads()), np.uint8)
            if len(payload) != len(batch) * len(data) or (payload.reshape(-1, len(data)) != expected).any():
                raise WrongResult(f"a message before number {at} of the log has other bytes than were written")
    if at != messages:
        raise WrongResult(f"the scan found {at} of {messages} messages")
    return at


def _on_disk(folder: Figures, padding_bytes: int, messages: int, message_bytes: int) -> Figures:
    """The bytes of a closed store's segments beside the payloads: all that were written to them, footers too;
    not the space that is only pre-written."""
    segments = [row for lane in folder["lanes"] for row in lane["segments"] if row["state"] != "spare"]
    log_bytes = sum(row["data_end"] for row in segments)
    footer_bytes = sum(row["footer_bytes"] for row in segments)
    frames_bytes = log_bytes - messages * message_bytes - padding_bytes
    return {
        "disk_bytes_per_message": (log_bytes + footer_bytes) / messages - message_bytes,
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
