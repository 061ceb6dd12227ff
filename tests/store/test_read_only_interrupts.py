"""A reader in another process whose look at what is new was interrupted, at each place of it, goes on rightly."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from itertools import islice

import pytest

from stratalog.store import MessageStore, StoreReader
from stratalog.store.live import whole_frames
from stratalog.store.live.whole_frames import LEAST_MESSAGES

from .helpers import memory_folder, small, until
from .interrupts import interrupt_at, places

pytestmark = [
    pytest.mark.linux,
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no such memory"),
]
COUNT = 2 * LEAST_MESSAGES
FRAMES = ("live/tail.py", "live/whole_frames.py", "live/followed_ring.py", "device/buffers.py", "segment/open_table.py")
SEGMENTS = ("live/lane.py",)


class Both:
    """A writer, and a reader that wants all of its messages."""

    def __init__(self, store: MessageStore, reader: StoreReader) -> None:
        self.store, self.reader = store, reader
        self.sent: list[bytes] = []

    def append(self, name: str = "other") -> None:
        """Two frames, and a frame of another kind."""
        for _ in range(2):
            first = len(self.sent)
            self.sent += [b"%060d" % number for number in range(first, first + COUNT)]
            self.store.append_batch([("t", 0, data) for data in self.sent[first:]])
        self.store.append(name, 0, b"")

    def read(self, first: int) -> list[bytes]:
        return [bytes(data) for data in self.reader.read_batch("t", 0, first).payloads()]

    def has_copies(self) -> bool:
        self.append()
        self.read(len(self.sent) - COUNT)
        return self.reader._lanes[0].ring.span is not None

    def segments(self) -> list[int]:
        view = self.reader._lanes[0].view
        return [one.segment.sequence for one in view.sealed] + [one.segment.sequence for one in view.open]


def look_at_places(some: Iterable[int], files: tuple[str, ...], segment_bytes: int, rounds: int) -> bool:
    """Interrupt a look of `rounds` rounds at each of these places; False if it ended before one."""
    config = small(segment_bytes=segment_bytes, recent_bytes=1 << 20)
    with (
        memory_folder() as folder, MessageStore.open(folder, config) as store,
        MessageStore.open(folder, read_only=True) as reader,
    ):  # fmt: skip
        both = Both(store, reader)
        until(both.has_copies)
        for place in some:
            first = len(both.sent)
            for _ in range(rounds):
                both.append(f"other-{place}")
            came, _ = interrupt_at(place, files, partial(both.read, first))
            assert both.read(first) == both.sent[first:], place
            segments = both.segments()
            assert segments == list(range(segments[0], segments[0] + len(segments))), place
            if not came:
                return False
    return True


def test_interrupted_look_at_new_frames_loses_and_repeats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_frames, "BUFFER_BYTES", 64 << 10)  # nearly each look begins another one
    assert not look_at_places(places(), FRAMES, 8 << 20, rounds=1)


def test_interrupted_look_at_new_segments_loses_and_repeats_nothing() -> None:
    following = places()
    while look_at_places(islice(following, 16), SEGMENTS, 64 << 10, rounds=3):  # the more segments, the more places
        pass
