"""The shortest way of `read_batch`: the same messages as the others give, in all the shapes that it takes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreCorrupt
from stratalog.store.read.recent import FEW_MESSAGES, Recent

from ..seeds import draw_seed
from .helpers import small, until

QUEUE = ("t", 0)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call was answered by the shortest way."""
    found: list[bool] = []
    real = Recent.read_batch

    def read_batch(self: Recent, *given: Any) -> Any:
        batch = real(self, *given)
        found.append(batch is not None)
        return batch

    monkeypatch.setattr(Recent, "read_batch", read_batch)
    return found


@pytest.mark.parametrize(
    "beside",
    [
        pytest.param(False, id="in the writer"),
        pytest.param(True, id="in a reader beside it", marks=pytest.mark.linux),
    ],
)
def test_it_gives_what_read_gives(folder: Path, taken: list[bool], *, beside: bool) -> None:
    draw = random.Random(draw_seed())
    config = small(segment_bytes=4 << 20, recent_bytes=256 << 10)
    with MessageStore.open(folder, config) as store, MessageStore.open(folder, read_only=True) as other:
        reader = other if beside else store

        def is_taken() -> bool:
            store.append(*QUEUE, b"x")
            return len(reader.read_batch(*QUEUE)) > 0 and taken[-1]

        until(is_taken)  # a reader beside it has to find the mirror
        for _ in range(40):
            for _ in range(draw.choice((1, 3))):
                rows = [("t", draw.randrange(3), draw.randbytes(draw.choice((0, 1, 99, 300)))) for _ in range(200)]
                store.append_batch(rows[: draw.choice((1, 20, 200))])
            end = store.queue_bounds(*QUEUE)[1]
            offset, most = draw.randint(max(0, end - 300), end), draw.choice((1, FEW_MESSAGES, FEW_MESSAGES + 1, 500))
            size = draw.choice((1 << 20, 2000))
            batch, wanted = (
                reader.read_batch(*QUEUE, offset, max_messages=most, max_bytes=size),
                store.read(*QUEUE, offset, max_messages=most, max_bytes=size),
            )
            assert batch.messages() == wanted
            assert batch.offsets.tolist() == [message.offset for message in wanted]
    assert sum(taken) > 10


@pytest.mark.parametrize("count", [FEW_MESSAGES, 2 * FEW_MESSAGES])
def test_messages_with_optional_columns_go_another_way(folder: Path, taken: list[bool], count: int) -> None:
    with MessageStore.open(folder, small()) as store:
        for at in range(count):
            store.append(*QUEUE, b"%d" % at, key=b"k" if at == count // 2 else None)
        batch = store.read_batch(*QUEUE, 0, max_messages=count)
        assert [message.key for message in batch.messages()].index(b"k") == count // 2
        assert taken == [False]


@pytest.mark.parametrize("count", [FEW_MESSAGES, 2 * FEW_MESSAGES])
def test_wrong_bytes_in_the_ring_are_damage(folder: Path, count: int) -> None:
    with MessageStore.open(folder, small()) as store:
        store.append_batch([(*QUEUE, b"a message %d" % at) for at in range(count)])
        segment, table = store._lanes[0].view.open[-1]
        assert segment.base is not None
        at = store._lanes[0].ring._place(segment.base + table.flat[3 * (count - 1)])[0]
        store._lanes[0].ring._map[at] ^= 1
        assert len(store.read_batch(*QUEUE, 0, max_messages=count)) == count - 1
        with pytest.raises(StoreCorrupt):
            store.read_batch(*QUEUE, count - 1, max_messages=count)


@pytest.mark.parametrize("count", [FEW_MESSAGES, 2 * FEW_MESSAGES])
def test_messages_that_are_overtaken_while_they_are_copied_come_from_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, taken: list[bool], count: int
) -> None:
    with MessageStore.open(folder, small(segment_bytes=4 << 20)) as store:
        store.append_batch([(*QUEUE, b"a message %d" % at) for at in range(count)])
        ring = store._lanes[0].ring
        real, held_up = ring.copies, list[int]()

        def copies(*given: Any) -> list[bytes]:
            if not held_up:
                held_up.append(1)
                store.append_batch([("other", 0, b"\xff" * 60_000)] * (ring.size_bytes // 60_000 + 2))
            return real(*given)

        monkeypatch.setattr(ring, "copies", copies)
        found = [message.data for message in store.read_batch(*QUEUE, 0, max_messages=count).messages()]
        assert found == [b"a message %d" % at for at in range(count)]
        assert held_up and taken == [False]
