"""Flipped bits: reported with a place, or harmless; never a wrong message, never an error but ours."""

from __future__ import annotations

import gc
import random
import weakref

from ..seeds import draw_seed
from .engine import abandon, deterministic, open_store
from .flips import flip_everything, scan
from .kept import CONFIG, FIRST_MS, NAMES, load

EVERY = 131  # the long form, `python -m tests.simulation flips`, takes every bit


def test_flipped_bits_are_reported_or_harmless() -> None:
    seed = draw_seed()
    rows = flip_everything(seed, every=EVERY)
    assert [place for row in rows.values() for place in row.wrong] == []
    assert sum(row.bits for row in rows.values()) > 900
    for part, row in rows.items():
        if "frame" in part and "last" not in part:
            assert row.reported == row.bits, f"{part}: not all flips were reported"


def test_store_that_was_looked_at_leaves_nothing_in_memory() -> None:
    """Else thousands of crash states take gigabytes."""
    with deterministic():
        store = open_store(load(NAMES[0]), CONFIG, lambda: FIRST_MS, random.Random(0))
        scan(store)
        abandon(store)
    running = weakref.ref(store._running)
    del store
    gc.collect()
    assert running() is None
