"""The disk in use while delayed messages lie thinly in every segment, are copied more than once, and are cancelled."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from stratalog.store import MessageStore
from stratalog.store.delayed import delays as delays_module
from stratalog.store.delayed.messages import figures_of
from stratalog.store.log.retention import held_bytes

from ..helpers import tiny, until
from .consumer import Hand, topic_of
from .test_retention import HOUR_MS, SEGMENT_BYTES, SIZE, fill, first_of, retire, taken

RETAINED_BYTES = 512 << 10
MESSAGE_BYTES = SIZE + 200  # with its columns, and the head of a copy
EVERY = 15


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays_module, "DROP_S", 0.0)
    monkeypatch.setattr(delays_module, "DROP_TIMES", 0)
    monkeypatch.setattr("stratalog.store.delayed.keeping.LOOK_S", 0.0)
    monkeypatch.setattr("stratalog.store.delayed.keeping.LOOK_TIMES", 0)
    monkeypatch.setattr("stratalog.store.log.retention_rounds.REST_S", 0.5)  # else `check` may wait for a minute


def folder_bytes(store: MessageStore) -> int:
    """Of all files, as the file system has them."""
    found = 0
    for path in Path(store.path).rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # the background may be renaming and removing
            found += path.stat().st_blocks * 512 if path.is_file() else 0
    return found


def check(store: MessageStore, pending: int) -> None:
    until(lambda: figures_of(topic_of(store))["copies"] <= pending)  # the delays' thread drops those of cancelled ones
    slack = 5 * SEGMENT_BYTES  # the open segments, the newest sealed one, and one that is being copied
    bound = RETAINED_BYTES + 1.5 * pending * MESSAGE_BYTES + slack
    spare = 4 * SEGMENT_BYTES  # pre-written segments, the index, records beside the log
    until(lambda: is_within(store, bound, spare))  # on a busy machine a copy or a seal may still be under way


def is_within(store: MessageStore, bound: float, spare: int) -> bool:
    """Whether the store has come to hold no more, now that its upkeep finds nothing to do."""
    retire(store)
    return held_bytes(store._lanes) <= bound and folder_bytes(store) <= bound + spare


def test_disk_is_bounded_with_pending_messages_in_every_segment_copies_of_copies_and_cancellations(
    tmp_path: Path, hand: Hand
) -> None:
    with hand.open(tmp_path / "s", tiny(retention_bytes=RETAINED_BYTES, segment_bytes=SEGMENT_BYTES)) as store:
        sub = store.subscribe("t", "a")
        pending: list[int] = []
        for _ in range(12):
            pending += fill(store, 6 * EVERY, EVERY, delay_ms=5 * HOUR_MS)
            taken(sub)
            hand.now_ms += 1_000
            check(store, len(pending))
        topic, keeping = topic_of(store), store._delaying.keeping
        assert keeping.copied_messages > len(topic.copies) > len(pending) // 2, "some were copied again"
        assert first_of(store) > pending[len(pending) // 2]
        for offset in set(pending) - set(pending[::10]):
            assert store.cancel_delayed("t", 0, offset)
        pending = pending[::10]
        for _ in range(4):
            fill(store, 6 * EVERY, 1 << 30, delay_ms=0)
            taken(sub)
            hand.now_ms += 1_000
            check(store, len(pending))
    with hand.open(tmp_path / "s", tiny(retention_bytes=RETAINED_BYTES)) as store:
        sub = store.subscribe("t", "a")
        assert taken(sub) == []
        until(lambda: not topic_of(store).is_lagging)
        hand.now_ms += 6 * HOUR_MS
        assert taken(sub) == pending
