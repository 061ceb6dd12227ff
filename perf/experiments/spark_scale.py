"""The scaling of bulk reads by Spark: with the workers of one machine, and, calculated, with more nodes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console

from ...pipeline import borrowed_session
from ...store import MessageStore, plan_scan
from ...testing import TunedConfig
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.contest import Sizes, Workload
from ..workload.filling import fill
from ..workload.settings import prewritten, space_bytes
from .experiment import Experiment, queues, repeats, setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS = (1, 2, 4, 8)
PARTS = (1, 2, 4)  # for 8 workers
COLUMNS = "topic,queue_id,offset,timestamp,data"
WITHOUT_DATA = "topic,queue_id,offset,timestamp"
GIB = 1 << 30
SMALLER = 16  # parts of the same store, for what a task costs


@dataclass(frozen=True, kw_only=True)
class SparkScale(Experiment):
    """Bulk reads by 1, 2, 4 and 8 local workers, of stores of some parts; and what a cluster would take, calculated."""

    NAME: ClassVar[str] = "sparkscale"
    METHOD: ClassVar[str] = (
        "local mode, each read to the sink noop, files in the page cache as far as it has room; one session for each "
        "number of workers, the first read of each is not counted"
    )

    part_bytes: int = setting(64 << 20, "bytes per partition", short=1 << 20, least=4096, option="partition")
    message_bytes: int = setting(8192, "bytes per message", short=1024, least=16, option="message")
    queues: int = queues(default=100, short=10)
    repeat: int = repeats()
    limit_s: int = setting(90, "seconds; later on, each read is done once", least=1, option="limit")
    nodes: int = setting(100, "nodes of the calculated cluster", least=1)
    node_cores: int = setting(8, "cores of each node", least=1)
    node_mb_per_s: int = setting(1000, "what a node reads from its storage, MB/s", least=1)
    cluster_bytes: int = setting(100 * 10**12, "what the calculated cluster reads", least=1, option="cluster-size")

    def need_bytes(self) -> float:
        """The space of stores of 1, 2, 4 and 8 parts."""
        return 15 * space_bytes(self.part_bytes)

    def measure(self, base: Path, run: Run) -> Figures:
        """Seconds by workers and parts, the costs that follow, and the calculation."""
        with run.stage("filling the stores"):
            counts = {parts: self._filled(base, parts) for parts in (*PARTS, max(WORKERS))}
        run.expect(len(WORKERS) + len(PARTS) + 1)
        most, scale, small = max(WORKERS), {}, {}
        for workers in WORKERS:
            with borrowed_session(f"local[{workers}]") as spark:
                self._checked(spark, base, most, counts[most], run)
                scale[workers] = self._median(spark, base, most, run)
                if workers == most:
                    small = {parts: self._median(spark, base, parts, run) for parts in PARTS}
                if workers == 1:
                    costs = self._costs(spark, base, scale[1], run)
        size = counts[most] * self.message_bytes
        rows = [
            {"workers": workers, "seconds": found, "mb_per_s": size / found / 1e6, "speed_up": scale[1] / found}
            for workers, found in scale.items()
        ]
        of_parts = [
            {"parts": parts, "seconds": found, "mb_per_s": counts[parts] * self.message_bytes / found / 1e6}
            for parts, found in small.items()
        ]
        return {"workers": rows, "parts": of_parts, "costs": costs, "cluster": self._cluster(costs)}

    def _filled(self, base: Path, parts: int) -> int:
        """Fill a store that a read cuts into so many parts. Returns its number of messages."""
        work = Workload(self.seed, Sizes(self.message_bytes, self.message_bytes), queues=self.queues)
        size = parts * self.part_bytes
        with MessageStore.open(base / str(parts), TunedConfig(**prewritten(size))) as store:
            return fill(store, work, size)

    def _checked(self, spark: SparkSession, base: Path, parts: int, count: int, run: Run) -> None:
        """Make the first read of a session, which starts its workers, and check its count of messages."""
        found = spark.read.format("stratalog").options(columns="offset").load(str(base / str(parts))).count()
        if found != count:
            raise WrongResult(f"{count} messages were written, and Spark read {found}")
        run.checked(count)
        self._read(spark, base, parts, self.part_bytes)

    def _read(self, spark: SparkSession, base: Path, parts: int, part_bytes: int, columns: str = COLUMNS) -> float:
        began = time.perf_counter()
        read = spark.read.format("stratalog").options(columns=columns, partition_bytes=part_bytes)
        read.load(str(base / str(parts))).write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    def _rounds(self, run: Run) -> Iterator[int]:
        """Run the wanted number of rounds, or those that there is time for."""
        done = 0
        while not done or (done < self.repeat and run.seconds < self.limit_s):
            yield done
            done += 1
        run.rounds = done if run.rounds is None else min(run.rounds, done)
        run.one_done()

    def _median(self, spark: SparkSession, base: Path, parts: int, run: Run) -> float:
        return statistics.median(self._read(spark, base, parts, self.part_bytes) for _ in self._rounds(run))

    def _costs(self, spark: SparkSession, base: Path, seconds: float, run: Run) -> Figures:
        """The costs of a task, a GiB and a segment for one worker."""
        most, few, many = max(WORKERS), [], []
        path = str(base / str(most))
        part = max(4096, 40 * most * self.part_bytes // self.message_bytes // SMALLER)  # 40 bytes a row without data
        for _ in self._rounds(run):
            few.append(self._read(spark, base, most, most * self.part_bytes, WITHOUT_DATA))
            many.append(self._read(spark, base, most, part, WITHOUT_DATA))
        tasks = len(plan_scan(path, part_bytes=part, payload=False).parts)
        of_many, of_few = statistics.median(many), statistics.median(few)
        task_s = max(0.0, of_many - of_few) / max(1, tasks - 1)
        began = time.perf_counter()
        plan = plan_scan(path)
        plan_s = time.perf_counter() - began
        segments = {(one.lane, one.sequence) for part in plan for one in part.ranges}
        gib = sum(part.size_bytes for part in plan) / GIB
        fixed_s = max(0.0, of_few - task_s)
        return {
            "task_s": task_s, "fixed_s": fixed_s, "plan_s_a_segment": plan_s / max(1, len(segments)),
            "read_s_a_gib": max(0.0, seconds - fixed_s - len(plan.parts) * task_s) / gib,
        }  # fmt: skip

    def _cluster(self, costs: Figures) -> Figures:
        """By calculation: segments and parts of 1 GiB; a core costs what one here does, and planning is one process's.

        Nodes read at `node_mb_per_s`, while their cores work. What a task costs counts its scheduling here, where the
        driver shares the cores: a driver of its own must hand out as many tasks a second as the last figure says.
        """
        tasks = self.cluster_bytes / GIB
        cores = self.nodes * self.node_cores
        cpu_s = tasks * (costs["task_s"] + costs["read_s_a_gib"]) / cores
        device_s = self.cluster_bytes / (self.nodes * self.node_mb_per_s * 1e6)
        plan_s = tasks * costs["plan_s_a_segment"] + costs["fixed_s"]
        total_s = plan_s + max(cpu_s, device_s)
        return {
            "tasks": tasks, "plan_s": plan_s, "cpu_s": cpu_s, "device_s": device_s, "total_s": total_s,
            "tasks_per_s": tasks / max(cpu_s, device_s, 1e-9),
        }  # fmt: skip

    def show(self, figures: Figures, console: Console) -> None:
        """A row for each number of workers and of parts; the costs; the cluster."""
        shown = {"seconds": "seconds", "MB/s": "mb_per_s"}
        title = f"{max(WORKERS)} parts by some workers"
        columns = {"workers": "workers", **shown, "speed-up": "speed_up"}
        console.print(report.table(title, report.chosen(figures["workers"], columns)))
        title = f"some parts by {max(WORKERS)} workers"
        console.print(report.table(title, report.chosen(figures["parts"], {"parts": "parts", **shown})))
        console.print(report.pairs("what one worker pays", figures["costs"]))
        size = f"{self.cluster_bytes / 1e12:,.0f} TB on {self.nodes} nodes of {self.node_cores} cores, calculated"
        console.print(report.pairs(size, figures["cluster"]))
