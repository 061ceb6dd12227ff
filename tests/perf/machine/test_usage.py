"""What a process has had of the processors."""

from __future__ import annotations

import os
import time

import pytest

from stratalog.perf.machine.usage import turns_of


def test_work_of_a_process_is_counted_and_its_sleep_is_not() -> None:
    before = turns_of(os.getpid())
    if before is None:
        pytest.skip("the kernel does not tell")
    until = time.thread_time() + 0.02
    while time.thread_time() < until:
        pass
    worked = turns_of(os.getpid())
    time.sleep(0.2)  # what is tested: time that passes without work
    slept = turns_of(os.getpid())
    assert worked is not None and slept is not None
    assert worked.ran - before.ran >= 15_000_000
    assert slept.ran - worked.ran < 150_000_000
    assert slept.waited >= worked.waited >= before.waited


def test_process_that_is_gone_has_none() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert turns_of(child) is None
