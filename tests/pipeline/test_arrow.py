"""Arrow columns of bulk reads, without Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from stratalog import MessageStore, StoreError
from stratalog.pipeline.arrow import binary_array, joined, record_batch
from stratalog.pipeline.schema import ARROW_TYPES, MOST_MS, TYPES
from stratalog.pipeline.sink_columns import NEEDED, columns_of
from stratalog.store import Blobs, ScanBatch, StreamTable, plan_scan, read_part

SCHEMA = pa.schema([pa.field(name, ARROW_TYPES[name]) for name in TYPES])


def test_payloads_of_a_large_frame_are_not_copied(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append_columns([("t", 0)], np.zeros(100, np.int64), np.full(100, 9_000), bytes(900_000))
    [part] = plan_scan(tmp_path)
    [batch] = joined(read_part(part))
    assert isinstance(batch.payload, memoryview)
    data = record_batch(batch, SCHEMA, "here").column("data")
    assert data.buffers()[2].address == pa.py_buffer(batch.payload).address


def test_small_frames_are_joined_and_large_ones_stay_alone(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for size in (10, 20, 900_000, 30, 40):
            store.append("t", 0, bytes(size))
    [part] = plan_scan(tmp_path)
    batches = list(joined(read_part(part)))
    assert len(batches) <= 3 and [int(length) for one in batches for length in one.lengths] == [10, 20, 900_000, 30, 40]


def test_missing_and_empty_byte_strings_are_told_apart() -> None:
    array = binary_array(Blobs(np.array([2, -1, 0, 3, -1]), b"abcde"))
    array.validate(full=True)
    assert array.to_pylist() == [b"ab", None, b"", b"cde", None]
    assert binary_array(Blobs(np.array([], np.int64), b"")).to_pylist() == []


def test_properties_that_are_no_object_are_an_error_with_the_place() -> None:
    """No append takes them; a program that writes the format by itself may have."""
    two = np.array([7, 8])
    blobs = Blobs(np.array([-1, 3]), b"[1]")
    batch = ScanBatch(StreamTable.of([("t", 4)]), np.zeros(2, np.uint32), two, two, two * 0, b"", properties=blobs)
    with pytest.raises(StoreError, match="'t'/4 at offset 8 are no JSON object"):
        record_batch(batch, SCHEMA, "here")
    without = pa.schema([field for field in SCHEMA if field.name != "properties"])
    assert record_batch(batch, without, "here").num_rows == 2


@pytest.mark.parametrize("far", [MOST_MS + 1, 1 << 53, 10**16, 18_446_744_073_709_551, 18_446_746_000_000_000, 1 << 61,
                                 (1 << 62) - 1])  # fmt: skip
def test_times_that_rows_have_not_become_the_last_one_that_they_have(far: int) -> None:
    """In 64 bits of microseconds they would be long ago: a message for never would be delivered at once."""
    times = np.array([far, 1_700_000_000_123, MOST_MS])
    batch = ScanBatch(StreamTable.of([("t", 4)]), np.zeros(3, np.uint32), times * 0, times, times * 0, b"", times)
    rows = record_batch(batch, SCHEMA, "here")
    expected = [MOST_MS, 1_700_000_000_123, MOST_MS]
    for name in ("timestamp", "deliver_at"):
        assert rows.column(name).cast(pa.int64()).to_pylist() == [1_000 * one for one in expected]
        assert rows.column(name).to_pylist()[0].year == 9999
    taken = columns_of(pa.RecordBatch.from_pydict({name: rows.column(name) for name in (*NEEDED, "deliver_at")}))
    assert taken.deliver_at_ms is not None and taken.deliver_at_ms.tolist() == expected
    assert times[0] == far, "the batch's own column stays"
