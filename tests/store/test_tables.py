"""Batches as tables of Arrow and of pandas."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import MessageBatch, MessageStore, StoreError

pa = pytest.importorskip("pyarrow")

DUE_MS = 4_000_000_000_000


def fill(store: MessageStore) -> None:
    store.append("t", 3, b"plain")
    store.append("t", 3, b"", key=b"k", properties={"a": "1", "b": "\xe4"})
    store.append("t", 3, b"late" * 100, deliver_at_ms=DUE_MS)
    store.append("t", 3, b"last", key=b"")


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "sealed or closed"])
def test_a_table_has_what_the_messages_have(tmp_path: Path, *, is_open: bool) -> None:
    with MessageStore.open(tmp_path) as store:
        fill(store)
        if is_open:
            check(store.read_batch("t", 3), store)
    with MessageStore.open(tmp_path, read_only=True) as reader, MessageStore.open(tmp_path) as store:
        check(reader.read_batch("t", 3), store)
        for batch in reader.scan():
            batch.to_arrow().validate(full=True)


def check(batch: MessageBatch, store: MessageStore) -> None:
    table = batch.to_arrow()
    table.validate(full=True)
    rows = table.to_pylist(maps_as_pydicts="strict")
    messages = store.read("t", 3)
    assert [tuple(row) for row in rows] == [tuple(message.__slots__) for message in messages]
    assert rows == [{name: getattr(message, name) for name in message.__slots__} for message in messages]
    frame = batch.to_pandas()
    assert frame["offset"].tolist() == [0, 1, 2, 3]
    assert frame["data"].tolist() == [message.data for message in messages]
    assert frame["deliver_at_ms"].isna().tolist() == [True, True, False, True]
    assert frame["deliver_at_ms"][2] == DUE_MS  # an integer of 64 bits, not a float
    assert frame["properties"][1] == {"a": "1", "b": "\xe4"}


def test_payloads_that_lie_back_to_back_are_not_copied(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append_batch([("t", 0, b"%03d" % at) for at in range(200)])
        batch = store.read_batch("t", 0)
        data = batch.to_arrow()["data"].chunk(0).buffers()[2]
        assert data.address in range_of(batch)


def range_of(batch: MessageBatch) -> range:
    begin = np.frombuffer(batch.buffer, np.uint8).ctypes.data
    return range(begin, begin + len(batch.buffer))


def test_a_table_of_no_messages_has_all_columns(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        assert store.read_batch("t", 0).to_arrow().num_rows == 0
        fill(store)
        empty = store.read_batch("t", 3, 4)
        assert empty.to_arrow().schema == store.read_batch("t", 3).to_arrow().schema
        assert empty.to_pandas().empty


def test_properties_that_are_no_text_are_an_error_that_says_so(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append("t", 0, b"x", properties={"a": "\ud800"})
        with pytest.raises(StoreError, match="properties cannot be decoded"):
            store.read_batch("t", 0).to_arrow()


def test_a_table_of_deliveries(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        fill(store)
        with store.subscribe("t", "s") as sub:
            assert sub.receive_batch().to_arrow()["offset"].to_pylist() == [0, 1, 3]


def test_without_the_packages_an_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path) as store:
        fill(store)
        batch = store.read_batch("t", 3)
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(StoreError, match="pip install"):
            batch.to_pandas()
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(StoreError, match="pip install"):
            batch.to_arrow()
