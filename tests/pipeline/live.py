"""`python -m tests.pipeline.live --seconds 60 --rate 20000`: a writer's process, a stream, and a store that it fills.

A process of its own appends messages of one size at a steady rate; each has its queue's serial number. A query reads
the store as it grows and writes to another one. In the end each message must be there exactly once, in the order of its
queue. Behind each micro-batch, the lag is how many messages are durable and not in the other store yet; it is told in
micro-batches of the size of the last one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from stratalog.pipeline import spark_session
from stratalog.store import MessageStore

TOPIC = "live"
TURN_S = 0.01
LOOK_S = 0.05
ENDED = "ended"


@dataclass
class Outcome:
    """What a run has shown. `lags`: behind each micro-batch, in micro-batches of the last one's rows."""

    written: int
    arrived: int
    batches: int
    batch_s: float
    lags: list[float] = field(default_factory=list)

    @property
    def median_lag(self) -> float:
        """Of all micro-batches but the first, which has what was written while the query started."""
        return float(np.median(self.lags[1:])) if len(self.lags) > 1 else 0.0

    @property
    def most_lag(self) -> float:
        """The same, the largest."""
        return max(self.lags[1:], default=0.0)


def write(path: Path, seconds: float, rate: int, queues: int, size: int) -> None:
    """The writer: so many messages a second, some each turn, durable one turn behind the other."""
    begin, written, total = time.monotonic(), 0, int(seconds * rate)
    streams = [(TOPIC, queue) for queue in range(queues)]
    with MessageStore.open(path) as store:
        while written < total:
            count = min(total, int((time.monotonic() - begin) * rate)) - written
            if count > 0:
                serials = np.arange(written, written + count)
                payload = np.zeros((count, size), np.uint8)
                payload[:, :8] = (serials // queues).astype("<i8").view(np.uint8).reshape(-1, 8)
                store.append_columns(streams, serials % queues, np.full(count, size), payload.tobytes())
                written += count
            time.sleep(TURN_S)  # the pace of the writer
    (path / ENDED).write_text(str(written))


def run(spark: SparkSession, base: Path, seconds: float, rate: int, *, queues: int = 16, size: int = 1024) -> Outcome:
    """Write, stream, and compare. Raises AssertionError if a message is missing, there twice, or out of order."""
    source, sink = base / "source", base / "sink"
    MessageStore.open(source).close()
    MessageStore.open(sink).close()
    given = [str(value) for value in (source, seconds, rate, queues, size)]
    writer = subprocess.Popen([sys.executable, "-m", "tests.pipeline.live", "--write", *given])
    ended = threading.Event()
    ends: list[tuple[float, int]] = []
    thread = threading.Thread(target=_watch, args=(source, ended, ends))
    thread.start()
    query = (
        spark.readStream.format("stratalog").load(str(source)).select("topic", "queue_id", "data")
        .writeStream.format("stratalog").option("checkpointLocation", str(base / "checkpoint")).start(str(sink))
    )  # fmt: skip
    try:
        assert writer.wait() == 0, "the writer failed"
        query.processAllAvailable()
        progress = [dict(one) for one in query.recentProgress if one["numInputRows"]]
    finally:
        query.stop()
        ended.set()
        thread.join()
        writer.kill()
    written = int((source / ENDED).read_text())
    outcome = Outcome(written, check(sink, written, queues), len(progress), 0.0)
    _measure(outcome, progress, ends)
    return outcome


def _watch(source: Path, ended: threading.Event, ends: list[tuple[float, int]]) -> None:
    """Note how many messages are durable, again and again, as any reader process sees it."""
    with MessageStore.open(source, read_only=True) as store:
        while not ended.wait(LOOK_S):
            queues = store.queues(TOPIC)
            ends.append((time.time(), sum(store.queue_bounds(TOPIC, queue)[1] for queue in queues)))


def _measure(outcome: Outcome, progress: list[dict[str, object]], ends: list[tuple[float, int]]) -> None:
    times, counts = np.array([at for at, _ in ends]), np.array([count for _, count in ends])
    durations, done = [], 0
    for one in progress:
        rows, millis = int(str(one["numInputRows"])), one["durationMs"]
        assert isinstance(millis, dict)
        begin_s = np.datetime64(str(one["timestamp"]).rstrip("Z"), "ms").astype(np.int64) / 1000
        durations.append(millis["triggerExecution"] / 1000)
        done += rows
        at = int(times.searchsorted(begin_s + durations[-1]))
        if len(counts):
            outcome.lags.append(max(0, int(counts[min(at, len(counts) - 1)]) - done) / rows)
    outcome.batch_s = float(np.median(durations)) if durations else 0.0


def check(sink: Path, written: int, queues: int) -> int:
    """Compare the serial numbers of each queue with 0, 1, 2 ...; how many messages there are."""
    found: dict[int, list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = {queue: [] for queue in range(queues)}
    with MessageStore.open(sink, read_only=True) as store:
        for batch in store.scan():
            for at in range(len(batch)):
                found[batch.queue_id(at)].append(np.frombuffer(bytes(batch.payload(at))[:8], "<i8"))
    for queue, serials in found.items():
        expected = np.arange((written - queue + queues - 1) // queues)
        got = np.concatenate([np.empty(0, np.int64), *serials])
        assert np.array_equal(got, expected), f"queue {queue} has {len(got)} messages, {len(expected)} were written"
    return sum(map(len, found.values()))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--write", nargs=5, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write is not None:
        path, seconds, *counts = given.write
        write(Path(path), float(seconds), *map(int, counts))
        return
    with tempfile.TemporaryDirectory(dir=given.dir) as base:
        spark = spark_session("local[2]")
        found = run(spark, Path(base), given.seconds, given.rate)
        print(json.dumps({**asdict(found), "median_lag": found.median_lag, "most_lag": found.most_lag}))
        spark.stop()


if __name__ == "__main__":
    main()
