"""The contest workload: sizes, queues, plans and content."""

from __future__ import annotations

import numpy as np
import pytest

from stratalog.perf.workload.contest import (
    HEADER_BYTES,
    Content,
    Sizes,
    Workload,
    parse_bytes,
    queue_counts,
    running_serials,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1GiB", 1 << 30),
        ("64 MiB", 64 << 20),
        ("300MB", 300_000_000),
        ("1.5KiB", 1536),
        ("4096", 4096),
        ("7b", 7),
    ],
)
def test_human_sizes_parse(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GiB", "12 XB", "-1", "1 GiB more"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        parse_bytes(text)


def test_named_and_single_sizes_parse() -> None:
    assert Sizes.parse("contest") == Sizes(100, 17 << 10)
    assert Sizes.parse("small") == Sizes(100, 1000)
    assert Sizes.parse("1KiB") == Sizes(1024, 1024)
    with pytest.raises(ValueError, match="least"):
        Sizes.parse("3")


@pytest.mark.parametrize(("topics", "queues"), [(100, 20_000), (1, 1), (7, 7), (2, 20_000), (100, 1_000_000)])
def test_queue_counts_sum_and_stay_in_the_contests_bounds(topics: int, queues: int) -> None:
    counts = queue_counts(topics, queues)
    assert len(counts) == topics
    assert counts.sum() == queues
    assert counts.min() >= 1
    assert counts.max() <= 10_000


def test_serials_run_on_from_what_was_written() -> None:
    written = np.array([0, 5, 0], np.int64)
    serials = running_serials(np.array([1, 0, 1, 1, 2, 0], np.int64), written)
    assert serials.tolist() == [5, 0, 6, 7, 0, 1]
    assert written.tolist() == [2, 8, 1]


def test_same_seed_gives_the_same_plans() -> None:
    first, second = (Workload(7, Sizes.parse("small"), 3, 40).plan(100_000) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert list(one.rows()) == list(other.rows())
    assert list(Workload(8, Sizes.parse("small"), 3, 40).plan(100_000)[0].rows()) != list(first[0].rows())


def test_producers_share_no_queue_and_every_serial_comes_once_in_order() -> None:
    work = Workload(1, Sizes.parse("small"), 4, 40)
    seen: dict[int, int] = {}
    owner: dict[int, int] = {}
    for plans in (work.plan(200_000), work.plan(100_000)):
        for producer, plan in enumerate(plans):
            for queue, serial, _, _ in plan.rows():
                assert owner.setdefault(queue, producer) == producer
                assert serial == seen.get(queue, 0)
                seen[queue] = serial + 1
    assert seen == {queue: count for queue, count in enumerate(work.written.tolist()) if count}


def test_plan_has_about_the_bytes_asked_for() -> None:
    plans = Workload(1, Sizes.parse("contest"), 4).plan(64 << 20)
    assert sum(plan.payload_bytes for plan in plans) == pytest.approx(64 << 20, rel=0.03)


def test_planned_position_is_the_contents() -> None:
    work = Workload(3, Sizes.parse("small"), 2, 40)
    for queue, serial, _, start in work.plan(20_000)[1].rows():
        assert start == work.content.position(queue, serial)


def test_content_is_told_from_every_other_content() -> None:
    content = Content(5, 4000, pool_bytes=1 << 16)
    data = content.make(3, 9, 1000)
    assert len(data) == 1000
    assert content.matches(data, 3, 9)
    assert not content.matches(data, 3, 10)
    assert not content.matches(data, 4, 9)
    assert not content.matches(data[:-1], 3, 9)
    assert not content.matches(data + b"\0", 3, 9)
    assert not content.matches(b"", 3, 9)
    assert not Content(6, 4000, pool_bytes=1 << 16).matches(data, 3, 9)
    for position in (0, 5, HEADER_BYTES, 500, 999):
        flipped = bytearray(data)
        flipped[position] ^= 1
        assert not content.matches(bytes(flipped), 3, 9)


def test_hot_queues_are_half_of_all() -> None:
    hot = Workload(3, Sizes.parse("small"), 2, 41).choose_hot()
    assert hot.sum() == 20
