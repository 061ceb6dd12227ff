"""Retention where what it must say again takes as much space as what it removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import MessageStore

from ..helpers import KIB, has_settled, tiny, until

SUBSCRIPTIONS = 40  # their snapshots and trims take more than a segment of 64 KiB


def written(store: MessageStore) -> int:
    """Bytes of the log since the store was opened, padding among them."""
    return sum(lane.tail for lane in store._lanes)


def test_retention_ends_where_only_cursors_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a rest it wrote ten megabytes a second, for ever."""
    with MessageStore.open(tmp_path, tiny(retention_bytes=150 * KIB)) as store:
        for number in range(SUBSCRIPTIONS):
            store.subscribe("t", f"s{number}", start="earliest")
        for _ in range(300):
            store.append("t", 0, bytes(1000))
        until(lambda: has_settled(store))
        before, removal, looks = written(store), store._upkeep.removal, list[None]()
        retire = removal.retire

        def look() -> None:
            retire()
            looks.append(None)

        monkeypatch.setattr(removal, "retire", look)
        until(lambda: len(looks) >= 2)
        assert written(store) - before < 300 * KIB


def test_retention_goes_on_behind_a_rest_once_users_have_appended(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=150 * KIB)) as store:
        for number in range(SUBSCRIPTIONS):
            store.subscribe("t", f"s{number}", start="earliest")
        left = list[int]()
        for number in range(1, 6):
            for _ in range(300):
                store.append("t", 0, bytes(1000))
            until(lambda: has_settled(store))
            begin, end = store.queue_bounds("t", 0)
            assert end == 300 * number
            left.append(end - begin)
        assert min(left[1:]) < 10, left  # not each: a lap that begins late rests with what is held then, for a while
        assert len(store.subscriptions("t")) == SUBSCRIPTIONS
