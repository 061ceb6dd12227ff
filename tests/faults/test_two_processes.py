"""Several processes that open one folder at the same moment: one has it, the others are told."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from stratalog.store import MessageStore
from tests.store.helpers import ROOT, contents, tiny

PROCESSES = 4
ROUNDS = 2
RACER = """
import sys
from stratalog import MessageStore, StoreError
from stratalog.testing import TunedConfig
print("ready", flush=True)
sys.stdin.readline()
try:
    store = MessageStore.open(sys.argv[1], TunedConfig(segment_bytes=65536, lanes=2, recent_bytes=0))
except StoreError as error:
    print(type(error).__name__, flush=True)
else:
    print("opened", store.append("t", 0, b"x"), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("made", [False, True], ids=["new-folder", "store"])
def test_one_of_many_processes_gets_the_folder(tmp_path: Path, made: bool) -> None:
    """The one that has it dies without a close; the next race is also one for the recovery."""
    path = tmp_path / "store"
    for number in range(ROUNDS):
        if made and not number:
            MessageStore.open(path, tiny(lanes=2)).close()
        if not made:
            path = tmp_path / f"store-{number}"
        answers = race(path)
        opened = f"opened {number if made else 0}"
        assert answers == {opened: 1, "StoreLocked": PROCESSES - 1}
    with MessageStore.open(path, tiny()) as store:
        assert len(contents(store, [("t", 0)])["t", 0]) == (ROUNDS if made else 1)


def race(path: Path) -> Counter[str]:
    """What each of the processes says; none ends before all have said it."""
    command = [sys.executable, "-c", RACER, str(path)]
    racers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        return Counter(racer.stdout.readline().strip() for racer in racers if racer.stdout is not None)
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
