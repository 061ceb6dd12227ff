"""Spark's Python processes collect garbage behind each call: modules are spared."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from stratalog.pipeline import datasource, sink, source
from stratalog.pipeline.workers import settle

from .stores import make_store

SEEN = """
import gc, sys
sys.modules["__main__"].__spec__ = type("Spec", (), {"name": NAME})
from stratalog.pipeline import workers
workers.settle()
first = gc.get_freeze_count()
kept = [[] for _ in range(10_000)]
workers.settle()
again = gc.get_freeze_count()
import wave
workers.settle()
print(first > 1_000, again == first, gc.get_freeze_count() > again)
"""


@pytest.mark.parametrize(
    ("name", "frozen"), [("pyspark.daemon", True), ("pyspark.sql.worker.commit", True), ("x", False)]
)
def test_process_of_spark_is_settled_once_and_again_with_new_modules(name: str, frozen: bool) -> None:
    code = SEEN.replace("NAME", repr(name))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(frozen), "True", str(frozen)]


READ = """
import sys
from stratalog.pipeline import arrow, schema
from stratalog.store import plan_scan, read_part
names = ["topic", "queue_id", "offset", "timestamp", "data", "store"]
wanted = schema.pa.schema([(name, schema.ARROW_TYPES[name]) for name in names])
for part in plan_scan(sys.argv[1]):
    rows = [arrow.record_batch(batch, wanted, "s").num_rows for batch in arrow.joined(read_part(part))]
print(sum(rows), "pandas" in sys.modules)
"""


def test_worker_that_reads_does_not_import_pandas(tmp_path: Path) -> None:
    make_store(tmp_path, 1, 100)
    done = subprocess.run([sys.executable, "-c", READ, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["100", "False"]


def test_program_that_plans_by_itself_is_not_settled() -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before


def test_plans_tasks_and_commits_settle_their_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()
    for module in (datasource, sink, source):
        monkeypatch.setattr(module, "settle", lambda name=module.__name__: made.append(name.rpartition(".")[2]))
    make_store(tmp_path, 1, 100)
    given = datasource.StratalogSource({"path": str(tmp_path), "columns": "topic,queue_id,data"})
    assert given.schema()
    schema = StructType(
        [StructField("topic", StringType()), StructField("queue_id", IntegerType()), StructField("data", BinaryType())]
    )
    reader = given.reader(schema)
    assert made == ["datasource", "datasource"]
    rows = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert made.count("source") == len(reader.partitions())
    writer = given_sink(tmp_path, schema)
    writer.commit([writer.write(iter(rows))])
    assert made.count("sink") == 2


def given_sink(path: Path, schema: StructType) -> sink.BatchSink:
    """A write to a store."""
    return datasource.StratalogSource({"path": str(path)}).writer(schema, overwrite=False)
