"""The checker sees what a reader does wrong: each kind of fault is counted as what it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.perf.workload.checker import Counts, QueueReader
from stratalog.perf.workload.contest import Content, QueueAddress
from stratalog.store import OffsetOutOfRange

QUEUE = 1
MESSAGES = 50
CONTENT = Content(11, 2000, pool_bytes=1 << 16)
ADDRESSES = [QueueAddress("other", 0), QueueAddress("topic", 4)]

Tamper = Callable[[list[bytes]], list[bytes]]


def messages(count: int = MESSAGES) -> list[bytes]:
    """A queue's messages as written."""
    return [CONTENT.make(QUEUE, serial, 100 + serial) for serial in range(count)]


def counts_of(stored: list[bytes], first: int = 0, end: int = MESSAGES, fetch: int = 7) -> Counts:
    """Reads a queue that holds `stored` as the workload does, to the end."""

    def get_range(topic: str, queue_id: int, offset: int, fetch_num: int) -> dict[int, bytes]:
        assert (topic, queue_id) == ADDRESSES[QUEUE]
        if offset > len(stored):
            raise OffsetOutOfRange(topic, queue_id, offset, 0, len(stored))
        return dict(enumerate(stored[offset : offset + fetch_num]))

    reader = QueueReader(get_range, ADDRESSES, CONTENT)
    reader.start(QUEUE, first)
    while reader.next_offset[QUEUE] < end and reader.read(QUEUE, fetch):
        pass
    reader.finish(QUEUE, end)
    return reader.counts


def swapped(stored: list[bytes]) -> list[bytes]:
    return [*stored[:20], stored[21], stored[20], *stored[22:]]


def flipped(stored: list[bytes], position: int) -> list[bytes]:
    harmed = bytearray(stored[20])
    harmed[position] ^= 0x10
    return [*stored[:20], bytes(harmed), *stored[21:]]


@pytest.mark.parametrize("fetch", [1, 7, 100])
@pytest.mark.parametrize(
    ("tamper", "expected"),
    [
        (lambda stored: stored, Counts()),
        (lambda stored: stored[:20] + stored[21:], Counts(lost=1)),
        (lambda stored: stored[:20] + stored[25:], Counts(lost=5)),
        (lambda stored: stored[:-3], Counts(lost=3)),
        (lambda stored: [], Counts(lost=MESSAGES)),
        (lambda stored: [*stored[:20], stored[19], *stored[20:]], Counts(duplicated=1)),
        (lambda stored: [*stored, stored[-1]], Counts(duplicated=1)),
        (lambda stored: [*stored[:20], stored[19], *stored[21:]], Counts(lost=1, duplicated=1)),
        (swapped, Counts(out_of_order=1)),
        (lambda stored: flipped(stored, 0), Counts(corrupted=1)),
        (lambda stored: flipped(stored, 4), Counts(corrupted=1)),
        (lambda stored: flipped(stored, 60), Counts(corrupted=1)),
        (lambda stored: [*stored[:20], stored[20][:-1], *stored[21:]], Counts(corrupted=1)),
        (lambda stored: [*stored[:20], b"", *stored[21:]], Counts(corrupted=1)),
        (lambda stored: [*stored[:20], CONTENT.make(0, 20, 300), *stored[21:]], Counts(corrupted=1)),
    ],
)
def test_fault_is_counted_as_what_it_is(tamper: Tamper, expected: Counts, fetch: int) -> None:
    found = counts_of(tamper(messages()), fetch=fetch)
    assert found == expected
    assert found.clean == (expected == Counts())


def test_hot_reader_owes_nothing_before_its_start() -> None:
    assert counts_of(messages(), first=30) == Counts()
    assert counts_of(messages()[:45], first=30) == Counts(lost=5)


def test_message_that_was_never_written_is_counted() -> None:
    assert counts_of(messages(MESSAGES + 1)) == Counts(duplicated=1)


def test_counts_add_up() -> None:
    total = Counts(lost=1)
    total.add(Counts(lost=2, corrupted=3, wrong_offsets=1))
    assert total == Counts(lost=3, corrupted=3, wrong_offsets=1)
