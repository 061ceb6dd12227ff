"""Flipped bits and worse: reported with a place, or harmless; never a wrong message, never an error but ours."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stratalog.store import StoreError
from stratalog.store.format.layout import BLOCK_BYTES
from stratalog.store.testing import SimulatedDisk

from ..seeds import draw_seed
from .engine import abandon, deterministic, open_store
from .flips import flip_everything, scan
from .kept import CONFIG, FIRST_MS, NAMES, expected, load

EVERY = 397  # the long form, `python -m tests.simulation flips`, takes every bit


def test_flipped_bits_are_reported_or_harmless() -> None:
    seed = draw_seed()
    rows = flip_everything(seed, every=EVERY)
    assert [place for row in rows.values() for place in row.wrong] == []
    assert sum(row.bits for row in rows.values()) > 300
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


# -- worse than a bit ---------------------------------------------------------------------------------

places = st.integers(0, 2**20)
edits = st.one_of(
    st.tuples(st.just("write"), places, places, st.binary(min_size=1, max_size=200)),
    st.tuples(st.just("zero"), places, places, st.integers(1, 3 * BLOCK_BYTES)),
    st.tuples(st.just("copy"), places, places, st.integers(0, 20)),
    st.tuples(st.just("cut"), places, places, st.just(0)),
    st.tuples(st.just("swap"), places, places, st.just(0)),
    st.tuples(st.just("remove"), places, places, st.just(0)),
)


def damage(disk: SimulatedDisk, kind: str, which: int, where: int, what: Any) -> None:
    """One edit. Positions are taken modulo the file's size; copies and swaps are of whole blocks or files."""
    paths = sorted(path for path in disk.files() if path.suffix == ".seg")
    path = paths[which % len(paths)]
    other = paths[where % len(paths)]
    file = disk.open(path)
    size = max(1, file.size())
    if kind == "write":
        file.write([what], where % size)
    elif kind == "zero":
        file.write([bytes(min(what, size))], where % size)
    elif kind == "copy":
        block = disk.open(other).read(what * BLOCK_BYTES, BLOCK_BYTES)
        file.write([block or b"\0"], where % size // BLOCK_BYTES * BLOCK_BYTES)
    elif kind == "cut":
        file.truncate(where % size)
    elif kind == "remove":
        disk.remove(path)
    else:
        mine, theirs = file.read(0, size), disk.open(other).read(0, 1 << 20)
        file.write([theirs or b"\0"], 0)
        disk.open(other).write([mine or b"\0"], 0)


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_no_damage_gives_a_wrong_message_or_an_error_that_is_not_ours(name: str, repair: bool) -> None:
    whole = load(name)
    right = {queue: [row.data for row in rows] for queue, rows in expected().items()}

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(edits, min_size=1, max_size=4))
    def damaged(chosen: list[tuple[str, int, int, Any]]) -> None:
        disk = whole.copy()
        for edit in chosen:
            if any(path.suffix == ".seg" for path in disk.files()):
                damage(disk, *edit)
        check_damaged(disk, right, repair=repair)

    with deterministic():
        damaged()


def check_damaged(disk: SimulatedDisk, right: dict[tuple[str, int], list[bytes]], *, repair: bool) -> None:
    """What can be read is right, and at its offset."""
    try:
        store = open_store(disk, CONFIG, lambda: FIRST_MS, random.Random(0), repair=repair)
    except StoreError:
        assert not repair, "a repair refused"
        return
    try:
        for (topic, queue_id), rows in right.items():
            first, end = store.queue_bounds(topic, queue_id)
            for message in (
                store.read(topic, queue_id, first, max_messages=10_000, max_bytes=1 << 30) if first < end else []
            ):
                assert rows[message.offset] == message.data
        scan(store)
    except StoreError:
        assert not repair, "a repaired store is damaged"
    finally:
        abandon(store)
