"""`python -m tests.store.shards --states 100000`: power cuts at each step of bulk commits, from fresh seeds.

A failure prints its seed; `--seed` runs that round again.
"""

from __future__ import annotations

import sys

from tests.rounds import run_partial_rounds

from .crashes import run_round

VERDICT = "each commit done or not done, and once"

if __name__ == "__main__":
    sys.exit(run_partial_rounds("tests.store.shards", __doc__, run_round, VERDICT, share=1.0))
