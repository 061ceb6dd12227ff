"""Starts threads together, waits for all, and hands on the first error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence


def run_together(jobs: Sequence[Callable[[], None]], finished: Callable[[], None] | None = None) -> float:
    """Seconds from the moment that all threads are let go until the last one ends.

    `finished` is called by a job's thread when it ended, whether well or not. Raises the first error of a
    job.
    """
    errors: list[BaseException] = []
    gate = threading.Event()

    def body(job: Callable[[], None]) -> None:
        gate.wait()
        try:
            job()
        except BaseException as error:
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
