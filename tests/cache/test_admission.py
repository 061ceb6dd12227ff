"""The admission threshold (R17): for any distribution of sizes, and for uniform ones the closed form."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.cache.admission import EVERYTHING, Admission
from stratalog.cache.histogram import SizeHistogram, class_of

from ..seeds import draw_seed

Ints = npt.NDArray[np.int64]
Maker = Callable[[np.random.Generator, int], Ints]
LARGEST = 17 * 1024


def bimodal(rng: np.random.Generator, count: int) -> Ints:
    small, large = rng.normal(300, 30, count), rng.normal(12_000, 500, count)
    return np.clip(np.where(rng.random(count) < 0.8, small, large), 1, LARGEST).astype(np.int64)


SIZES: dict[str, Maker] = {
    "uniform": lambda rng, count: rng.integers(0, LARGEST + 1, count),
    "log-normal": lambda rng, count: np.clip(rng.lognormal(6.5, 1.2, count), 1, 1 << 20).astype(np.int64),
    "bimodal": bimodal,
    "constant": lambda rng, count: np.full(count, 4321, np.int64),
}


def generator() -> np.random.Generator:
    return np.random.default_rng(draw_seed())


@pytest.mark.parametrize("part", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("name", SIZES)
def test_the_cache_is_full_and_nothing_under_the_threshold_was_refused(name: str, part: float) -> None:
    sizes = SIZES[name](generator(), 100_000)
    total = int(sizes.sum())
    capacity = int(total * part)
    admission, free = Admission(expected_bytes=total), capacity
    admitted = np.zeros(len(sizes), np.bool_)
    for which in np.array_split(np.arange(len(sizes)), 1000):
        admitted[which] = admission.admit(sizes[which], free)
        free -= int(sizes[which][admitted[which]].sum())
        assert free >= 0
    assert free <= 0.01 * capacity
    # With hindsight there is one threshold for the whole run; what is clearly below it was let in, but for the
    # first few messages, when little was known, and the last few.
    hindsight = SizeHistogram()
    hindsight.add(sizes)
    below = sizes < 0.9 * hindsight.largest_within(capacity, total)
    assert int((below & ~admitted).sum()) <= 0.002 * len(sizes)


@pytest.mark.parametrize("name", SIZES)
def test_every_message_up_to_the_threshold_has_room_when_it_comes(name: str) -> None:
    sizes = SIZES[name](generator(), 50_000)
    capacity = int(sizes.sum()) // 4
    admission, free = Admission(expected_bytes=int(sizes.sum())), capacity
    for size in sizes[:3_000].tolist():  # one by one: the threshold that counts is the one just computed
        admitted = bool(admission.admit(np.array([size]), free)[0])
        assert admitted == (size <= admission.threshold_bytes)
        free -= size * admitted
        assert free >= 0


@pytest.mark.parametrize("part", [0.1, 0.25, 0.5, 0.81])
def test_uniform_sizes_give_the_closed_form(part: float) -> None:
    histogram = SizeHistogram()
    sizes = generator().integers(0, LARGEST + 1, 400_000)
    histogram.add(sizes)
    expected = 1e12  # far more than one message, so that only the share counts
    threshold = histogram.largest_within(part * expected, expected)
    assert threshold == pytest.approx(LARGEST * math.sqrt(part), rel=0.01)


def test_the_threshold_comes_down_to_what_is_left_and_up_when_something_is_released() -> None:
    admission = Admission(expected_bytes=10_000_000)
    sizes = np.arange(1, 1001)
    admission.admit(sizes, 1_000_000)
    scarce = admission.threshold_bytes
    admission.admit(sizes, 4_000_000)
    assert scarce < admission.threshold_bytes < 1000


def test_everything_is_admitted_when_everything_fits() -> None:
    admission = Admission(expected_bytes=1000)
    assert admission.admit(np.array([100, 900]), 10_000).tolist() == [True, True]
    assert admission.threshold_bytes == EVERYTHING


def test_more_than_was_expected_is_no_error() -> None:
    admission, free, kept = Admission(expected_bytes=1000), 5_000, 0
    for _ in range(100):
        sizes = np.full(10, 100)
        kept += int(sizes[admission.admit(sizes, free - kept)].sum())
    assert kept == free


def test_a_full_cache_admits_nothing() -> None:
    assert not Admission(expected_bytes=1000).admit(np.array([1, 10]), 0).any()


def test_without_expectation_everything_is_admitted() -> None:
    assert Admission().admit(np.array([1, 1 << 40]), 0).all()


def test_an_empty_batch_is_no_error() -> None:
    assert len(Admission(expected_bytes=10).admit(np.empty(0, np.int64), 5)) == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=50))
def test_classes_are_in_order_of_size_and_narrow(sizes: list[int]) -> None:
    column = np.array(sorted(sizes), np.int64)
    classes = class_of(column)
    assert bool((np.diff(classes) >= 0).all())
    for number in np.unique(classes):
        members = column[classes == number]
        assert int(members[-1]) - int(members[0]) <= int(members[0]) / 64


def test_empty_messages_count_and_all_of_them_fit() -> None:
    histogram = SizeHistogram()
    assert histogram.largest_within(10, 100) == 10  # nothing is known yet
    histogram.add(np.zeros(3, np.int64))
    assert histogram.largest_within(10, 100) == np.iinfo(np.int64).max


def test_nothing_fades_before_more_was_counted_than_is_kept() -> None:
    histogram = SizeHistogram(fade_bytes=1000)
    histogram.add(np.full(10, 100))
    assert histogram.total_bytes == 1000
    histogram.add(np.full(1, 1))
    assert histogram.total_bytes == 500.5


def test_old_sizes_fade() -> None:
    histogram = SizeHistogram(fade_bytes=10_000)
    histogram.add(np.full(90, 100))
    for _ in range(20):
        histogram.add(np.full(9, 1000))
    assert histogram.bytes_seen[class_of(np.array([100]))[0]] < 0.01 * histogram.total_bytes
    assert histogram.total_bytes <= 10_000
