"""A filter that is wrong gives an error that says where, and what is expected there."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import InvalidMessage, MessageStore
from stratalog.store.filters.given import check_filter
from stratalog.store.filters.message_filter import MessageFilter
from stratalog.store.filters.parser import MOST_CHARACTERS, MOST_DEPTH

from ..helpers import tiny
from .wrong import MARK, WRONG


@pytest.mark.parametrize(("marked", "expected"), WRONG)
def test_a_wrong_filter_says_where_it_is_wrong_and_what_is_expected(marked: str, expected: str) -> None:
    assert marked.count(MARK) == 1
    with pytest.raises(InvalidMessage) as caught:
        check_filter(marked.replace(MARK, ""))
    assert caught.value.position == marked.index(MARK) + 1
    assert expected in str(caught.value.expected)
    assert f"at character {caught.value.position}: expected {caught.value.expected}, found " in str(caught.value)


def test_there_are_a_hundred_wrong_filters_and_no_two_alike() -> None:
    assert len({marked.replace(MARK, "") for marked, _ in WRONG}) == len(WRONG) > 100


def test_the_error_of_a_filter_is_copied_and_pickled_with_its_place() -> None:
    with pytest.raises(InvalidMessage) as caught:
        check_filter("price >")
    for twin in (copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
        assert (twin.position, twin.expected, str(twin)) == (8, caught.value.expected, str(caught.value))


def test_another_error_has_no_place() -> None:
    with pytest.raises(InvalidMessage) as caught:
        check_filter({"tag": []})
    assert (caught.value.position, caught.value.expected) == (None, None)


@pytest.mark.parametrize(
    "hostile",
    [
        "(" * (MOST_DEPTH + 1) + "a = 1" + ")" * (MOST_DEPTH + 1), "(" * MOST_CHARACTERS, "NOT (" * 2000,
        "a = 1 OR " * 1000, "a IN (" + "'x'," * 3000, "'" * MOST_CHARACTERS, "'" * (MOST_CHARACTERS - 1),
        "1" * MOST_CHARACTERS + "x", "/*" * 4096, "/**" * 2000, "-" * MOST_CHARACTERS, " " * 10_000_000,
        "a = 1e" + "9" * 1000, "\0", "\ud800", "a = 1 \N{ZERO WIDTH SPACE}", "NOT " * 2048, '"' * 8191,
    ],
)  # fmt: skip
def test_a_hostile_filter_is_refused_by_an_error_of_the_package(hostile: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        check_filter(hostile)
    assert caught.value.position is not None and 1 <= caught.value.position <= len(hostile) + 1
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "long",
    [
        "NOT " * 2000 + "a = 1", "(" * MOST_DEPTH + "a = 1" + ")" * MOST_DEPTH, " OR ".join(["a = 1"] * 900),
        " AND ".join(["NOT a = 2"] * 500), "a IN (" + ",".join(["'x'"] * 2000) + ")", "a = 1" + " " * 8000,
        "NOT (" * (MOST_DEPTH - 1) + "a BETWEEN (1) AND (2)" + ")" * (MOST_DEPTH - 1),
    ],
)  # fmt: skip
def test_a_long_filter_is_read_and_answered_without_a_deep_stack(long: str) -> None:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 400)
    try:
        MessageFilter(check_filter(long) or "").takes(b'{"a":"1"}')
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("odd", [1, b"a = 1", [], {}, 1.5, object(), ["a = 1"], True])
def test_what_is_neither_text_nor_mapping_is_refused(odd: object) -> None:
    with pytest.raises(InvalidMessage, match="filter is a mapping such as"):
        check_filter(odd)


class Cross(dict[str, list[str]]):
    """A mapping that raises."""

    def items(self) -> Any:
        raise RuntimeError("cross")


def test_a_mapping_that_raises_is_refused_by_an_error_of_the_package() -> None:
    with pytest.raises(InvalidMessage, match="filter is a mapping such as"):
        check_filter(Cross(tag=["a"]))


class Text(str):
    """A text of a user's own class, which lies about itself."""

    def __str__(self) -> str:
        return "b = 2"


def test_a_text_of_another_class_is_kept_as_what_it_is(tmp_path: Path) -> None:
    checked = check_filter(Text("a = 1"))
    assert type(checked) is str and checked == "a = 1"


def test_a_wrong_filter_makes_no_subscription_and_no_scan(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        for call in (lambda: store.subscribe("t", "a", filter="tag ="), lambda: store.scan(filter="tag =")):
            with pytest.raises(InvalidMessage) as caught:
                call()
            assert caught.value.position == 6
        assert store.subscriptions() == []
