"""Threads that start together, and the CPUs that they run on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stratalog.perf.machine.threads import first_line, on_cpus, run_together


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


def test_first_line_of_another_process_is_waited_for_no_longer_than_told() -> None:
    talk = "print('a line', flush=True)\nwhile True: print('x' * 4096)"
    for told, expected in ((talk, "a line\n"), ("", ""), ("import time; time.sleep(60)", None)):
        with subprocess.Popen([sys.executable, "-c", told], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert first_line(child.stdout, 30 if expected is not None else 0.1) == expected
            child.kill()


def test_full_pipe_stops_no_process_whose_first_line_was_read() -> None:
    told = "print('a line')\nfor _ in range(100): print('x' * 4096)"
    with subprocess.Popen([sys.executable, "-c", told], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and first_line(child.stdout, 30) == "a line\n"
        assert child.wait(30) == 0
