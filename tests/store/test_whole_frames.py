"""A reader in another process that wants most of the messages has copies of whole frames, and these are right."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageBatch, MessageStore, StoreReader
from stratalog.store.device.ring import NOWHERE, Ring
from stratalog.store.format.layout import (
    BLOCK_BYTES,
    FRAME_HEADER_BYTES,
    HAS_PAYLOAD_CHECKSUM,
    FrameHead,
    FrameHeader,
    checksum64,
)
from stratalog.store.live import whole_frames
from stratalog.store.live.followed_ring import FollowedRing
from stratalog.store.live.whole_frames import LEAST_MESSAGES, LEAST_SHARE, WholeFrames

from ..seeds import draw_seed
from .helpers import small, until

pytestmark = [
    pytest.mark.linux,
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no such memory"),
]
SEGMENT_BYTES = 8 << 20
QUEUES = 4


class Both:
    """A writer, and a reader that has its mirror and reads `queues` of it."""

    def __init__(self, store: MessageStore, reader: StoreReader, queues: int) -> None:
        self.store, self.reader = store, reader
        self.draw = random.Random(draw_seed())
        self.sent: dict[int, list[bytes]] = {queue: [] for queue in range(queues)}
        self.at = dict.fromkeys(range(queues), 0)
        until(self.is_mirrored)
        self.wanted = QUEUES
        self.round()
        self.round()

    @property
    def ring(self) -> FollowedRing:
        ring = self.reader._lanes[0].ring
        assert isinstance(ring, FollowedRing)
        return ring

    def is_mirrored(self) -> bool:
        self.append(1)
        self.read(0)
        return self.ring.low != NOWHERE

    def append(self, count: int) -> None:
        queues = list(self.sent)
        rows = [("t", queue, self.draw.randbytes(self.draw.choice((0, 30, 90)))) for queue in queues * count]
        self.store.append_batch(rows)
        for _, queue, data in rows:
            self.sent[queue].append(data)

    def read(self, queue: int) -> MessageBatch:
        """What is new in a queue; all of it must be there, and right."""
        first = self.at[queue]
        batch = self.reader.read_batch("t", queue, first)
        assert [bytes(data) for data in batch.payloads()] == self.sent[queue][first:]
        assert batch.offsets.tolist() == list(range(first, len(self.sent[queue])))
        self.at[queue] += len(batch)
        return batch

    def round(self, wanted: int = QUEUES) -> list[MessageBatch]:
        """Two frames, and what is new in the first `wanted` queues."""
        for _ in range(2):
            self.append(2 * LEAST_MESSAGES // len(self.sent))
        return [self.read(queue) for queue in range(wanted)]


@contextmanager
def both_of(folder: Path, queues: int = QUEUES) -> Iterator[Both]:
    config = small(segment_bytes=SEGMENT_BYTES, recent_bytes=1 << 20)
    with MessageStore.open(folder, config) as store, MessageStore.open(folder, read_only=True) as reader:
        yield Both(store, reader, queues)


def are_of_one_copy(batches: list[MessageBatch]) -> bool:
    return all(batch.buffer.nbytes > batch.lengths.sum() and batch.buffer == batches[0].buffer for batch in batches)


def test_reader_of_all_queues_has_them_in_one_copy(folder: Path) -> None:
    with both_of(folder) as both:
        until(lambda: are_of_one_copy(both.round()))
        before = both.reader.stats()["reads"]["device_messages"]
        for _ in range(30):
            both.round()
        assert both.reader.stats()["reads"]["device_messages"] == before


def test_reader_of_few_messages_copies_no_whole_frame(folder: Path) -> None:
    with both_of(folder, queues=3 * LEAST_SHARE) as both:
        for _ in range(20):
            both.round(wanted=1)
        assert both.ring.span is None


def test_copies_of_small_frames_are_not_made(folder: Path) -> None:
    with both_of(folder) as both:
        until(lambda: are_of_one_copy(both.round()))
        both.append(2)
        for queue in both.at:
            both.read(queue)
        assert both.ring.span is None


def test_wrong_bytes_of_the_mirror_are_in_no_copy(folder: Path) -> None:
    with both_of(folder) as both:
        until(lambda: are_of_one_copy(both.round()))
        publisher: Any = both.store._running.live
        lane = publisher._mirror.lanes[0]
        both.append(2 * LEAST_MESSAGES // QUEUES)
        end = lane._words[1] % lane._size
        at = next(at for at in range(end - 1, 0, -1) if lane._bytes[at])  # a byte of the newest message
        lane._bytes[at] ^= 1
        for queue in both.at:
            both.read(queue)
        assert both.ring.span is None


def test_what_is_overtaken_while_it_is_copied_is_in_no_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with both_of(folder) as both:
        until(lambda: are_of_one_copy(both.round()))
        ring, held_up = both.ring, list[int]()
        real = ring.parts

        def parts(low: int, high: int) -> list[memoryview]:
            if not held_up:
                held_up.append(low)
                both.store.append_batch([("other", 0, b"\xff" * 60_000)] * (2 * ring.size_bytes // 60_000))
            return real(low, high)

        monkeypatch.setattr(ring, "parts", parts)
        both.round()
        assert held_up
        assert ring.span is None or ring.span.begin > held_up[0]


def test_batch_stays_as_it_is_and_its_buffer_is_used_again_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_frames, "BUFFER_BYTES", 128 << 10)
    with both_of(folder) as both:
        until(lambda: are_of_one_copy(both.round()))
        kept = [(batch, [bytes(data) for data in batch.payloads()]) for batch in both.round()]
        for at in range(60):
            if at % 3 == 0:  # a frame of another kind: what comes behind it is a span of its own
                both.store.append("other", 0, bytes(8192), key=b"k")
            both.round()
        assert all([bytes(data) for data in batch.payloads()] == datas for batch, datas in kept)
        pool = both.ring._whole._pool
        assert len(pool._kept) <= 4  # the one of the batches that are kept, and those that take turns


@pytest.mark.parametrize("lanes", [1, 8, 64])
def test_the_buffers_of_all_lanes_stay_within_their_bound_and_are_given_back(lanes: int) -> None:
    wholes = [WholeFrames(lanes) for _ in range(lanes)]
    for whole in wholes:
        kept = whole._pool
        views = [kept.lend(kept.take(512 << 10), 512 << 10) for _ in range(40)]
        assert len(views) == 40
    kept_bytes = sum(len(one.getbuffer()) for whole in wholes for one in whole._pool._kept)
    assert 0 <= kept_bytes <= max(whole_frames.KEPT_BYTES, lanes * whole_frames.LEAST_KEPT_BYTES)
    for whole in wholes:
        whole.let_go()
        assert not whole._pool._kept


def test_what_lies_between_two_frames_is_in_no_copy() -> None:
    ring, whole = Ring(1 << 20), WholeFrames()
    payload = bytes(8 * LEAST_MESSAGES)
    ring.reserve(1 << 16)

    def frame(position: int, number: int) -> FrameHead:
        """The frames have the checksums 1, 2, 3 .."""
        ring.fill(position + FRAME_HEADER_BYTES, [payload], len(payload))
        sizes = FRAME_HEADER_BYTES, LEAST_MESSAGES, len(payload)
        header = FrameHeader(
            HAS_PAYLOAD_CHECKSUM, 0, *sizes, 0, 1, position, 0, 0, 0, number - 1, checksum64(payload)
        )  # fmt: skip
        return FrameHead(header, b"", number)

    whole.note_read(LEAST_MESSAGES)
    whole.add(ring, 0, [frame(0, 1)], NOWHERE)
    first = frame(8192, 2)
    whole.add(ring, 0, [first], NOWHERE)
    assert whole.span is not None and (whole.span.begin, whole.span.end) == (8192, first.header.end)
    padded = frame(BLOCK_BYTES * 3, 3)
    whole.add(ring, 0, [padded], NOWHERE)
    assert (whole.span.begin, whole.span.end) == (8192, padded.header.end)
    behind = frame(padded.header.end + 100, 5)  # the fourth one is of another kind: nobody looked at its bytes
    whole.add(ring, 0, [behind], NOWHERE)
    assert (whole.span.begin, whole.span.end) == (behind.header.position, behind.header.end)
