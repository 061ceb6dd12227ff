"""What a process has had of the processors."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from stratalog.perf.machine.usage import Turns, turns_of

WORK = """
import sys, time
for line in sys.stdin:
    until = time.thread_time() + float(line)
    while time.thread_time() < until:
        pass
    print("done", flush=True)
"""


def test_work_of_a_process_is_counted_and_its_sleep_is_not() -> None:
    """Of a process that has one thread: those of others come and go, and take with them what they had."""
    command = [sys.executable, "-c", WORK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None

        def turns_behind(work_s: float) -> Turns | None:
            print(work_s, file=child.stdin, flush=True)
            assert child.stdout is not None and child.stdout.readline() == "done\n"
            return turns_of(child.pid)

        before, worked = turns_behind(0), turns_behind(0.02)
        time.sleep(0.2)  # what is tested: time that passes without work
        slept = turns_of(child.pid)
        child.stdin.close()
    if before is None or worked is None or slept is None:
        pytest.skip("the kernel does not tell")
    assert worked.ran - before.ran >= 15_000_000
    assert slept.ran - worked.ran < 150_000_000
    assert slept.waited >= worked.waited >= before.waited


def test_process_that_is_gone_has_none() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert turns_of(child) is None
