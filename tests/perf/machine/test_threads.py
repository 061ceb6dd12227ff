"""Threads that start together, and the CPUs that they run on."""

from __future__ import annotations

import os

import pytest

from stratalog.perf.machine.threads import on_cpus, run_together


def test_error_of_a_thread_reaches_the_caller() -> None:
    def fail() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        run_together([lambda: None, fail])


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity here")
def test_threads_stay_on_so_many_cpus_for_a_while_only() -> None:
    before, seen = os.sched_getaffinity(0), list[int]()
    with on_cpus(1):
        run_together([lambda: seen.append(len(os.sched_getaffinity(0)))] * 2)
    assert seen == [1, 1]
    assert os.sched_getaffinity(0) == before
