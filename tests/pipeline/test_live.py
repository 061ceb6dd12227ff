"""What a live process writes arrives in another store exactly once; what threads wrote is read as it is scanned."""

from __future__ import annotations

import os
import threading
import zlib
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from stratalog.store import MessageStore
from tests.seeds import draw_seed

from .live import run
from .stores import SMALL

MESSAGES = int(os.environ.get("STRATALOG_MESSAGES", "40000"))  # 5,000,000 in the long form
THREADS = 4


def test_what_a_live_process_writes_arrives_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    """The long form is `python -m tests.pipeline.live`."""
    found = run(spark, tmp_path, seconds=1, rate=3_000, queues=5, size=100)
    assert found.written == found.arrived == 3_000


def test_rows_of_a_store_that_threads_wrote_are_those_of_a_scan(spark: SparkSession, tmp_path: Path) -> None:
    seed, each = draw_seed(), MESSAGES // THREADS
    config = SMALL if MESSAGES < 1_000_000 else None
    with MessageStore.open(tmp_path, config) as store:

        def append(number: int) -> None:
            chance = np.random.default_rng((seed, number))
            streams = [("t", queue) for queue in range(20)] + [("u", number)]
            left = each
            while left:
                count = min(left, int(chance.integers(1, 3_000)))
                lengths = chance.integers(0, 200, count)
                store.append_columns(
                    streams, chance.integers(0, len(streams), count), lengths, chance.bytes(int(lengths.sum()))
                )
                left -= count

        threads = [threading.Thread(target=append, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        scanned = _scanned(store)
    rows = spark.read.format("stratalog").load(str(tmp_path))
    table = rows.selectExpr("topic", "queue_id", "offset", "length(data) as size", "crc32(data) as sum").toArrow()
    topics = np.where(np.array(table.column("topic").to_pylist()) == "t", 0, 1)
    names = ("queue_id", "offset", "size", "sum")
    columns = [topics, *(table.column(name).to_numpy() for name in names)]
    found = np.stack([column.astype(np.int64) for column in columns], axis=1)
    found = found[np.lexsort((found[:, 2], found[:, 1], found[:, 0]))]
    assert len(found) == each * THREADS and np.array_equal(found, scanned)
    for at in np.split(found, np.flatnonzero(np.any(np.diff(found[:, :2], axis=0), axis=1)) + 1):
        assert np.array_equal(at[:, 2], np.arange(len(at)))  # offsets are dense


def _scanned(store: MessageStore) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """(messages, 5): 0 or 1 for the topic, queue id, offset, size and CRC of each, in their order."""
    parts = []
    for batch in store.scan():
        rows = []
        for at in range(len(batch)):
            data = batch.payload(at)
            place = int(batch.topic(at) == "u"), batch.queue_id(at), int(batch.offsets[at])
            rows.append((*place, len(data), zlib.crc32(data)))
        parts.append(np.array(rows, np.int64))
    found = np.concatenate(parts)
    return found[np.lexsort((found[:, 2], found[:, 1], found[:, 0]))]
