"""`python -m tests.pipeline.rounds --rounds 60`: writes with faults on a real cluster; each row is there once.

A master and two workers run as processes on loopback, and a driver beside them. In a round, a batch or a stream is
written to a store. Drawn from the seed, one or two of these happen: tasks fail in their first attempts; finished shards
lose; a task is slow, so that another attempt is started beside it; an executor is killed; the driver is killed before
or behind the manifest; a stream's checkpoint loses its newest commit, is set back to an older one, or is lost; another
process has the store open, and appends. What was killed is run again under the same name. Behind each round the store
is compared row by row, and behind the last one the orphans are swept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from stratalog.store import MessageStore, sweep_shards, verify_folder
from tests.seeds import draw_seed
from tests.store.shards.helpers import left_in

from ..checkout import ROOT
from .cluster import Cluster
from .driver import Job

FAULTS = ("none", "fails", "lose", "slow", "executor", "kill before", "kill after", "raise before", "raise after")
STREAM_FAULTS = ("commits", "older", "lost")
MOST_TRIES = 6
HISTORY = 64  # batches of a query that a store remembers


class Driver:
    """The process that runs Spark's driver; made again when it was killed."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._log = (folder / "driver.log").open("ab")
        self._process: subprocess.Popen[str] | None = None
        self.starts = 0

    def run(self, job: Job) -> str:
        """The answer to a job; "killed" if the process has died."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(job.line())
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.stop()
        return answer or "killed"

    def _start(self) -> None:
        self.starts += 1
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        code = "import os; os.environ['DRIVER_GROUP'] = str(os.getpgid(0)); import runpy; " \
               "runpy.run_module('tests.pipeline.driver', run_name='__main__', alter_sys=True)"  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, self._url], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log, text=True, start_new_session=True, cwd=ROOT,
        )  # fmt: skip
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError("the driver does not start; see its log")

    def stop(self) -> None:
        """End it, with its JVM."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Rounds:
    """Some rounds on one store."""

    def __init__(self, folder: Path, cluster: Cluster, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.store = folder / "store"
        self.cluster = cluster
        self.driver = Driver(cluster.url, folder)
        self.wanted: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.files = 0
        MessageStore.open(self.store).close()
        (folder / "in").mkdir()

    def run(self, number: int) -> str:
        """A round; what happened in it. Raises AssertionError."""
        fault = self.chance.choice(FAULTS)
        kind = self.chance.choice(("batch", "stream"))
        job = self._batch(number) if kind == "batch" else self._stream()
        if fault in ("lose", "kill before", "kill after", "raise before", "raise after"):
            job.options |= {"fault": fault, "once": str(self.folder / f"once-{number}")}
        job.fails, job.slow_s = fault == "fails", 2.0 if fault in ("slow", "executor") else 0.0
        if self.chance.random() < 0.3:
            job.options["as_segments"] = "yes"
        live = self.chance.random() < 0.3
        lost = self.chance.choice(STREAM_FAULTS) if kind == "stream" and self.chance.random() < 0.7 else ""
        if lost and self.files < HISTORY:  # an older batch than those that are remembered fails loudly
            self._lose_checkpoint(lost)
        store = MessageStore.open(self.store) if live else None
        try:
            if fault == "executor":
                threading.Timer(self.chance.uniform(0.5, 2.5), self._kill_an_executor).start()
            tries = self._try(job, number)
            if store is not None:
                store.attach_pending()
                store.append("t", 9, f"live-{number}".encode())
                self.wanted[f"live-{number}"] += 1
        finally:
            if store is not None:
                store.close()
        self.check()
        segments = ", segments" if "as_segments" in job.options else ""
        what = f"{kind}, {fault}{', checkpoint ' + lost if lost else ''}{', store open' if live else ''}{segments}"
        self.done[fault] += 1
        return f"{what}: {tries} runs"

    def _try(self, job: Job, number: int) -> int:
        """Run a job until it is done; how often. The fault that raises or kills strikes once."""
        for tries in range(1, MOST_TRIES + 1):
            answer = self.driver.run(job)
            if answer == "done":
                return tries
            if job.options.get("fault", "").startswith("raise"):
                job.options.pop("fault")
            print(f"    round {number}, run {tries}: {answer[:160]}", flush=True)
        raise AssertionError(f"the job does not get done: {answer}")

    def _batch(self, number: int) -> Job:
        rows, label = self.chance.randrange(1, 400), f"b{number}"
        self.wanted.update(f"{label}-{at}" for at in range(rows))
        return Job("batch", str(self.store), f"load-{number}", label, rows, self.chance.randrange(1, 5))

    def _stream(self) -> Job:
        for _ in range(self.chance.randrange(1, 4)):
            rows = [f"s{self.files}-{at}" for at in range(self.chance.randrange(1, 200))]
            lines = [json.dumps({"topic": "s", "queue_id": at % 3, "data": row}) for at, row in enumerate(rows)]
            fresh = self.folder / "in" / f".{self.files:05d}.json"
            fresh.write_text("\n".join(lines))
            stamp = time.time() - 3600 + self.files  # Spark takes files by their times, and these must not be the same
            os.utime(fresh, (stamp, stamp))
            fresh.rename(fresh.with_name(fresh.name[1:]))
            self.wanted.update(rows)
            self.files += 1
        source, checkpoint = str(self.folder / "in"), str(self.folder / "checkpoint")
        return Job("stream", str(self.store), "stream", source=source, checkpoint=checkpoint)

    def _lose_checkpoint(self, how: str) -> None:
        checkpoint, older = self.folder / "checkpoint", self.folder / "older"
        if how == "commits" and (checkpoint / "commits").exists():
            newest = max(
                (int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdecimal()), default=-1
            )
            for name in (f"{newest}", f".{newest}.crc"):
                (checkpoint / "commits" / name).unlink(missing_ok=True)
        elif how == "older" and older.exists():
            shutil.rmtree(checkpoint, ignore_errors=True)
            shutil.copytree(older, checkpoint)
        elif how == "lost":
            shutil.rmtree(checkpoint, ignore_errors=True)
        if checkpoint.exists() and self.chance.random() < 0.5:
            shutil.rmtree(older, ignore_errors=True)
            shutil.copytree(checkpoint, older)

    def _kill_an_executor(self) -> None:
        executors = self.cluster.executors()
        if executors:
            self.chance.choice(executors).kill()

    def check(self) -> None:
        """Each row is there once, and no other. Raises AssertionError."""
        found: Counter[str] = Counter()
        with MessageStore.open(self.store) as store:
            for batch in store.scan():
                found.update(bytes(data).decode() for data in batch.payloads())
        assert found == self.wanted, (
            f"missing {(self.wanted - found).total()}, too many {(found - self.wanted).total()}"
        )

    def finish(self) -> None:
        """Sweep the orphans, and check the whole store."""
        self.driver.stop()
        swept = sweep_shards(self.store, older_than_s=-3600)
        left = left_in(self.store)
        assert not left, left
        assert verify_folder(self.store).damages == []
        print(f"{self.wanted.total():,} rows, each once; {len(swept)} orphans swept; drivers: {self.driver.starts}")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.rounds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    seed = draw_seed()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stratalog-rounds-") as name:
        folder = Path(name)
        with Cluster(folder) as cluster:
            rounds = Rounds(folder, cluster, seed)
            try:
                for number in range(given.rounds):
                    print(f"{number:3} {time.monotonic() - began:6.0f} s  {rounds.run(number)}", flush=True)
                rounds.finish()
            finally:
                rounds.driver.stop()
    print(f"{given.rounds} rounds in {time.monotonic() - began:,.0f} s: {dict(rounds.done)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
