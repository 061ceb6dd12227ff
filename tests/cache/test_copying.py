"""Pieces copied by one call, and what happens where the system refuses it."""

from __future__ import annotations

import ctypes
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache import space
from cache.block_cache import BlockCache
from cache.copying import GAP_BYTES, PIECES, Copier, address_of
from cache.file_tiers import PersistentMemoryTier, PrivateFileTier
from cache.tier import HeapTier, OffHeapTier, Tier

from .helpers import batch_of, check_blocks, payload_of

SOURCE = np.random.default_rng(1).integers(0, 256, 1 << 16, np.uint8)
needs_call = pytest.mark.skipif(not Copier().works, reason="the system does not let a process copy that way")


def refused(*given: int) -> int:
    return -1


def half(pid: int, to: int, ranges: int, *more: int) -> int:
    """As the kernel does when it meets memory that is not there: some of it, and how much that was."""
    call = Copier()._call
    assert call is not None
    lengths = np.ctypeslib.as_array((ctypes.c_int64 * (2 * ranges)).from_address(to))
    return call(pid, to, 1, *more) if lengths[1] < lengths[1::2].sum() else call(pid, to, ranges, *more)


def copied(pieces: list[tuple[int, int]], copier: Copier) -> None:
    """Pieces (start, length), each to a place of its own in reverse order, with a byte between them."""
    starts, lengths = (np.array([piece[i] for piece in pieces], np.int64) for i in (0, 1))
    target = np.zeros(int(lengths.sum()) + len(pieces) + 1, np.uint8)
    expected = target.copy()
    places = (lengths + 1)[::-1].cumsum()[::-1] - lengths
    for at, start, length in zip(places.tolist(), starts.tolist(), lengths.tolist(), strict=True):
        expected[at : at + length] = SOURCE[start : start + length]
    address = address_of(target.data)
    assert address is not None
    assert copier.copy(places + address, starts, lengths, SOURCE.data.toreadonly())
    assert target.tobytes() == expected.tobytes()


PIECE = st.tuples(st.integers(0, 60_000), st.sampled_from([0, 1, 7, 100, 4096, 5000]))


@needs_call
@settings(max_examples=100, deadline=None)
@given(st.lists(PIECE, min_size=1, max_size=40))
def test_any_pieces_are_where_they_should_be(pieces: list[tuple[int, int]]) -> None:
    copied(pieces, Copier())


@needs_call
@pytest.mark.parametrize("gap", [0, 1, GAP_BYTES - 1, GAP_BYTES, GAP_BYTES + 1])
def test_gaps_are_left_out(gap: int) -> None:
    copied([(at, 300) for at in range(0, 50_000, 300 + gap)], Copier())


@needs_call
@pytest.mark.parametrize("count", [PIECES - 1, PIECES, PIECES + 1, 3 * PIECES])
def test_more_pieces_than_one_call_takes(count: int) -> None:
    copied([(at * 30, 29) for at in range(count)], Copier())


def test_where_the_call_is_refused_that_is_known_at_once() -> None:
    copier = Copier(refused)
    assert not copier.works
    assert not copier.copy(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1, np.int64), memoryview(b"x"))


@needs_call
def test_a_copy_that_ends_halfway_is_told() -> None:
    copier = Copier()
    copier._call = half
    target = np.zeros(200, np.uint8)
    address = address_of(target.data)
    assert address is not None
    places = np.array([address, address + 100])
    assert not copier.copy(places, np.array([0, 500]), np.array([100, 100]), SOURCE.data)


@pytest.mark.parametrize("kind", ["works", "refused at open", "refused later", "halfway"])
def test_a_cache_has_the_same_bytes_however_they_are_copied(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "refused at open":
        monkeypatch.setattr(space, "Copier", lambda: Copier(refused))
    tiers: list[Tier] = [HeapTier(4096), OffHeapTier(8192), PrivateFileTier(4096, tmp_path)]
    cache = BlockCache([PersistentMemoryTier(1 << 17, tmp_path), *tiers], 512, evict=False)
    calls: Any = {"refused later": refused, "halfway": half}
    if kind in calls and cache.space._copier.works:
        cache.space._copier._call = calls[kind]
    rows = [(at % 7, at, payload_of(at % 7, at, at * 53 % 1500)) for at in range(100)]
    assert cache.fill(batch_of(rows)).all()
    for stream, offset, data in rows:
        assert cache.read(stream, offset, 1).payloads == [data]
    assert all(counters.filled_messages for counters in cache.counters)
    check_blocks(cache)


@needs_call
def test_others_run_while_bytes_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is made without the interpreter lock, which nobody gets otherwise in so short a time."""
    copier, ran, begun = Copier(), threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: begun.wait() and ran.set())
    other.start()
    source, target = np.ones(16 << 20, np.uint8), np.zeros(16 << 20, np.uint8)
    address = address_of(target.data)
    assert address is not None
    before = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        begun.set()
        for _ in range(500):
            assert copier.copy(np.array([address]), np.zeros(1, np.int64), np.array([len(source)]), source.data)
            if ran.is_set():
                break
    finally:
        sys.setswitchinterval(before)
    assert ran.is_set() and target.all()
    other.join()
