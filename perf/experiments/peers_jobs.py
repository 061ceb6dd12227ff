"""A queue of jobs, of the store and its peers: submit, receive, acknowledge."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import count as numbers
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

from ..machine.folders import sub_folder
from ..peers.found import Found
from ..peers.messages import Messages
from ..peers.peer import JOB_BATCHES, JOBS, Peer
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.contest import HEADER
from ..workload.latencies import Latencies
from .parts import Count, latencies
from .peers_appends import PREPARED_BYTES
from .peers_work import Figures, Work, run_ready

IN_BATCH = 256
LOST_NS = 30_000_000_000
PER_S = Count(
    figure="per_s", what="", unit="jobs/s", meaning="jobs a second that were submitted, received and acknowledged"
)


def job_works(base: Path, run: Run, seconds: float, messages: Messages, workers: tuple[int, ...]) -> Iterator[Work]:
    """Workers that submit a job, receive one and acknowledge it, each step when the one before is durable."""
    marks = latencies("a job", "all three steps of a worker that waits for each: while it is slow it asks for less")
    for count in workers:
        what = f"one job at a time, {count} worker{'s' if count > 1 else ''}"
        yield Work(
            f"jobs.{count}", JOBS, what, partial(_by_workers, base, run, seconds, messages, count), (PER_S, *marks),
            beside=f"sqlite.jobs.{count}", beside_what="SQLite",
        )  # fmt: skip
    yield Work(
        "jobs.batches", JOB_BATCHES, f"batches of {IN_BATCH}, one worker",
        partial(_in_batches, base, run, seconds, messages), (PER_S,),
        beside="sqlite.jobs.batches", beside_what="SQLite",
    )  # fmt: skip


def _by_workers(base: Path, run: Run, seconds: float, messages: Messages, workers: int, found: Found) -> Figures:
    submitted, times = [0] * workers, [array("q") for _ in range(workers)]
    received: list[list[bytes]] = [[] for _ in range(workers)]
    with sub_folder(base, "peer") as folder, closing(found.open(folder, PREPARED_BYTES)) as peer:
        one_job(peer, messages.make(workers, 0))

        def work(worker: int, end: float) -> None:
            put, ack, clock, note = peer.put, peer.ack, perf_counter_ns, times[worker].append
            while not submitted[worker] or perf_counter() < end:
                job = messages.make(worker, submitted[worker])
                began = clock()
                put([job])
                ((receipt, got),) = take_some(peer, 1)  # there is one for each worker that has submitted
                ack([receipt])
                note(clock() - began)
                submitted[worker] += 1
                received[worker].append(got)

        took = run_ready(peer, seconds, [partial(work, worker) for worker in range(workers)])
    done = check_jobs(messages, submitted, (job for jobs in received for job in jobs))
    run.checked(done)
    calls = Latencies()
    for one in times:
        calls.add(one)
    return {"per_s": done / took, "calls": calls.count, **calls.marks_us()}


def one_job(peer: Peer, job: bytes) -> None:
    """Submit, receive and acknowledge one job before the clock starts: what the peer makes at its first use is there.

    What a thread needs, as a connection, it has by `Peer.ready`.
    """
    peer.put([job])
    peer.ack([receipt for receipt, _ in take_some(peer, 1)])


def take_some(peer: Peer, count: int) -> list[tuple[Any, bytes]]:
    """Receive up to `count` jobs, and one at least: there is one. Raises WrongResult if none comes in LOST_NS."""
    taken = peer.take(count)
    if not taken:
        began = perf_counter_ns()
        while not (taken := peer.take(count)):
            if perf_counter_ns() - began > LOST_NS:
                raise WrongResult(f"no job came in {LOST_NS / 1e9:.3g} s, and one was submitted")
    return taken


def _in_batches(base: Path, run: Run, seconds: float, messages: Messages, found: Found) -> Figures:
    received: list[bytes] = []
    took = 0.0
    with sub_folder(base, "peer") as folder, closing(found.open(folder, PREPARED_BYTES)) as peer:
        one_job(peer, messages.make(1, 0))
        for first in numbers(0, IN_BATCH):
            jobs = [messages.make(0, number) for number in range(first, first + IN_BATCH)]
            began = perf_counter()
            peer.put(jobs)
            left = IN_BATCH
            while left:
                taken = take_some(peer, left)
                peer.ack([receipt for receipt, _ in taken])
                left -= len(taken)
                received += [job for _, job in taken]
            took += perf_counter() - began
            if took >= seconds:
                break
    done = check_jobs(messages, [len(received)], received)
    run.checked(done)
    return {"per_s": done / took}


def check_jobs(messages: Messages, submitted: list[int], received: Iterable[bytes]) -> int:
    """Compare the received jobs with the submitted ones: each once. Returns their number. Raises WrongResult."""
    seen = set()
    for job in received:
        worker, number = HEADER.unpack_from(job)[:2]
        if (worker, number) in seen or not messages.matches(job, worker, number):
            raise WrongResult(f"job {number} of worker {worker} came twice, or is not what was submitted")
        seen.add((worker, number))
    expected = {(worker, number) for worker, count in enumerate(submitted) for number in range(count)}
    if seen != expected:
        raise WrongResult(f"{len(expected - seen)} of {len(expected)} jobs did not come")
    return len(seen)
