"""Any sequence of calls does what a dict does that is sorted at each look."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.index import BucketTracker, Tracker

from .kinds import KINDS, Make, Model, check, on_disk, reopened, taken

LIMIT_BYTES = 200_000

POSITION = st.tuples(st.integers(0, 3), st.integers(0, 40) | st.integers(65_500, 65_600))
DELAY = st.integers(-20, 100) | st.integers(0, 5_000)
STEP = st.one_of(
    st.tuples(st.just("add"), st.lists(st.tuples(POSITION, DELAY), max_size=30)),
    st.tuples(st.just("one"), st.tuples(POSITION, DELAY)),
    st.tuples(st.just("stretch"), st.tuples(POSITION, DELAY, st.integers(1, 3_000))),
    st.tuples(st.just("cancel"), st.lists(POSITION, max_size=30)),
    st.tuples(st.just("move"), st.lists(st.tuples(POSITION, DELAY), max_size=5)),
    st.tuples(st.just("take"), st.tuples(st.integers(-5, 3_000), st.sampled_from([0, 1, 9, 1 << 40]))),
    st.tuples(st.just("trim"), st.integers(0, 3)),
    st.tuples(st.just("tick"), st.sampled_from([1, 2, 100, 1_100])),
    st.tuples(st.just("clear"), st.just(None)),
    st.tuples(st.just("reopen"), st.booleans()),
    st.tuples(st.just("shrink"), st.none()),
    st.tuples(st.just("merge"), st.integers(1, 3_000)),
)  # fmt: skip


def step(tracker: Tracker, model: Model, now_ms: int, name: str, value: Any) -> int:
    """Do it with both, and compare the answers. The time after it."""
    if name == "add":
        columns = [[position[0] for position, _ in value], [position[1] for position, _ in value],
                   [max(0, now_ms + delay) for _, delay in value]]  # fmt: skip
        assert tracker.add_messages(*columns) == model.add(*columns)
    elif name == "one":
        (ledger, entry), delay = value
        time_ms = max(0, now_ms + delay)
        assert tracker.add_message(ledger, entry, time_ms) == bool(model.add([ledger], [entry], [time_ms]))
    elif name == "stretch":
        (ledger, entry), delay, count = value
        time_ms, entries = max(0, now_ms + delay), list(range(entry, entry + count))
        assert tracker.add_messages(ledger, entries, time_ms) == model.add([ledger] * count, entries, [time_ms] * count)
    elif name == "cancel":
        for position in value:
            assert tracker.cancel(*position) == model.cancel(*position)
    elif name == "move":
        for position, delay in value:
            if tracker.cancel(*position):
                assert model.cancel(*position)
                step(tracker, model, now_ms, "one", (position, delay))
    elif name == "take":
        now_ms += value[0]
        assert taken(tracker, now_ms, value[1]) == model.take(now_ms, value[1])
    elif name == "trim":
        assert tracker.trim(value) == model.trim(value)
    elif name == "tick":
        tracker.reset_tick_time(value)
        model.tick_ms = tracker.precision_ms
    elif name == "clear":
        tracker.clear()
        model.pending.clear()
    keep_up(tracker, name, value)
    return now_ms


def keep_up(tracker: Tracker, name: str, rows: int) -> None:
    """What changes nothing that can be asked."""
    if isinstance(tracker, BucketTracker):
        if name == "shrink":
            tracker.shrink()
        elif name == "merge":
            tracker.upkeep(rows)


MAKES: dict[str, Make] = {**KINDS, "at a limit of memory": partial(on_disk, memory_limit_bytes=LIMIT_BYTES)}


@pytest.mark.parametrize("kind", MAKES)
@settings(max_examples=120)
@given(bits=st.sampled_from([0, 0, 3, 10]), steps=st.lists(STEP, max_size=40))
def test_any_sequence_of_calls_does_what_a_sorted_list_does(kind: str, bits: int, steps: list[tuple[str, Any]]) -> None:
    tracker, model, now_ms = MAKES[kind](precision_bits=bits), Model(bits), 1_000
    for name, value in steps:
        if name == "reopen":
            tracker = reopened(tracker, value)
        now_ms = step(tracker, model, now_ms, name, value)
        check(tracker, model, now_ms)
    assert taken(tracker, 1 << 61) == model.take(1 << 61, 1 << 40)
    assert len(tracker) == 0
