"""What the chapters of `spark` share: the options, and the counts of a way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...store import MessageStore
from ...testing import TunedConfig
from ..report.progress import Run
from ..workload.contest import Sizes, Workload
from ..workload.filling import fill
from ..workload.settings import prewritten
from .parts import Count, Part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM_UP = 3  # runs of each way before the clock starts: until the JVM has compiled it


@dataclass(frozen=True, kw_only=True)
class Options:
    """A folder for stores and files, and the options of the command."""

    base: Path
    run: Run
    seed: int
    size_bytes: int
    message_bytes: int
    cores: int
    part_bytes: int
    queues: int
    repeat: int

    def part(
        self, name: str, what: str, rows: int, work: Callable[[], object], *, after: Callable[[], object] = int,
        beside: tuple[str, str] = ("", ""), mb_beside: tuple[str, str] = ("", ""),
    ) -> Part:  # fmt: skip
        """A way whose rows and MB a second count, each beside a figure of these words. `after` is not timed."""
        counts = (
            Count(figure="rows_per_s", what="rows", unit="1/s", beside=beside[0], beside_what=beside[1]),
            Count(figure="mb_per_s", what="payload", unit="MB/s", beside=mb_beside[0], beside_what=mb_beside[1]),
        )

        def run() -> dict[str, float]:
            began = time.perf_counter()
            work()
            seconds = time.perf_counter() - began
            after()
            return {"rows_per_s": rows / seconds, "mb_per_s": rows * self.message_bytes / seconds / 1e6}

        return Part(name, run, counts, what)


def filled(options: Options, path: Path) -> int:
    """Fill a store. Returns its number of messages."""
    work = Workload(options.seed, Sizes(options.message_bytes, options.message_bytes), queues=options.queues)
    with MessageStore.open(path, TunedConfig(**prewritten(options.size_bytes))) as store:
        return fill(store, work, options.size_bytes)


def noop(frame: Any) -> None:
    """Run a query, and throw its rows away."""
    frame.write.format("noop").mode("overwrite").save()


def stored(spark: SparkSession, path: Path, columns: str, part_bytes: int) -> Any:
    """The rows of a store."""
    read = spark.read.format("stratalog").options(columns=columns, partition_bytes=part_bytes)
    return read.load(str(path))


def warm_up(ways: Sequence[Callable[[], object]]) -> None:
    """Run each way some times. Not counted."""
    for way in WARM_UP * list(ways):
        way()
