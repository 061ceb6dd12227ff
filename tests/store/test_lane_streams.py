"""What recovery takes a stream's number for."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import StoreCorrupt
from stratalog.store.device.disk import OsDisk
from stratalog.store.recovery.lane_streams import MOST_UNNAMED, LaneStreams
from stratalog.store.recovery.repair import Repair


def streams(tmp_path: Path) -> LaneStreams:
    return LaneStreams(3, Repair(OsDisk(), tmp_path / "quarantine", 3, allowed=True))


def test_stream_whose_name_was_lost_gets_one_of_ours(tmp_path: Path) -> None:
    lane = streams(tmp_path)
    lane.know(2, None, tmp_path / "segment")
    assert list(lane.names) == [("lost-name-3", 0), ("lost-name-3", 1)]
    assert (lane.next_offsets, lane.unnamed) == ([0, 0], 2)


def test_number_beyond_all_reason_is_refused_at_once(tmp_path: Path) -> None:
    lane = streams(tmp_path)
    with pytest.raises(StoreCorrupt, match="a stream's number makes no sense"):
        lane.know(MOST_UNNAMED + 1, None, tmp_path / "segment")
    assert list(lane.names) == []
