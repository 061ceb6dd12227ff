"""A lane's files: spares are read to the end only where they may have been begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreCorrupt
from stratalog.store.format.layout import BLOCK_BYTES
from stratalog.store.recovery.lane_files import LaneFiles

from .helpers import KIB, crash_copy, overwrite, segment_paths, small

QUEUE = ("t", 0)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sequences of the files that were searched for frames because their header is not theirs."""
    look_into, sequences = LaneFiles._look_into, []

    def noting(files: LaneFiles, sequence: int, *given: Any) -> None:
        sequences.append(sequence)
        look_into(files, sequence, *given)

    monkeypatch.setattr(LaneFiles, "_look_into", noting)
    return sequences


def test_spares_behind_a_cleanly_closed_segment_are_not_read(tmp_path: Path, read: list[int]) -> None:
    config = small(prewrite_bytes=3 * 256 * KIB)
    with MessageStore.open(tmp_path / "store", config) as store:
        store.append(*QUEUE, b"one")
        crashed = crash_copy(tmp_path / "store", tmp_path / "crashed")
    spares = len(segment_paths(tmp_path / "store")) - 1
    assert spares >= 2
    with MessageStore.open(tmp_path / "store", config) as store:
        assert read == []
        assert store.stats()["segments"]["spare"] >= spares
        assert store.append(*QUEUE, b"two") == 1
    with MessageStore.open(crashed, config) as store:
        assert len(read) >= 2
        assert store.get_range(*QUEUE, 0, 9) == {0: b"one"}


def test_lost_begin_of_a_segment_is_reported_when_the_one_before_was_closed_earlier(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small()) as store:
        store.append(*QUEUE, b"one")
    with MessageStore.open(tmp_path / "store", small()) as store:  # goes on in the closed segment, and beyond it
        while store.stats()["segments"]["sealed"] == 0:
            store.append_batch([(*QUEUE, bytes(5 * KIB))] * 10)
        store.append_batch([(*QUEUE, bytes(5 * KIB))] * 10)
        store.append(*QUEUE, b"last")
        crashed = crash_copy(tmp_path / "store", tmp_path / "crashed")
    used = [path for path in segment_paths(crashed) if path.read_bytes()[:BLOCK_BYTES].strip(b"\0")]
    overwrite(used[-1], 0, bytes(3 * BLOCK_BYTES))
    with pytest.raises(StoreCorrupt) as caught:
        MessageStore.open(crashed, small())
    assert caught.value.file == str(used[-1])


def test_as_much_of_the_ring_as_is_prewritten_is_touched(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small(prewrite_bytes=4 << 20, lanes=2)) as store:
        for lane in store._lanes:
            assert min(lane.ring.size_bytes, 2 << 20) <= lane.ring.warm <= lane.ring.size_bytes
