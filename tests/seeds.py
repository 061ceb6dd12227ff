"""The seed of a random test: new in every run, printed, and given again by one variable.

    STRATALOG_SEED=1234 python -m pytest tests/cache/test_readers.py

runs a test again as it ran with the seed 1234 that it had printed.
"""

from __future__ import annotations

import os
import random

VARIABLE = "STRATALOG_SEED"


def draw_seed() -> int:
    """The seed that `STRATALOG_SEED` names, else a new one; printed, so that a failure can be replayed."""
    given = os.environ.get(VARIABLE)
    seed = int(given) if given else random.SystemRandom().getrandbits(32)
    print(f"seed {seed}; run it again with {VARIABLE}={seed}")
    return seed
