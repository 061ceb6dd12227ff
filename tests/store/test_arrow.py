"""Arrow's columns of byte strings: keys, payloads and properties without a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import InvalidMessage, MessageStore, arrow_column

from .helpers import small

pa: Any = pytest.importorskip("pyarrow")
VALUES = [b"one", b"", b"three", b"\xff" * 300]


@pytest.mark.parametrize("kind", ["binary", "large_binary"])
@pytest.mark.parametrize(("begin", "end"), [(0, 4), (1, 3), (2, 2), (4, 4)])
def test_column_is_the_arrays_own_buffer(kind: str, begin: int, end: int) -> None:
    array = pa.array(VALUES, getattr(pa, kind)())[begin:end]
    lengths, data = arrow_column(array)
    assert lengths.tolist() == list(map(len, VALUES[begin:end])) and bytes(data) == b"".join(VALUES[begin:end])
    if begin < end:
        own = np.frombuffer(array.buffers()[2], np.uint8)
        assert np.shares_memory(own, np.frombuffer(data, np.uint8))


def test_strings_and_fixed_sizes() -> None:
    assert bytes(arrow_column(pa.array(["ü", "x"]))[1]) == "üx".encode()
    lengths, data = arrow_column(pa.array([b"aa", b"bb", b"cc"], pa.binary(2))[1:])
    assert lengths.tolist() == [2, 2] and bytes(data) == b"bbcc"


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(2)])
def test_null_has_the_length_minus_1(kind: Any) -> None:
    array = pa.array([b"aa", None, b"bb", None], kind)
    for part, expected in ((array, [2, -1, 2, -1]), (array[1:3], [-1, 2]), (pa.array([None], kind), [-1])):
        lengths, data = arrow_column(part)
        assert lengths.tolist() == expected
        assert bytes(data) == b"".join(value for value in part.to_pylist() if value)


def test_arrow_columns_are_appended(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        keys, texts = pa.array([b"k", None, b"", None]), pa.array([None, '{"a":"b"}', None, None])
        store.append_columns(
            [("t", 0)], pa.array([0] * 4), *arrow_column(pa.array(VALUES)), arrow_column(keys), arrow_column(texts),
            pa.array([1, -1, -1, -1]),
        )  # fmt: skip
        found = store.read("t", 0)
    assert [message.data for message in found] == VALUES
    assert [message.key for message in found] == [b"k", None, b"", None]
    assert [message.properties for message in found] == [None, {"a": "b"}, None, None]
    assert [message.deliver_at_ms for message in found] == [1, None, None, None]


def test_a_null_payload_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store, pytest.raises(InvalidMessage, match="row 1"):
        store.append_columns([("t", 0)], [0, 0], *arrow_column(pa.array([b"a", None])))


def test_error_says_how_to_get_a_column_that_can_be_taken() -> None:
    chunks = pa.chunked_array([[b"a"], [b"b"]])
    with pytest.raises(InvalidMessage, match="combine_chunks"):
        arrow_column(chunks)
    assert bytes(arrow_column(chunks.combine_chunks())[1]) == b"ab"
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    with pytest.raises(InvalidMessage, match=r"not dictionary.*array.cast\('large_binary'\)"):
        arrow_column(words)
    assert bytes(arrow_column(words.cast("large_string"))[1]) == b"aba"


@pytest.mark.parametrize("wrong", [b"abc", [b"a"], pa.array([1, 2]), pa.chunked_array([[b"a"], [b"b"]])])
def test_other_things_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidMessage, match="column of bytes"):
        arrow_column(wrong)
