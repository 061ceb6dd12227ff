"""Processes that read a store while another one writes it, in slices: each slice has its own readers."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from ...store import MessageStore

READ_MESSAGES = 4096
WAIT_MS = 100
READY = "ready"
ENDING_S = 2.0  # how long a process may take from the end of its pipe to its own

Job = Callable[..., None]  # of a pipe, and what it was given


class Process(NamedTuple):
    """A process, and the pipe for its jobs and answers."""

    pid: int
    pipe: Connection


@contextmanager
def processes(count: int, *, in_background: bool = False) -> Iterator[list[Process]]:
    """So many processes, which do the jobs that they are sent, (job, arguments); they end with the block.

    Raises RuntimeError if one ended before, which the block finds out when it receives from its pipe.

    `in_background`: all of their threads take a processor only if no other thread wants it, as those of a program
    that `chrt --idle 0` starts. No change where the system has no such way.
    """
    context = multiprocessing.get_context("spawn")
    made, children = [], []
    try:
        for _ in range(count):
            mine, theirs = context.Pipe()
            child = context.Process(target=_work, args=(theirs, in_background), daemon=True)
            child.start()
            theirs.close()  # a process that ends is the last that has it: then our end says so
            children.append(child)
            made.append(Process(child.pid or 0, mine))
        for one in made:
            one.pipe.recv()
        yield made
    except EOFError as error:
        ended = ", ".join(f"process {child.pid} with code {child.exitcode}" for child in _ended(children))
        if not ended:
            raise  # another block's process
        raise RuntimeError(f"the measurement's {ended} ended before its work was done") from error
    finally:
        for child in children:
            child.kill()
            child.join()


def _ended(children: Sequence[BaseProcess]) -> list[BaseProcess]:
    """The ended processes. The system closes the pipes of a process first, so it may take a moment."""
    closed = wait([child.sentinel for child in children], ENDING_S)
    ended = [child for child in children if child.sentinel in closed]
    for child in ended:
        child.join(ENDING_S)
    return ended


def _work(pipe: Connection, in_background: bool) -> None:
    if in_background and hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    pipe.send(READY)
    while True:
        job, given = pipe.recv()
        job(pipe, *given)


@contextmanager
def at_work(workers: Sequence[Process], job: Job, given: Sequence[tuple[Any, ...]]) -> Iterator[list[Connection]]:
    """Start the job in each worker, with its part of `given`."""
    for (_, pipe), arguments in zip(workers, given, strict=True):
        pipe.send((job, arguments))
    for _, pipe in workers:
        pipe.recv()
    yield [pipe for _, pipe in workers]


@dataclass(frozen=True)
class Share:
    """Every `count`-th message from the `first` on. After a round of fewer than `few`, a reader pauses `pause_s`."""

    first: int
    count: int
    few: int
    pause_s: float


@dataclass(frozen=True)
class Queues:
    """The queues that readers share, 0 to `count` - 1 of a topic."""

    topic: str
    count: int


def follow(pipe: Connection, folder: Path, queues: Queues, share: Share) -> None:
    """Read a share of the queues from their ends on as they grow, until it has all up to offsets that it is told; send
    how many messages it has read, and how many there were up to these at least."""
    topic, mine = queues.topic, range(share.first, queues.count, share.count)
    with MessageStore.open(folder, read_only=True) as store:
        at = {queue: store.queue_bounds(topic, queue)[1] for queue in mine}
        begins, ends = dict(at), dict[int, int]()
        taken, is_ready = 0, False
        while not ends or any(at[queue] < end for queue, end in ends.items()):
            found = 0
            for queue in mine:
                batch = store.read_batch(topic, queue, at[queue], max_messages=READ_MESSAGES)
                found += len(batch)
                at[queue] += len(batch)
            taken += found
            if not is_ready:  # the writer may be faster than it for as long as it runs
                is_ready = True
                pipe.send(READY)
            if not found and not ends:
                store.read(topic, share.first, at[share.first], max_messages=1, wait_ms=WAIT_MS)
            elif found < share.few:
                time.sleep(share.pause_s)  # so that the next round has more
            if pipe.poll():
                ends = {queue: end for queue, end in enumerate(pipe.recv()) if queue in at}
        pipe.send((taken, sum(ends.values()) - sum(begins.values())))


def wait_for_each(pipe: Connection, folder: Path, topic: str, count: int) -> None:
    """Wait for one message after the other; send when each was seen, in ns of the monotonic clock."""
    seen: list[int] = []
    with MessageStore.open(folder, read_only=True) as store:
        pipe.send(READY)
        while len(seen) < count:
            found = store.read(topic, 0, len(seen), max_messages=1, wait_ms=60_000)
            seen += [time.monotonic_ns()] * len(found)
        pipe.send(seen)


def wait_for_nothing(pipe: Connection, folder: Path, topic: str, seconds: float) -> None:
    """Wait for a message that does not come; send when the wait is over."""
    with MessageStore.open(folder, read_only=True) as store:
        pipe.send(READY)
        store.read(topic, 1, 0, wait_ms=round(seconds * 1000))
        pipe.send(READY)
