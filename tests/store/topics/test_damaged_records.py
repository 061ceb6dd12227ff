"""Damage of what a store remembers is told by each call that needs it, also if it hides the oldest records."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.store import Delivery, MessageStore, StoreCorrupt, Subscription
from stratalog.store.format.layout import BLOCK_BYTES, DATA_START, SealRecord

from ..helpers import frames_of
from .keeping import data_of, fill, leave, look_at_once, opened, places

NEVER_MS = 1 << 49


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_once(monkeypatch)


def oldest(path: Path) -> Path:
    """The oldest segment of a store of one lane."""
    return min(path.glob("lane-*/*.seg"))


def damage_index(path: Path) -> None:
    """Nobody can know any more which messages the oldest segment has: its footer and its frames' heads are damaged."""
    content = bytearray(oldest(path).read_bytes())
    record = SealRecord.unpack(bytes(content[BLOCK_BYTES:DATA_START]))
    assert record is not None
    content[record.footer_position + 20] ^= 1
    for frame in frames_of(oldest(path)):
        content[frame.header.position + 20] ^= 1
    oldest(path).write_bytes(content)


def damage_text(path: Path, text: bytes) -> set[str]:
    """Flip a bit of a text wherever it is in the log: the files that have it."""
    found = set()
    for file in sorted(path.glob("lane-*/*.seg")):
        content, at = bytearray(file.read_bytes()), -1
        while (at := content.find(text, at + 1)) >= 0:
            content[at] ^= 1
            found.add(str(file))
        file.write_bytes(content)
    assert found
    return found


def begun(path: Path, first: Callable[[MessageStore], object]) -> None:
    """A store of which retention has removed the beginning. What `first` does is in the oldest segment, whose index is
    damaged, and many segments follow.
    """
    store, remove = opened(path)
    with store:
        store.configure_topic("gone", keep="until_acknowledged")
        sub = store.subscribe("gone", "a")
        fill(store, 60, "gone")
        fill(store, 1, "other")  # it holds its segment
        first(store)
        sub.skip_all()
        fill(store, 100, "other")
        fill(store, 20, "t", 1)
        remove()
    assert int(oldest(path).stem) > 1
    damage_index(path)


def test_settings_in_a_segment_that_nobody_can_read_are_not_taken_for_the_defaults(tmp_path: Path) -> None:
    begun(tmp_path, lambda store: store.configure_topic("empty", queues=3))
    with opened(tmp_path)[0] as store:
        with pytest.raises(StoreCorrupt, match="damaged"):
            store.topic_settings("empty")
        assert "empty" in store.topics()


def test_ids_in_a_segment_that_nobody_can_read_are_not_free_again(tmp_path: Path) -> None:
    def first(store: MessageStore) -> None:
        store.configure_topic("u", queues=1)
        for number in range(3):
            store.append("t", 0, b"first", message_id=f"o-{number}")

    begun(tmp_path, first)
    with opened(tmp_path)[0] as store:
        with pytest.raises(StoreCorrupt, match="damaged"):
            store.append("t", 0, b"again", message_id="o-1")
        assert store.queue_bounds("t", 0)[1] == 3


def test_a_subscription_in_a_segment_that_nobody_can_read_is_not_made_anew(tmp_path: Path) -> None:
    begun(tmp_path, lambda store: store.subscribe("t", "a", filter="n = '3'").close())
    with opened(tmp_path)[0] as store, pytest.raises(StoreCorrupt, match="damaged"):
        store.subscribe("t", "a").receive(10)


def moved(path: Path) -> list[tuple[int, int]]:
    """A work queue whose waiting jobs live on as copies: where they are."""
    store, remove = opened(path)
    with store:
        store.configure_topic("t", keep="until_acknowledged")
        sub = store.subscribe("t", "a")
        left: list[tuple[int, int]] = []
        for _ in range(4):
            fill(store, 100)
            left = sorted(leave(sub, lambda at: at % 20 == 3))
            remove()
        first = store.queue_bounds("t", 0)[0]
        waiting = [place for place in left if place[1] < first]
        assert len(waiting) > 5
    return left


def received(sub: Subscription) -> tuple[list[Delivery], list[StoreCorrupt]]:
    """All that a consumer gets, and what it is told."""
    came, told, quiet = list[Delivery](), list[StoreCorrupt](), 0
    while quiet < 3:
        try:
            got = sub.receive(7)
        except StoreCorrupt as error:
            told.append(error)
            got = []
        came += got
        quiet = 0 if got else quiet + 1
    return came, told


def data_in(offset: int) -> bytes:
    """Bytes of a message that no other has."""
    return data_of(0, offset)[:64]


def test_a_consumer_hears_of_a_damaged_copy_once_and_gets_all_others(tmp_path: Path) -> None:
    left = moved(tmp_path)
    files = damage_text(tmp_path, data_in(left[0][1]))
    for _ in range(2):
        with opened(tmp_path)[0] as store:
            for _ in range(2):
                with store.subscribe("t", "a") as sub:
                    came, told = received(sub)
                    assert sorted(places(came)) == left[1:]
                    assert len(told) == 1 and told[0].file in files


def test_a_consumer_hears_of_copies_in_a_segment_that_nobody_can_read(tmp_path: Path) -> None:
    left = moved(tmp_path)
    damage_index(tmp_path)
    with opened(tmp_path)[0] as store:
        try:
            came, told = received(store.subscribe("t", "a"))
        except StoreCorrupt as error:  # its acknowledgements are there, too
            came, told = [], [error]
        assert told and {error.file for error in told} == {str(oldest(tmp_path))}
        assert set(places(came)) <= set(left)


def test_a_damaged_copy_comes_again_when_its_file_is_put_back(tmp_path: Path) -> None:
    path = tmp_path / "s"
    left = moved(path)
    shutil.copytree(path, tmp_path / "whole")
    files = damage_text(path, data_in(left[0][1]))
    with opened(path)[0] as store:
        sub = store.subscribe("t", "a")
        sub.ack_batch(received(sub)[0])
        for topic in list(store._delaying.delays.with_copies):
            store._delaying.delays.drop_copies(topic)
    for file in files:
        shutil.copy(tmp_path / "whole" / Path(file).relative_to(path), file)
    with opened(path)[0] as store:
        came, told = received(store.subscribe("t", "a"))
        assert (places(came), told) == ([left[0]], [])
