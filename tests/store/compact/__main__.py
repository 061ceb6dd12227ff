"""`python -m tests.store.compact --states 3000`: power cuts at each step of compactions, from fresh seeds.

A failure prints its seed; `--seed` runs that round again.
"""

from __future__ import annotations

import sys

from tests.rounds import run_partial_rounds

from .crashes import run_round

VERDICT = "each store was as before, or compacted"

if __name__ == "__main__":
    sys.exit(run_partial_rounds("tests.store.compact", __doc__, run_round, VERDICT, share=0.3))
