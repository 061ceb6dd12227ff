"""What every test has: a time limit, a folder in memory, and a background that writes no frames of its own accord.

No outcome may depend on how fast the machine is. The limit is for what never ends, so that an endless loop or a lost
wake-up is a failure with a traceback; Hypothesis gets none of its own. On a slow machine a lane goes quiet between any
two calls, and the background marks it: a frame that a test has not thought of, where it counts them, damages the last
one or crashes the store.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

import psutil
import pytest
from hypothesis import HealthCheck, settings

from stratalog.portable import POSIX_ALONE
from stratalog.store.log.upkeep import Upkeep
from tests.checkout import CHANGING

LIMIT_S = 240
MEMORY = Path("/dev/shm")
ROOM_BYTES = 1 << 30  # what is left for others
PREFIX = "stratalog-tests-"
TESTS = Path(__file__).resolve().parent
ON_DISK = {"faults", "soak"}  # folders of tests
SPARK = ("pipeline/", "examples/test_spark")  # tests that share a session of Spark
FAILED = pytest.StashKey[bool]()
MARK_IDLE = Upkeep._mark_idle

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

if CHANGING not in os.environ:
    # Processes that tests start keep what they have compiled: to compile the sources takes each of them a second.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background ignores interrupts, and children inherit that: none would notice the one that a test sends.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# From CPython 3.12 on, a fork beside threads warns. Tests fork on purpose, and look at what their children say.
os.environ.setdefault("PYTHONWARNINGS", "ignore:This process:DeprecationWarning")


class TestTookTooLong(BaseException):
    """Not an Exception, so that no test takes it for an error of the store's."""


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """Interrupt a test after `LIMIT_S` seconds, also while it waits for a lock."""

    def too_long(_signal: int, _frame: FrameType | None) -> None:
        raise TestTookTooLong(f"not finished after {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def memory_has_room() -> bool:
    """The file system of memory has room, and so has the memory itself."""
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError:
        return False
    return min(free, psutil.virtual_memory().available) > ROOM_BYTES and os.access(MEMORY, os.W_OK)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of the whole come first, and those of Spark next.

    Some of the former are long, and at the end no other worker could help. The latter are in the first worker's share,
    from whose end the others take: so there is one session of Spark, whose start takes seconds.
    """
    items.sort(key=lambda item: (item.path.parent != TESTS, not str(item.path.relative_to(TESTS)).startswith(SPARK)))
    for item in items:
        if POSIX_ALONE and item.get_closest_marker("linux") is not None:
            item.add_marker(pytest.mark.skip("it tests what Linux alone has, and the device has POSIX calls alone"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where a force costs nothing; on the disk for tests that need one, or if memory has no room.

    Those are in a folder of `ON_DISK`, or marked `disk`. What a failed test leaves in memory moves to the disk.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    needs_disk = (
        request.node.get_closest_marker("disk") is not None or request.path.relative_to(TESTS).parts[0] in ON_DISK
    )
    if needs_disk or not memory_has_room():
        yield tmp_path_factory.mktemp(name)
        return
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY))
    try:
        yield folder
    finally:
        if FAILED in request.node.stash:
            with suppress(OSError, shutil.Error):
                shutil.copytree(folder, tmp_path_factory.mktemp(name), symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what the tests of a module share, in memory as `tmp_path`."""
    if not memory_has_room():
        yield tmp_path_factory.mktemp("shared")
        return
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def no_leftovers() -> None:
    """A process that was killed could not clear its folder away: memory would fill up."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        if not psutil.pid_exists(int(folder.name.split("-")[2])):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """What is there before a module's tests is no garbage: a collection that they call for does not go through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def quiet_background() -> Iterator[None]:
    """Lanes are marked only by tests that call for it: `store._upkeep._mark_idle()`, and a flush.

    Processes that tests start have the store as it is.
    """

    def mark_idle(upkeep: Upkeep) -> None:
        if upkeep._thread._ident != threading.get_ident():
            MARK_IDLE(upkeep)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Upkeep, "_mark_idle", mark_idle)
        yield


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The background marks lanes that have gone quiet, as it does in a program."""
    monkeypatch.setattr(Upkeep, "_mark_idle", MARK_IDLE)
