"""Durable appends of the store and its peers: one at a time by threads, pipelined, and in batches."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter, perf_counter_ns

from ..machine.folders import sub_folder
from ..peers.found import Found
from ..peers.grouped import GroupCommit
from ..peers.messages import Messages
from ..peers.peer import APPEND, BATCH, GROUPED, PIPELINED, Peer, Row
from ..report.progress import Run
from ..workload.latencies import Latencies
from .parts import Count, latencies
from .peers_work import QUEUES, Figures, Work, batch_messages, run_ready

PREPARED_BYTES = 16 << 20  # of what is about to be written
PREPARED_BATCH_BYTES = 64 << 20
PER_S = Count(figure="per_s", what="", unit="msg/s", meaning="messages a second, each answered after its force")
WITH_GROUP_COMMIT = " with a group-commit thread"


def blocking_works(
    base: Path, run: Run, seconds: float, sizes: dict[str, Messages], producers: tuple[int, ...]
) -> Iterator[Work]:
    """Threads that append, each when its message before is durable."""
    marks = latencies("a call", "of a caller that waits for each answer: while it is slow it asks for less")
    for name, messages in sizes.items():
        for count in producers:
            what = f"{name}, {count} producer{'s' if count > 1 else ''}"
            measure = partial(_blocking, base, run, seconds, messages, count)
            yield Work(
                f"append.{name}.{count}", APPEND, what, partial(measure, False), (PER_S, *marks),
                beside=f"rocksdb.append.{name}.{count}", beside_what="RocksDB",
            )  # fmt: skip
            if count > 1:
                yield Work(
                    f"grouped.{name}.{count}", GROUPED, what, partial(measure, True), (PER_S, *marks),
                    of_store=f"append.{name}.{count}", how=WITH_GROUP_COMMIT,
                )  # fmt: skip


def pipelined_works(base: Path, run: Run, seconds: float, sizes: dict[str, Messages]) -> Iterator[Work]:
    """One producer that does not wait for each message."""
    for name, messages in sizes.items():
        yield Work(
            f"pipelined.{name}", PIPELINED, name, partial(_pipelined, base, run, seconds, messages), (PER_S,),
            beside=f"rocksdb.pipelined.{name}", beside_what="RocksDB",
        )  # fmt: skip


def batch_works(base: Path, run: Run, seconds: float, sizes: dict[str, Messages]) -> Iterator[Work]:
    """One producer, a batch a call."""
    for name, messages in sizes.items():
        what = f"{name}, {batch_messages(messages):,} a call"
        yield Work(
            f"batch.{name}", BATCH, what, partial(_batches, base, run, seconds, messages), (PER_S,),
            beside=f"rocksdb.batch.{name}", beside_what="RocksDB",
        )  # fmt: skip


def _blocking(
    base: Path, run: Run, seconds: float, messages: Messages, producers: int, grouped: bool, found: Found
) -> Figures:
    counts, times = [0] * producers, [array("q") for _ in range(producers)]
    with sub_folder(base, "peer") as folder, closing(found.open(folder, PREPARED_BYTES)) as peer:
        commits = GroupCommit(lambda rows: peer.append_batch(peer.batch_of(rows)), peer.ready) if grouped else None
        append: Callable[[Row], None] = peer.append if commits is None else commits.append

        def produce(queue: int, end: float) -> None:
            make, clock, note, count = messages.make, perf_counter_ns, times[queue].append, 0
            while not count or perf_counter() < end:
                row = (queue, count, make(queue, count))
                began = clock()
                append(row)
                note(clock() - began)
                count += 1
                counts[queue] = count

        try:
            took = run_ready(peer, seconds, [partial(produce, queue) for queue in range(producers)])
        finally:
            if commits is not None:
                commits.close()
        run.checked(messages.check(peer.read_all(), dict(enumerate(counts))))
    calls = Latencies()
    for one in times:
        calls.add(one)
    return {"per_s": sum(counts) / took, "calls": calls.count, **calls.marks_us()}


def _pipelined(base: Path, run: Run, seconds: float, messages: Messages, found: Found) -> Figures:
    written, began = 0, 0.0

    def rows() -> Iterator[Row]:
        nonlocal written, began
        began = perf_counter()  # at the first message that the peer asks for: its thread is ready
        for row in messages.rows(QUEUES):
            if written and perf_counter() >= began + seconds:
                return
            written += 1
            yield row

    with sub_folder(base, "peer") as folder, closing(found.open(folder, PREPARED_BATCH_BYTES)) as peer:
        peer.pipelined(rows())
        took = perf_counter() - began
        check_first(peer, messages, written, run)
    return {"per_s": written / took}


def _batches(base: Path, run: Run, seconds: float, messages: Messages, found: Found) -> Figures:
    written, took, rows, size = 0, 0.0, messages.rows(QUEUES), batch_messages(messages)
    with sub_folder(base, "peer") as folder, closing(found.open(folder, PREPARED_BATCH_BYTES)) as peer:
        while took < seconds:
            batch = peer.batch_of(list(islice(rows, size)))
            began = perf_counter()
            peer.append_batch(batch)
            took += perf_counter() - began
            written += size
        check_first(peer, messages, written, run)
    return {"per_s": written / took}


def check_first(peer: Peer, messages: Messages, count: int, run: Run) -> None:
    """Compare everything that the peer has with the first `count` messages, the queues by turns."""
    run.checked(messages.check(peer.read_all(), messages.shares(count, QUEUES)))
