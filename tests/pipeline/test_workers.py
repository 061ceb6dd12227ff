"""Spark's Python processes: their garbage collection spares modules, and they acknowledge what arrives at once."""

from __future__ import annotations

import gc
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from stratalog.pipeline import datasource, sink, source, stream, workers
from stratalog.pipeline.jobs import part_source
from stratalog.pipeline.workers import Prompt, acknowledge, settle

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
    assert gc.get_freeze_count() <= before  # what was frozen may end meanwhile


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


# -- what arrives is acknowledged ---------------------------------------------------------------------

UNACKED = slice(24, 28)  # of the kernel's struct tcp_info: tcpi_unacked
linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such call")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection on loopback that has been used to and fro, so that acknowledgements wait for something to send."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            for _ in range(40):
                for sender, receiver in ((one, other), (other, one)):
                    sender.sendall(b"x")
                    assert receiver.recv(1) == b"x"
            yield one, other


def unacknowledged(sender: socket.socket) -> int:
    """How many packets of what was sent the other end has not acknowledged."""
    return int.from_bytes(sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[UNACKED], sys.byteorder)


@linux
def test_what_has_arrived_is_acknowledged_at_once(ends: tuple[socket.socket, socket.socket]) -> None:
    """Each time: the kernel goes back to its own ways behind some packets."""
    one, other = ends
    waited = 0
    for _ in range(20):
        one.sendall(b"first")
        assert other.recv(10) == b"first"
        waited += unacknowledged(one)
        acknowledge()
        assert unacknowledged(one) == 0
        other.sendall(b"answer")
        assert one.recv(10) == b"answer"
    assert waited, "else nothing was shown"


def test_other_descriptors_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = socket.socketpair()
    with pair[0], pair[1], (tmp_path / "file").open("wb"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM):
        acknowledge()
    monkeypatch.setattr(workers, "DESCRIPTORS", tmp_path / "none")
    acknowledge()
    monkeypatch.setattr(workers, "TCP_QUICKACK", None)
    acknowledge()


class Sent(Prompt):
    def __init__(self) -> None:
        self.value = 5


@pytest.mark.parametrize("is_worker", [True, False])
def test_a_worker_acknowledges_what_was_sent_before_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, is_worker: bool
) -> None:
    calls = []
    monkeypatch.setattr(workers, "_is_worker", lambda: is_worker)
    monkeypatch.setattr(workers, "acknowledge", lambda: calls.append(1))
    assert pickle.loads(pickle.dumps(Sent())).value == 5
    assert len(calls) == is_worker


def test_all_that_is_sent_to_workers_has_them_acknowledge() -> None:
    sent = (source.StoreReader, stream.StoreStreamReader, sink.BatchSink, sink.StreamSink, part_source.PartReader)
    assert all(issubclass(kind, Prompt) for kind in sent)
