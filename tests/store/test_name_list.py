"""The names of a lane's streams in two columns are a list of pairs to those who use it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stratalog.store.format.layout import MAX_QUEUE_ID
from stratalog.store.recovery.name_list import NameList

NAMES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 1, 257, MAX_QUEUE_ID])), max_size=8)


@given(NAMES, st.integers(0, 7), st.tuples(st.just("new"), st.integers(0, MAX_QUEUE_ID)))
def test_names_are_those_that_were_put_in(pairs: list[tuple[str, int]], at: int, other: tuple[str, int]) -> None:
    names = NameList(pairs)
    copied = names.copy()
    assert list(names) == pairs and len(names) == len(pairs)
    assert [names[number] for number in range(len(pairs))] == pairs
    if at < len(pairs):
        names[at] = other
        assert list(names) == [*pairs[:at], other, *pairs[at + 1 :]]
    names.append(other)
    assert names[len(pairs)] == other and list(copied) == pairs


@given(NAMES, NAMES)
def test_names_are_a_prefix_of_others_as_lists_are(some: list[tuple[str, int]], others: list[tuple[str, int]]) -> None:
    assert NameList(some).is_prefix_of(NameList(others)) == (others[: len(some)] == some)
    assert NameList(some).is_prefix_of(NameList(some + others))


@given(NAMES)
def test_columns_of_names_give_them_again(pairs: list[tuple[str, int]]) -> None:
    topics, topic_of, queue_of = NameList(pairs).columns()
    assert len(topics) == len(set(topics))
    assert [(topics[topic], queue) for topic, queue in zip(topic_of.tolist(), queue_of.tolist(), strict=True)] == pairs
