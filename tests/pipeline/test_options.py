"""Options and columns whose values say nothing or too little: an error, not fewer rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stratalog.pipeline.errors import BadOption
from stratalog.pipeline.options import check_schema, listed, read_options
from stratalog.pipeline.sink_columns import columns_of
from stratalog.store import InvalidMessage, MessageStore

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("name", ["topic", "queue_id", "columns", "path"])
@pytest.mark.parametrize("text", [",", " , ,"])
def test_an_option_of_commas_alone_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(BadOption, match=f"option {name} has commas alone"):
        listed({name: text}, name)
    MessageStore.open(tmp_path).close()
    with pytest.raises(BadOption, match=f"option {name} has commas alone"):
        read_options({"path": str(tmp_path), name: text})


@pytest.mark.parametrize("text", ["", "  "])
def test_a_blank_option_is_none(text: str) -> None:
    assert listed({"topic": text}, "topic") is None


def test_the_schema_decides_the_order_of_the_columns(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    options = read_options({"path": str(tmp_path), "columns": "offset,data", "on_damage": "report"})
    check_schema(options, ["data", "damage", "offset"])
    for names in (["data", "damage"], ["data", "offset"], ["data", "damage", "offset", "topic"]):
        with pytest.raises(BadOption, match="name other columns"):
            check_schema(options, names)


def batch_with(times: Any) -> pa.RecordBatch:
    count = len(times)
    return pa.RecordBatch.from_arrays(
        [pa.array(["t"] * count), pa.array([0] * count, pa.int32()), pa.array([b"x"] * count), times],
        names=["topic", "queue_id", "data", "deliver_at"],
    )


@pytest.mark.parametrize("early", [timedelta(milliseconds=-1), timedelta(microseconds=-1), timedelta(days=-1)])
def test_a_delivery_time_before_1970_is_refused_with_its_row(early: timedelta) -> None:
    times = pa.array([None, EPOCH, EPOCH + early], pa.timestamp("us", tz="UTC"))
    with pytest.raises(InvalidMessage, match=r"row 2 .*before 1970"):
        columns_of(batch_with(times))


def test_a_delivery_time_of_minus_1_ms_is_refused_and_null_is_none() -> None:
    with pytest.raises(InvalidMessage, match=r"row 1 .*before 1970"):
        columns_of(batch_with(pa.array([None, -1, 5], pa.int64())))
    found = columns_of(batch_with(pa.array([None, 0, 5], pa.int64()))).deliver_at_ms
    assert found is not None
    assert found.tolist() == [-1, 0, 5]
