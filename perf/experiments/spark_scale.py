"""Bulk reads by Spark with 1, 2, 4 and 8 local workers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ...pipeline import borrowed_session
from ..report.record import Chapter, Chart, Measure
from ..workload.checker import WrongResult
from .parts import measured
from .spark_options import Options, filled, noop, stored, warm_up
from .spark_reads import COLUMNS

WORKERS = (1, 2, 4, 8)


def chapter(options: Options) -> Chapter:
    """One session for each number of workers. Raises WrongResult if one of them counts other rows than were written."""
    store = options.base / "scale"
    with options.run.stage("filling the store"):
        count = filled(options, store)
    found: dict[str, Measure] = {}
    for workers in WORKERS:
        with borrowed_session(f"local[{workers}]") as spark:
            read = stored(spark, store, COLUMNS, options.part_bytes)
            if read.count() != count:
                raise WrongResult(f"{count} messages were written, and {workers} workers read {read.count()}")
            options.run.counted(count)
            warm_up([partial(noop, read)])  # it starts the workers, too
            part = options.part(f"scale.{workers}", f"{workers} workers read a store", count, partial(noop, read))
            found |= measured([part], options.repeat, options.run)
    return Chapter(
        title="Spark reads by more workers",
        text=f"{count:,} messages of {options.message_bytes:,} B in parts of {options.part_bytes >> 10:,} KiB. One "
        "session for each number of workers, whose first read is not counted.",
        measures=tuple(found.values()),
        charts=(chart(found),),
    )


def chart(found: Mapping[str, Measure]) -> Chart:
    """MB/s by workers."""
    return Chart(
        title="Spark reads by workers",
        x_what="workers",
        y_what="MB/s",
        x=tuple(map(float, WORKERS)),
        lines={"payload": tuple(found[f"scale.{workers}.mb_per_s"].value for workers in WORKERS)},
        meaning="A line that doubles with the workers scales; it ends at the CPUs of this machine.",
    )
