"""The scaling of bulk reads by Spark: with the workers of one machine, and, calculated, with more nodes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...pipeline import borrowed_session
from ...store import MessageStore, plan_scan
from ...testing import TunedConfig
from ..report.record import Chapter, Chart, Measure
from ..workload.checker import WrongResult
from ..workload.contest import Sizes, Workload
from ..workload.filling import fill
from ..workload.settings import prewritten
from .parts import Count, Part, measured
from .spark_options import Options, noop, stored
from .spark_reads import COLUMNS, WITHOUT_DATA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS = (1, 2, 4, 8)
PARTS = (1, 2, 4, 8)  # of the stores; the last one is read by all numbers of workers, the others by 8
MOST = PARTS[-1]
STORED_PARTS = sum(PARTS)
SMALLER = 16  # parts of the same store, for what a task costs
ROW_BYTES = 40  # of a row without data
GIB = 1 << 30
# The calculated cluster.
NODES, NODE_CORES, NODE_BYTES_PER_S, CLUSTER_BYTES = 100, 8, 1e9, 100 * 10**12
CLUSTER = f"{CLUSTER_BYTES // 10**12} TB on {NODES} nodes of {NODE_CORES} cores that read 1 GB/s each, calculated"


def chapter(options: Options) -> Chapter:
    """Reads by workers and by parts, the costs of one worker, and the calculation."""
    with options.run.stage("filling the stores"):
        rows = {parts: _filled(options, parts) for parts in PARTS}
    found: dict[str, Measure] = {}
    for workers in WORKERS:
        with borrowed_session(f"local[{workers}]") as spark:
            _checked(spark, options, rows[MOST])
            parts = [_read(spark, options, f"scale.workers.{workers}", f"{workers} workers, {MOST} parts", MOST, rows)]
            if workers == max(WORKERS):
                parts += [
                    _read(spark, options, f"scale.parts.{few}", f"{workers} workers, {few} parts", few, rows)
                    for few in PARTS[:-1]
                ]
            if workers == 1:
                parts += _task_parts(spark, options)
            found |= measured(parts, options.repeat, options.run)
    measures = (*found.values(), *calculated(costs_of(options, found)))
    return Chapter(
        title="Spark reads by more workers",
        text="Local mode, one session for each number of workers, whose first read is not counted. A cluster is "
        "calculated: segments and parts of 1 GiB; a core costs what one here does, and planning is one process's.",
        measures=measures,
        charts=(chart(found),),
    )


def chart(found: Mapping[str, Measure]) -> Chart:
    """MB/s by workers."""
    return Chart(
        title="Spark reads by workers",
        x_what="workers",
        y_what="MB/s",
        x=tuple(map(float, WORKERS)),
        lines={"payload": tuple(found[f"scale.workers.{workers}.mb_per_s"].value for workers in WORKERS)},
        meaning="A line that doubles with the workers scales; it ends at the CPUs of this machine.",
    )


def _store(options: Options, parts: int) -> Path:
    return options.base / f"parts-{parts}"


def _small_part(options: Options) -> int:
    return max(4096, ROW_BYTES * MOST * options.part_bytes // options.message_bytes // SMALLER)


def _filled(options: Options, parts: int) -> int:
    """Fill a store that a read cuts into so many parts. Returns its number of messages."""
    work = Workload(options.seed, Sizes(options.message_bytes, options.message_bytes), queues=options.queues)
    size = parts * options.part_bytes
    with MessageStore.open(_store(options, parts), TunedConfig(**prewritten(size))) as store:
        return fill(store, work, size)


def _checked(spark: SparkSession, options: Options, count: int) -> None:
    """Make the first reads of a session, which start its workers, and check its count of messages."""
    found = stored(spark, _store(options, MOST), "offset", options.part_bytes).count()
    if found != count:
        raise WrongResult(f"{count} messages were written, and Spark read {found}")
    options.run.checked(count)
    noop(stored(spark, _store(options, MOST), COLUMNS, options.part_bytes))


def _read(spark: SparkSession, options: Options, name: str, what: str, parts: int, rows: Mapping[int, int]) -> Part:
    def work() -> None:
        noop(stored(spark, _store(options, parts), COLUMNS, options.part_bytes))

    return options.part(name, what, rows[parts], work)


def _task_parts(spark: SparkSession, options: Options) -> list[Part]:
    """Reads without data in few tasks and in many, of which only the seconds count."""
    seconds = Count(figure="seconds", what="seconds", unit="s", better="lower", meaning="tells what a task costs")

    def timed(part_bytes: int) -> Mapping[str, float | None]:
        work = partial(noop, stored(spark, _store(options, MOST), WITHOUT_DATA, part_bytes))
        return options.part("", "", 1, work).run()

    tasks = {"one": MOST * options.part_bytes, "many": _small_part(options)}
    return [
        Part(f"scale.tasks.{name}", partial(timed, size), (seconds,), f"1 worker, no data, {name} of the tasks")
        for name, size in tasks.items()
    ]


def costs_of(options: Options, found: Mapping[str, Measure]) -> dict[str, float]:
    """Seconds that one worker pays for a task, a segment of the plan, a GiB, and for a read in itself."""
    path = _store(options, MOST)
    tasks = len(plan_scan(path, part_bytes=_small_part(options), payload=False).parts)
    of_one, of_many = (found[f"scale.tasks.{name}.seconds"].value for name in ("one", "many"))
    task_s = max(0.0, of_many - of_one) / max(1, tasks - 1)
    began = time.perf_counter()
    plan = plan_scan(path)
    plan_s = time.perf_counter() - began
    segments = {(one.lane, one.sequence) for part in plan for one in part.ranges}
    payload_mb = MOST * options.part_bytes / 1e6
    seconds = payload_mb / found["scale.workers.1.mb_per_s"].value
    fixed_s = max(0.0, of_one - task_s)
    gib = sum(part.size_bytes for part in plan) / GIB
    return {
        "task": task_s, "segment": plan_s / max(1, len(segments)), "fixed": fixed_s,
        "gib": max(0.0, seconds - fixed_s - len(plan.parts) * task_s) / gib,
    }  # fmt: skip


def calculated(costs: Mapping[str, float]) -> tuple[Measure, ...]:
    """The costs of one worker, and the cluster that follows from them.

    What a task costs counts its scheduling here, where the driver shares the cores: a driver of its own must hand out
    as many tasks a second as the last figure says.
    """
    tasks = CLUSTER_BYTES / GIB
    cpu_s = tasks * (costs["task"] + costs["gib"]) / (NODES * NODE_CORES)
    device_s = CLUSTER_BYTES / (NODES * NODE_BYTES_PER_S)
    plan_s = tasks * costs["segment"] + costs["fixed"]
    told = {
        "cost.task": ("1 worker pays for a task", "s", costs["task"]),
        "cost.gib": ("1 worker pays for a GiB", "s", costs["gib"]),
        "cost.segment": ("the planner pays for a segment", "s", costs["segment"]),
        "cost.fixed": ("a read pays in itself", "s", costs["fixed"]),
        "cluster.plan": (f"{CLUSTER}: planning", "s", plan_s),
        "cluster.cpu": (f"{CLUSTER}: its processors", "s", cpu_s),
        "cluster.device": (f"{CLUSTER}: its storage", "s", device_s),
        "cluster.total": (f"{CLUSTER}: all", "s", plan_s + max(cpu_s, device_s)),
        "cluster.tasks": (f"{CLUSTER}: tasks a second", "1/s", tasks / max(cpu_s, device_s)),
    }
    return tuple(
        Measure(name=f"scale.{name}", what=what, unit=unit, values=(value,), better="neither")
        for name, (what, unit, value) in told.items()
    )
