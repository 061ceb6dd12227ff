"""Metadata of a message: on disk, in the queue tables of open and of sealed segments, and of the process."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...store import MessageStore, StoreConfig, inspect_folder
from ...testing import TunedConfig
from ..machine.folders import bytes_of, sub_folder
from ..machine.usage import resident_bytes
from ..report.progress import NOWHERE, Run
from ..report.record import Chapter
from ..report.words import sentence
from ..workload.checker import WrongResult
from ..workload.contest import Sizes, Workload
from ..workload.settings import space_bytes
from .experiment import queues, setting
from .parts import Count, Part, measured
from .reported import Reported, Study

BATCH_MESSAGES = 10_000
SAMPLE_BATCHES = 20


def _count(figure: str, what: str, meaning: str = "", unit: str = "B") -> Count:
    return Count(figure=figure, what=what, unit=unit, better="lower", meaning=meaning)


COUNTS = (
    _count("disk.metadata", "metadata of a message on disk", "frames' heads and columns, and footers"),
    _count("disk.frames", "in the log"),
    _count("disk.footers", "in footers"),
    _count("disk.padding", "padding of blocks", "the rest of blocks of 4 KiB"),
    _count("disk.all", "all of it beside the payload"),
    _count("open_table", "a message of the open segment in memory", "looked at where the tables hold most"),
    _count("sealed_table", "a message of sealed segments in memory"),
    _count("process", "growth of the process, a message"),
    _count("segments", "segments", unit=""),
    _count("folder_mb", "the folder", unit="MB"),
    _count("append_s", "appending all, with opening and closing", unit="s"),
)


@dataclass(frozen=True, kw_only=True)
class Memory(Reported):
    """Bytes of metadata per message, on disk and in memory."""

    NAME: ClassVar[str] = "memory"
    TITLE: ClassVar[str] = "Bytes of metadata a message"
    METHOD: ClassVar[str] = "one run; the open tables are looked at every 200,000 messages, where they hold most"

    messages: int = setting(10_000_000, "messages", short=20_000, least=1)
    message_bytes: int = setting(100, "bytes per message", least=16, option="size")
    queues: int = queues()

    def need_bytes(self) -> float:
        """The space of the store."""
        return space_bytes(self.messages * self.message_bytes)

    def study(self, base: Path, run: Run) -> Study:
        """Bytes for each message."""
        found = measured([Part("memory", partial(self._once, base, run), COUNTS)], 1, Run(self.NAME, NOWHERE))
        title = f"{self.messages:,} messages of {self.message_bytes} B"
        chapter = Chapter(title=title, text="Appended in batches, then closed.", measures=tuple(found.values()))
        names = ("memory.disk.metadata", "memory.open_table")
        return Study(summary=tuple(sentence(found[name]) for name in names), chapters=(chapter,))

    def _once(self, base: Path, run: Run) -> dict[str, float | None]:
        sizes = Sizes(self.message_bytes, self.message_bytes)
        work = Workload(self.seed, sizes, queues=self.queues)
        data = work.content.make(0, 0, self.message_bytes)
        drawn = np.random.default_rng([self.seed, 4]).integers(0, len(work.addresses), BATCH_MESSAGES)
        # One list of items is used for all batches, so the process's growth is the store's.
        items = [(*work.addresses[queue], data) for queue in drawn.tolist()]
        fullest: dict[str, int] = {"open_bytes": 0, "open_messages": 0}
        run.expect(math.ceil(self.messages / BATCH_MESSAGES))
        with sub_folder(base, "memory") as folder:
            began = time.perf_counter()
            with MessageStore.open(folder, config=StoreConfig()) as store:
                rss_before = resident_bytes()
                for index, first in enumerate(range(0, self.messages, BATCH_MESSAGES)):
                    store.append_batch(items[: self.messages - first])
                    if index % SAMPLE_BATCHES == 0:
                        now = store.stats()["queue_tables"]
                        held = {"open_bytes": now["open_bytes"], "open_messages": now["open_messages"]}
                        fullest = max(fullest, held, key=lambda sample: sample["open_messages"])
                    run.one_done()
                stats, rss_after = store.stats(), resident_bytes()
            append_s = time.perf_counter() - began
            disk = _on_disk(inspect_folder(folder), stats["log"]["padding_bytes"], self.messages, self.message_bytes)
            folder_bytes, tables = bytes_of(folder), stats["queue_tables"]
            run.checked(compare(folder, work, drawn.tolist(), self.messages, data))
        sealed = tables["sealed_messages"]
        return {
            **disk,
            "open_table": fullest["open_bytes"] / max(1, fullest["open_messages"]),
            "sealed_table": tables["sealed_bytes"] / sealed if sealed else None,
            "process": (rss_after - rss_before) / self.messages,
            "folder_mb": folder_bytes / 1e6,
            "append_s": append_s,
        }


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


def _on_disk(folder: dict[str, Any], padding_bytes: int, messages: int, message_bytes: int) -> dict[str, float]:
    """The bytes of a closed store's segments beside the payloads: all that were written to them, footers too;
    not the space that is only pre-written."""
    segments = [row for lane in folder["lanes"] for row in lane["segments"] if row["state"] != "spare"]
    log_bytes = sum(row["data_end"] for row in segments)
    footer_bytes = sum(row["footer_bytes"] for row in segments)
    frames_bytes = log_bytes - messages * message_bytes - padding_bytes
    return {
        "disk.all": (log_bytes + footer_bytes) / messages - message_bytes,
        "disk.padding": padding_bytes / messages,
        "disk.frames": frames_bytes / messages,
        "disk.footers": footer_bytes / messages,
        "disk.metadata": (frames_bytes + footer_bytes) / messages,
        "segments": len(segments),
    }
