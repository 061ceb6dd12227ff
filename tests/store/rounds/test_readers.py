"""Stores that are looked at, and readers without a writer, see all of a round or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog import (
    MessageStore,
    StoreReader,
    StoreUnusable,
)
from stratalog.store import look_into_folder
from stratalog.store.format.layout import JOINT
from stratalog.store.log.at_once import AtOnce
from stratalog.store.log.sealer import Sealer

from ..helpers import (
    KIB,
    crash_copy,
    full_frames,
    mark,
    overwrite,
    seal_of,
    tiny,
)
from .helpers import LANES, NAMES, commit, path_of, sizes


def test_a_reader_without_a_writer_sees_a_whole_round_that_one_lane_proves(tmp_path: Path, block_bytes: int) -> None:
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        commit(store)
        store.append(*NAMES[1], b"later")
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    (left / "LIVE").unlink()
    for lane in (0, 2):
        frame = full_frames(path_of(left, lane))[-1]
        overwrite(path_of(left, lane), frame.header.end, bytes(8 * KIB))
    with StoreReader.open(left) as reader:
        assert sizes(reader) == [2] * LANES


def test_a_reader_without_a_writer_takes_a_begun_segment_for_a_proof_in_each_lane(
    tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sealer, "seal_full", lambda self, **how: None)
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        commit(store)
        flusher = store._flushers[1]
        with flusher.building:
            AtOnce(flusher).make_room_of(50 * KIB, lambda: 0)
            assert flusher.lane.segment is not None
            flusher.write_out()
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    (left / "LIVE").unlink()
    for lane in range(LANES):
        frame = next(frame for frame in reversed(full_frames(path_of(left, lane))) if frame.header.flags & JOINT)
        assert seal_of(path_of(left, lane)) is None
        overwrite(path_of(left, lane), frame.header.end, bytes(8 * KIB))
    with StoreReader.open(left) as reader:
        assert sizes(reader) == [2] * LANES


def test_a_store_that_is_only_looked_at_takes_none_and_nobody_waits(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        commit(store)
    with look_into_folder(tmp_path) as looked:
        assert isinstance(looked, MessageStore) and sizes(looked) == [1] * LANES
        with pytest.raises(StoreUnusable):
            commit(looked)


def test_a_quiet_lane_marks_its_part(store: MessageStore) -> None:
    commit(store)
    mark(store)
    assert all(lane.marked == lane.under_way.forced_mark for lane in store._lanes)
