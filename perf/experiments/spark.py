"""Spark: bulk reads and writes beside bare Arrow files and beside Parquet; reads with more workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from ..machine.folders import sub_folder
from ..report.progress import Run
from ..report.words import sentence
from ..workload.settings import space_bytes
from . import spark_reads, spark_scale, spark_writes
from .experiment import queues, repeats, setting
from .reported import Reported, Study
from .spark_options import Options

CHAPTERS = {"reads": spark_reads.chapter, "writes": spark_writes.chapter, "scale": spark_scale.chapter}


@dataclass(frozen=True, kw_only=True)
class Spark(Reported):
    """Bulk reads and writes by Spark, beside bare Arrow files and uncompressed Parquet; and by more workers."""

    NAME: ClassVar[str] = "spark"
    TITLE: ClassVar[str] = "Spark on a store"
    METHOD: ClassVar[str] = (
        "local mode; files are in the page cache as far as it has room; reads go to the sink noop; each way runs "
        "three times before the clock starts; tasks of the bare source and sink are as prompt as ours"
    )

    size_bytes: int = setting(1 << 30, "payload that is read, and written", short=1 << 20, least=1 << 16)
    message_bytes: int = setting(8192, "bytes per message", short=500, least=16, option="message")
    cores: int = setting(2, "tasks at a time", least=1)
    part_bytes: int = setting(128 << 20, "bytes per partition", short=200 << 10, least=4096, option="partition")
    queues: int = queues(default=100, short=10)
    only: str = setting("", f"chapters whose name has this: {', '.join(CHAPTERS)}", short="")
    repeat: int = repeats()

    def __post_init__(self) -> None:
        Reported.__post_init__(self)
        if not any(self.only in name for name in CHAPTERS):
            raise ValueError(f"--only: no chapter has {self.only!r} in its name")

    def need_bytes(self) -> float:
        """The space of a store, Arrow files and Parquet."""
        return 3 * space_bytes(self.size_bytes)

    def study(self, base: Path, run: Run) -> Study:
        """The chapters that `only` names."""
        options = Options(
            base=base, run=run, seed=self.seed, size_bytes=self.size_bytes, message_bytes=self.message_bytes,
            cores=self.cores, part_bytes=self.part_bytes, queues=self.queues, repeat=self.repeat,
        )  # fmt: skip
        chapters = []
        for name, make in CHAPTERS.items():
            if self.only in name:
                with sub_folder(base, name) as folder:
                    chapters.append(make(replace(options, base=folder)))
        return Study(summary=tuple(sentence(one.measures[0]) for one in chapters), chapters=tuple(chapters))
