"""Makes footers and delayed indexes that closed stores have lost again from their logs, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ...store import InParts, rebuild_store
from ..options import paths_of, store_folders
from ..progress import unwrapped
from .part_source import Paths, paths_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_A_CORE = 8  # a part is a segment, and some are small
Part = TypeVar("Part")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RebuiltStore:
    """The result for one store.

    Attributes:
        store: the folder.
        footers: the number of footers that were made again.
        left: a sentence for each lost footer that could not be made.
        delayed: by topic, the number of pending messages in its new index.
    """

    store: str
    footers: int
    left: list[str] = field(default_factory=list)
    delayed: dict[str, int] = field(default_factory=dict)


def rebuild(
    spark: SparkSession, paths: Paths, *, footers: bool = True, delays: bool = True, now_ms: int | None = None
) -> list[RebuiltStore]:  # fmt: skip
    """Make lost footers and the indexes of delayed messages of some closed stores again.

    Tasks read the log and compare its checksums; they write footers, and sorted runs of pending messages, into the
    store's folder `rebuild`. The driver, which holds the store's lock, checks each footer and puts it into its segment,
    and merges the runs. It rebuilds one store after another; `stratalog.store.rebuild_store` says more of each.

    Args:
        spark: the session.
        paths: folders of stores, or folders that have stores in them.
        footers, delays: False leaves these as they are.
        now_ms: ms since the epoch; messages that are due by then are not pending. None is now.

    Raises:
        StoreLocked: a process has a store open.
        StoreUnusable: a folder is no store, and has none.
        StoreCorrupt: damage hides a part of a log, or a footer that could not be made again hides messages.
        StoreUnreadable: the system refused to read or to write a file; try again.
    """
    run, done = in_tasks(spark), []
    for store in store_folders(paths_of({"path": paths_option(paths)})):
        found = rebuild_store(store, in_parts=run, footers=footers, delays=delays, now_ms=now_ms)
        done.append(RebuiltStore(str(store), found.footers, found.left, found.delayed))
    return done


def in_tasks(spark: SparkSession) -> InParts:
    """A function that calls another one with each part of some work in Spark's tasks; it raises the store's errors."""

    def run(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        if not parts:
            return []
        context = spark.sparkContext
        slices = min(len(parts), context.defaultParallelism * TASKS_A_CORE)
        with unwrapped():
            found: list[Any] = context.parallelize(parts, slices).map(work).collect()
        return found

    return run
