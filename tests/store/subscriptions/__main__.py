"""`python -m tests.store.subscriptions --seconds 600`: crashes of subscriptions, from fresh seeds.

A failure prints its seed; `--seed` runs that round again.
"""

from __future__ import annotations

import sys

from tests.rounds import run_histories

from .crashes import CrashHistory

STEPS = 60

if __name__ == "__main__":
    sys.exit(run_histories("tests.store.subscriptions", __doc__, CrashHistory, STEPS))
