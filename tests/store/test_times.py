"""Finding offsets by time, against a model: open and sealed segments, a clock that jumps, lost messages, damage."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from stratalog.store import InvalidMessage, InvalidTopic, MessageStore, StoreCorrupt

from ..seeds import draw_seed
from .helpers import flip_bit, has_settled, place_of, seal_of, segment_path, tiny, until

QUEUES = 3


class Clock:
    """Stands in for the system's clock in all lanes of a store."""

    def __init__(self, store: MessageStore) -> None:
        self.now_ms = 1_000_000
        for lane in store._lanes:
            lane._clock_ms = lambda: self.now_ms


def model(times: list[int], wanted_ms: int) -> int:
    """What `offset_at` should give for a queue with these times."""
    return next((offset for offset, time_ms in enumerate(times) if time_ms >= wanted_ms), len(times))


@pytest.mark.parametrize("goes_back", [False, True], ids=["clock goes on", "clock is set back"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_it_is_the_first_message_of_that_time_or_later(tmp_path: Path, lanes: int, goes_back: bool) -> None:
    chance = Random(draw_seed())
    times: list[list[int]] = [[] for _ in range(QUEUES)]

    def check(store: MessageStore) -> None:
        every = sorted({time_ms for some in times for time_ms in some})
        wanted = [*chance.sample(every, 20), 0, every[0] - 1, every[-1], every[-1] + 1, 1 << 61]
        for queue in range(QUEUES):
            for at in wanted + [one + 1 for one in wanted]:
                assert store.offset_at("t", queue, at) == model(times[queue], at), (queue, at)

    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        clock = Clock(store)
        for number in range(150):
            clock.now_ms += chance.randrange(-50 if goes_back else 0, 60)
            queue = chance.randrange(QUEUES)
            count = chance.randrange(1, 4)
            store.append_batch([("t", queue, bytes(chance.randrange(3000)))] * count)
            times[queue] += [clock.now_ms] * count
            if number % 50 == 49:
                check(store)
        until(lambda: bool(store.stats()["segments"]["sealed"]))
        check(store)
        told = [
            [message.timestamp_ms for message in store.read("t", queue, 0, max_messages=1000)]
            for queue in range(QUEUES)
        ]
        assert told == times
    with MessageStore.open(tmp_path) as store:
        check(store)


def test_a_queue_without_messages_begins_and_ends_at_0(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        assert store.offset_at("never", 0, 0) == store.offset_at("never", 0, timestamp_ms=1 << 61) == 0


def test_where_retention_has_removed_the_message_it_is_the_first_one_left(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=128 << 10)) as store:
        while store.queue_bounds("t", 0)[0] < 20:
            store.append("t", 0, bytes(3000))
        until(lambda: has_settled(store))
        first, next_offset = store.queue_bounds("t", 0)
        assert store.offset_at("t", 0, 0) == first
        assert store.offset_at("t", 0, time.time_ns() // 1_000_000 + 3_600_000) == next_offset


def sealed_store(folder: Path) -> dict[int, int]:
    """A closed store of several sealed segments, each message a ms later than the one before; {offset: time}."""
    times = {}
    with MessageStore.open(folder, tiny()) as store:
        clock = Clock(store)
        for offset in range(100):
            clock.now_ms += 1
            times[offset] = clock.now_ms
            store.append("t", 0, bytes(3000))
    return times


def test_lost_messages_are_passed_over(tmp_path: Path) -> None:
    times = sealed_store(tmp_path)
    with MessageStore.open(tmp_path) as store:
        lost = 7
        path, position = place_of(store, ("t", 0), lost)
    flip_bit(path, position)
    with MessageStore.open(tmp_path, repair=True) as store:
        assert [message.offset for message in store.read("t", 0, 6, max_messages=2)] == [6, 8]
        assert store.offset_at("t", 0, times[lost]) == 8
        assert store.offset_at("t", 0, times[6]) == 6
        assert store.offset_at("t", 0, times[60]) == 60


def test_damaged_entries_of_a_footer_are_noticed_and_the_frames_tell(tmp_path: Path) -> None:
    times = sealed_store(tmp_path)
    path = segment_path(tmp_path, 2)
    record = seal_of(path)
    assert record is not None
    with MessageStore.open(tmp_path) as store:
        footer = store._lanes[0].view.sealed[1].footer
        first, entries = int(footer.first[0]), footer.entries.tobytes()
        del footer
    place = path.read_bytes().index(entries, record.footer_position)
    flip_bit(path, place + 4 * 3, 2)  # the entry of its fourth message
    with MessageStore.open(tmp_path) as store:
        for offset in range(first, first + 8):
            assert store.offset_at("t", 0, times[offset]) == offset


def test_segment_that_hides_messages_is_an_error_only_where_it_may_have_the_answer(tmp_path: Path) -> None:
    times = sealed_store(tmp_path)
    path = segment_path(tmp_path, 2)
    record = seal_of(path)
    assert record is not None
    flip_bit(path, record.footer_position)
    flip_bit(path, 2 * 4096 + 20)  # and its first frame
    with MessageStore.open(tmp_path) as store:
        sealed = store._lanes[0].view.sealed
        last = sum(one.record.entries for one in sealed[:2]) - 1
        assert store.offset_at("t", 0, times[0]) == 0
        with pytest.raises(StoreCorrupt):
            store.offset_at("t", 0, times[last])
        assert store.offset_at("t", 0, times[last] + 1) == last + 1  # its seal record says that it is older
        assert store.offset_at("t", 0, times[99]) == 99


def test_what_is_no_time_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for wrong in (-1, 1.5, "now", None, True):
            with pytest.raises(InvalidMessage, match="timestamp_ms"):
                store.offset_at("t", 0, wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidTopic):
            store.offset_at("t", -1, 0)
