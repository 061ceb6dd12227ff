"""Threads that start together, the CPUs that they run on, and one that reads what another process tells."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import IO, AnyStr

ALL_CPUS = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()  # this process's


def run_together(jobs: Sequence[Callable[[], None]], finished: Callable[[], None] | None = None) -> float:
    """Seconds from the start of all threads until the last one ends.

    A job's thread calls `finished` when it ended, well or not. Raises the first error of a job.
    """
    errors: list[BaseException] = []
    gate = threading.Event()

    def body(job: Callable[[], None]) -> None:
        gate.wait()
        try:
            job()
        except BaseException as error:  # raised again in the thread that waits
            errors.append(error)
        finally:
            if finished is not None:
                finished()

    threads = [threading.Thread(target=body, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    gate.set()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if errors:
        raise errors[0]
    return seconds


def first_line(pipe: IO[AnyStr], seconds: float) -> AnyStr | None:
    """The first line of another process, which is empty if it ends before; None if there is none in so many seconds.

    A thread reads on and drops what comes, so that the pipe never is full.
    """
    lines: SimpleQueue[AnyStr] = SimpleQueue()

    def read() -> None:
        lines.put(pipe.readline())
        with contextlib.suppress(ValueError):  # it was closed meanwhile
            for _ in pipe:
                pass

    threading.Thread(target=read, daemon=True).start()
    try:
        return lines.get(timeout=seconds)
    except Empty:
        return None


@contextlib.contextmanager
def on_cpus(count: int | None) -> Iterator[None]:
    """Keep this thread, and those that it starts meanwhile, on the first `count` of its CPUs; None: on all.

    Python's threads take turns at one lock, and a switch between two threads is cheaper on one CPU than between
    two. So many blocking producers run faster on a single CPU of a virtual machine.
    """
    with _kept_on(sorted(ALL_CPUS)[:count] if count is not None else ()):
        yield


def on_all_cpus() -> contextlib.AbstractContextManager[None]:
    """Inside `on_cpus`: use all CPUs for a while."""
    return _kept_on(ALL_CPUS)


@contextlib.contextmanager
def _kept_on(cpus: Collection[int]) -> Iterator[None]:
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
