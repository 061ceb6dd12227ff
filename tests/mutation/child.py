"""Forked children that run tests of a copy of the checkout: pytest is imported once, the code under test anew.

A child reports over a pipe, a line of JSON for each event, so that its parent can stop a test that never ends.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import hypothesis.stateful  # imported here, before the fork: no child pays for it again
import numpy as np
import psutil
import pytest
import xxhash

from ..checkout import CHANGING

TESTS = ("tests/cache", "tests/index", "tests/store", "tests/faults", "tests/simulation")
MEMORY = Path("/dev/shm")
LONGEST_COLLECTION_S = 90.0
WARM = (hypothesis.stateful, np, psutil, xxhash)

Event = dict[str, Any]


class Stuck(Exception):
    """A test took longer than it may; the child is gone."""


class Reporter:
    """The pytest plugin of a child: selects and orders the tests, and tells what happens to them."""

    def __init__(self, out: TextIO, order: list[str] | None) -> None:
        self._out = out
        self._order = order
        self._seconds: dict[str, float] = {}
        self.on_test: Callable[[str], None] = lambda test: None

    def tell(self, **event: object) -> None:
        """Write an event for the parent."""
        print(json.dumps(event), file=self._out, flush=True)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of the order, in its order."""
        if self._order is not None:
            found = {item.nodeid: item for item in items}
            items[:] = [found[name] for name in self._order if name in found]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins: its time runs from here."""
        self.on_test(nodeid)
        self.tell(begins=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of the three parts of a test is over."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed or report.skipped:
            self.tell(fails=report.nodeid, skipped=report.skipped)
        elif report.when == "teardown":
            self.tell(ends=report.nodeid, seconds=self._seconds[report.nodeid])


def run_tests(
    tree: Path,
    arguments: list[str],
    order: list[str] | None,
    limit_s: Callable[[str], float],
    around: Callable[[Reporter], Callable[[], None]] | None = None,
    keep_bytecode: bool = False,
) -> tuple[int, list[Event]]:
    """Run pytest in a forked child: (exit code, events). `around` is called in the child; what it gives, at the end.

    `keep_bytecode`: the compiled modules and tests stay for later children.

    Raises:
        Stuck: a test took longer than `limit_s` of its name.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(reading)
        os._exit(_child(tree, arguments, order, writing, around, keep_bytecode))
    os.close(writing)
    with contextlib.suppress(OSError):  # the child was faster
        os.setpgid(child, child)
    try:
        events = _listen(reading, limit_s)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), events
    except Stuck:
        _kill_group(child)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(reading)
        _kill_group(child)  # what the tests have started and left


def folder_in_memory() -> Path:
    """A new folder for copies and the stores of their tests: there a force costs nothing."""
    return Path(tempfile.mkdtemp(prefix="stratalog-mutation-", dir=MEMORY if MEMORY.is_dir() else None))


def warm_up(tree: Path, tests: Sequence[str] = TESTS) -> None:
    """Compile the modules and tests of a copy once: a child for a mutant compiles only that."""
    code, _events = run_tests(
        tree, ["--collect-only", *tests], None, lambda _: LONGEST_COLLECTION_S, keep_bytecode=True
    )
    if code:
        raise RuntimeError(f"the tests are not collected: pytest ended with {code}")


def forget_bytecode(path: Path) -> None:
    """Take away what Python compiled from a source: a change of the same length in the same second looks the same."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def _kill_group(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def _listen(reading: int, limit_s: Callable[[str], float]) -> list[Event]:
    events: list[Event] = []
    rest, deadline, running = b"", time.monotonic() + LONGEST_COLLECTION_S, "collection"
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                events.append({"stuck": running})
                raise Stuck(running)
            piece = os.read(reading, 1 << 16)
            if not piece:
                return events
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                try:
                    event = json.loads(line)
                except ValueError:  # of a process that a test has forked, in between
                    continue
                events.append(event)
                if "end" in event:
                    return events
                if "begins" in event:
                    running = event["begins"]
                    deadline = time.monotonic() + limit_s(running)


def _child(
    tree: Path,
    arguments: list[str],
    order: list[str] | None,
    writing: int,
    around: Callable[[Reporter], Callable[[], None]] | None,
    keep_bytecode: bool,
) -> int:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.set_inheritable(writing, False)
    os.environ["PYTHONPATH"] = str(tree)
    os.environ["PYTHONDONTWRITEBYTECODE"] = os.environ[CHANGING] = "1"
    os.environ["STRATALOG_SEED"] = "1"  # a mutant's verdict is the same when it is tried again
    sys.dont_write_bytecode = not keep_bytecode
    scratch = tree.parent / f"{tree.name}-scratch"  # what a test that is ended leaves goes with the trees
    scratch.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    forget(("stratalog", "tests"))
    with os.fdopen(writing, "w") as out:
        reporter = Reporter(out, order)
        code = 70
        try:
            end = around(reporter) if around is not None else lambda: None
            base = [f"--rootdir={tree}", "-n0", "-q", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=1"]
            code = int(pytest.main([*base, *arguments], plugins=[reporter]))
            end()
        finally:
            reporter.tell(end=code)
    return code


def share(jobs: int, count: int, work: Callable[[int, int], None]) -> None:
    """Call `work(job, index)` for each index below `count`, in `jobs` processes that take one after the other."""
    fork = multiprocessing.get_context("fork")  # no process here has threads of its own
    following = fork.Value("q", 0)

    def run(job: int) -> None:
        while True:
            with following.get_lock():
                index, following.value = following.value, following.value + 1
            if index >= count:
                return
            work(job, index)

    workers = [fork.Process(target=run, args=(job,)) for job in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise RuntimeError(f"workers ended with {[worker.exitcode for worker in workers]}")


def forget(packages: tuple[str, ...]) -> None:
    """Take the packages out of this process: the next import finds those of the copy."""
    for name in list(sys.modules):
        if name.split(".")[0] in packages:
            del sys.modules[name]
