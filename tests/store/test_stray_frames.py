"""A frame says how far the lane was durable, also in a file whose header never reached the device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreCorrupt, inspect_folder, verify_folder
from stratalog.store.format.layout import BLOCK_BYTES

from .helpers import frames_of, log_snapshot, overwrite, scanned, seal_of, segment_path, tiny
from .test_recovery import long_story

TINY = tiny()


@pytest.fixture(params=["alone", "with a segment behind"])
def crashed(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Segment 2 is not sealed and has lost its end; of segment 3 there is one frame, which claims that end.

    Of segment 4 there is the header, or nothing.
    """
    with MessageStore.open(tmp_path / "s", TINY) as store:
        long_story(store)
    path = tmp_path / "s"
    record = seal_of(segment_path(path, 2))
    assert record is not None
    overwrite(segment_path(path, 2), BLOCK_BYTES, bytes(BLOCK_BYTES))
    os.truncate(segment_path(path, 2), 32 << 10)
    first, *others = frames_of(segment_path(path, 3))
    assert first.header.durable_sequence == 2
    assert first.header.durable_position > 32 << 10
    overwrite(segment_path(path, 3), 0, bytes(2 * BLOCK_BYTES))
    os.truncate(segment_path(path, 3), others[0].header.position)
    kept = 4 if request.param == "with a segment behind" else 3
    if kept == 4:
        overwrite(segment_path(path, 4), BLOCK_BYTES, bytes(BLOCK_BYTES))
        os.truncate(segment_path(path, 4), 2 * BLOCK_BYTES)
    for sequence in range(kept + 1, 20):
        segment_path(path, sequence).unlink(missing_ok=True)
    return path


def test_lost_end_that_a_stray_frame_claims_is_reported_again_and_again(crashed: Path) -> None:
    assert "a frame is damaged or missing" in str(verify_folder(crashed).damages)
    assert inspect_folder(crashed)["problems"]
    before = log_snapshot(crashed)
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="a frame is damaged or missing") as caught:
            MessageStore.open(crashed, TINY)
        assert Path(caught.value.file) == segment_path(crashed, 2)
    assert log_snapshot(crashed).keys() == before.keys()  # nothing that tells of the loss is gone


def test_lost_end_that_a_stray_frame_claims_is_told_of_by_a_repair(crashed: Path) -> None:
    with MessageStore.open(crashed, TINY, repair=True) as store:
        assert [(Path(loss.file), loss.messages) for loss in store.losses] in (
            [(segment_path(crashed, 2), None)], [(segment_path(crashed, 2), None), (segment_path(crashed, 3), 0)],
        )  # fmt: skip
        rows = scanned(store)
    assert verify_folder(crashed).damages == []
    repaired = log_snapshot(crashed)
    with MessageStore.open(crashed, TINY, repair=True) as store:
        assert store.losses == []
        assert scanned(store) == rows
    assert log_snapshot(crashed) == repaired
