"""A fork while a store is open: the child's copy of it is dead and says so, and the parent's store never notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import MessageStore
from tests.store.helpers import contents, run_child, tiny

FORKING = """
import asyncio, os, signal, sys, threading, time
from stratalog import MessageStore, StoreClosed, StoreLocked
from stratalog.testing import TunedConfig
path, given, end = sys.argv[1:]
config = TunedConfig(segment_bytes=1 << 20, max_message_bytes=65536, max_frame_bytes=65536, recent_bytes=0)
store = MessageStore.open(path, config)
for index in range(20):
    store.append("t", 0, b"before %d" % index)

def child(use):
    signal.alarm(30)  # a child that hangs is a child that was not told
    if use == "close":
        store.close()
        return 0
    if use == "reopen":
        try:
            MessageStore.open(path, config)
        except StoreLocked:
            return 0
        return 1
    if use == "leave":
        with store:
            return 0
    uses = {
        "append": lambda: store.append("t", 0, b"child"),
        "submit": lambda: store.submit("t", 0, b"child").result(20),
        "append_batch": lambda: store.append_batch([("t", 0, b"child")]),
        "new_queue": lambda: store.append("new", 0, b"child"),
        "flush": store.flush,
        "read": lambda: store.read("t", 0),
        "get_range": lambda: store.get_range("t", 0, 0, 10),
        "read_batch": lambda: store.read_batch("t", 0),
        "queue_bounds": lambda: store.queue_bounds("t", 0),
        "read_async": lambda: asyncio.run(store.read_async("t", 0, 20, wait_ms=60_000)),
        "wait": lambda: store.read("t", 0, 20, wait_ms=60_000),
        "scan": lambda: list(store.scan()),
    }
    try:
        uses[use]()
    except StoreClosed as error:
        return 0 if "fork" in str(error) else 2
    return 1

stop = threading.Event()
def produce():  # so that locks are held at the moment of the fork
    index = 0
    while not stop.is_set():
        store.append("busy", 0, b"%d" % index)
        index += 1
producers = [threading.Thread(target=produce) for _ in range(4)]
for producer in producers:
    producer.start()
ended = {}
for use in given.split(",") * 5:
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            code = child(use)
        finally:
            os._exit(code)
    ended.setdefault(use, []).append(os.waitpid(pid, 0)[1])
    if ended[use][-1]:
        break
stop.set()
for producer in producers:
    producer.join()
for index in range(20):
    store.append("t", 0, b"after %d" % index)
print(ended, flush=True)
if end == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
store.close()
"""
USES = {
    "writes": ("append", "submit", "append_batch", "new_queue", "flush"),
    "reads": ("read", "get_range", "read_batch", "queue_bounds", "wait", "read_async", "scan"),
    "ends": ("close", "leave"),
}
EXPECTED = [b"before %d" % index for index in range(20)] + [b"after %d" % index for index in range(20)]


def check_fork(path: Path, *uses: str) -> None:
    """`killed` is the hard end: a close by the parent would put right what a child's close has written."""
    done = run_child(FORKING, str(path), ",".join(uses), "killed")
    assert done.stdout == f"{dict.fromkeys(uses, [0] * 5)}\n", (done.stdout, done.stderr)
    with MessageStore.open(path, tiny()) as store:
        assert list(contents(store, [("t", 0)])["t", 0].values()) == EXPECTED


@pytest.mark.parametrize("uses", USES.values(), ids=USES)
def test_forked_child_is_told_at_once_and_harms_nothing(tmp_path: Path, uses: tuple[str, ...]) -> None:
    """A process of its own for each kind of use: it starts for longer than its children run."""
    check_fork(tmp_path, *uses)


def test_forked_child_cannot_open_the_folder_of_its_parent(tmp_path: Path) -> None:
    check_fork(tmp_path, "reopen")


def test_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    code = """
import os, sys, time
from stratalog import MessageStore
store = MessageStore.open(sys.argv[1])
store.append("t", 0, b"x")
ready, go = os.pipe()
if os.fork() == 0:
    os.close(1), os.close(2)
    os.write(go, b"x")
    time.sleep(20)  # longer than the test: this process is meant to be left over
    os._exit(0)
os.read(ready, 1)
os._exit(0)
"""
    run_child(code, str(tmp_path))
    with MessageStore.open(tmp_path) as store:
        assert store.read("t", 0)[0].data == b"x"


def test_program_that_a_child_process_runs_inherits_nothing(tmp_path: Path) -> None:
    """subprocess and exec are no forks in this sense: every descriptor is closed on exec."""
    code = """
import os, subprocess, sys
from stratalog import MessageStore
with MessageStore.open(sys.argv[1]) as store:
    store.append("t", 0, b"x")
    listed = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False).stdout
    print(sys.argv[1] in listed, store.append("t", 0, b"y"))
"""
    assert run_child(code, str(tmp_path)).stdout == "False 1\n"
