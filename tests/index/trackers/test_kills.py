"""The tracker on disk in a process that is killed again and again, on a real folder."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from stratalog.index import BucketTracker
from tests.seeds import draw_seed

from .kinds import taken

KILLS = 3
LEDGER_ENTRIES = 500
PROGRAM = """
import sys
import numpy as np
from stratalog.index import BucketTracker

tracker = BucketTracker(sys.argv[1], seal_entries=1_000, segment_entries=50, most_buckets=2)
for ledger in range(int(tracker.mark or b"0"), 1_000_000):
    tracker.add_messages(ledger, np.arange(500), (np.arange(500) * 7_919 + ledger * 31) % 100_000)
    if ledger % 3 == 2:
        tracker.checkpoint(b"%d" % (ledger + 1))
        print(ledger + 1, flush=True)
"""


def test_kill_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    chance, told = random.Random(draw_seed()), 0
    for _ in range(KILLS):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        told = int(process.stdout.readline())  # it has begun
        time.sleep(chance.uniform(0, 0.3))  # the moment of the kill, at random
        process.kill()
        told = max([told, *map(int, process.stdout.read().split())])
        process.wait()
        process.stdout.close()
    with BucketTracker(tmp_path) as tracker:
        mark = int(tracker.mark)
        assert mark >= told
        before = len(tracker)
        assert before >= mark * LEDGER_ENTRIES
        for ledger in range(mark + 10):
            times = (np.arange(LEDGER_ENTRIES) * 7_919 + ledger * 31) % 100_000
            new = tracker.add_messages(ledger, np.arange(LEDGER_ENTRIES), times)
            assert new == 0 or ledger >= mark
        expected = sorted(
            ((entry * 7_919 + ledger * 31) % 100_000, ledger, entry)
            for ledger in range(mark + 10) for entry in range(LEDGER_ENTRIES)
        )  # fmt: skip
        assert taken(tracker, 100_000) == [(ledger, entry) for _, ledger, entry in expected]
