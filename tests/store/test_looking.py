"""Looking into a closed store: everything can be read, nothing changes, and nothing is taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stratalog.store import (
    MessageStore,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreUnusable,
    look_into_folder,
    verify_folder,
)

from .helpers import (
    contents,
    crash_copy,
    flip_bit,
    has_settled,
    overwrite,
    scanned,
    seal_of,
    segment_path,
    take_snapshot,
    tiny,
    until,
)

QUEUES = [("t", queue) for queue in range(4)]


def fill(folder: Path, crashed_to: Path | None = None, lanes: int = 2) -> dict[tuple[str, int], dict[int, bytes]]:
    """A store of sealed and open segments; what it holds."""
    with MessageStore.open(folder, tiny(lanes=lanes)) as store:
        for number in range(150):
            store.append("t", number % 4, b"%d" % number + bytes(number * 13 % 3000), key=b"k")
        if crashed_to is not None:
            crash_copy(folder, crashed_to)
        return contents(store, QUEUES)


def files(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in take_snapshot(folder).items() if name != "LOCK"}


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("crashed", [False, True])
def test_all_is_read_and_nothing_is_changed(tmp_path: Path, lanes: int, crashed: bool) -> None:
    expected = fill(tmp_path / "a", tmp_path / "b", lanes)
    folder = tmp_path / ("b" if crashed else "a")
    before = files(folder)
    with look_into_folder(folder) as store:
        assert contents(store, QUEUES) == scanned(store) == expected
        assert (store.topics(), store.queues("t")) == (["t"], [0, 1, 2, 3])
        assert store.offset_at("t", 0, 0) == 0
        assert {message.key for message in store.read("t", 1, 0, max_messages=100)} == {b"k"}
    assert files(folder) == before
    with MessageStore.open(folder) as store:
        assert contents(store, QUEUES) == expected
        assert store.append("t", 0, b"next") == len(expected["t", 0])
    assert verify_folder(folder).ok


def test_footer_of_an_earlier_life_of_the_file_is_not_believed(tmp_path: Path) -> None:
    """A file that is used again still has the old one where a segment of the same shape would have its own."""
    queue, folder = ("t", 0), tmp_path / "crashed"
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        for number in range(2):
            store.append(*queue, b"%04d" % number * 5000)
        store.append(*queue, b"%04d" % 2 * 5000)
        until(lambda: has_settled(store))
        store._upkeep.sealer.seal_full = lambda rest_s=0: None  # type: ignore[method-assign]
        for number in range(3, 7):
            store.append(*queue, b"%04d" % number * 5000)
        expected, bounds = contents(store, [queue]), store.queue_bounds(*queue)
        assert len(store._lanes[0].view.open) == 3
        crash_copy(tmp_path / "store", folder)
    old = segment_path(folder, 1)
    record = seal_of(old)
    assert record is not None
    overwrite(segment_path(folder, 2), record.footer_position, old.read_bytes()[record.footer_position :])
    with look_into_folder(folder) as store:
        assert store.queue_bounds(*queue) == bounds == (0, 7)
        assert store.offset_at(*queue, 1 << 60) == 7
        assert contents(store, [queue]) == scanned(store) == expected


def test_it_takes_no_message(tmp_path: Path) -> None:
    fill(tmp_path)
    before = files(tmp_path)
    with look_into_folder(tmp_path) as store:
        for call in (
            lambda: store.append("t", 0, b"x"), lambda: store.submit("new", 0, b"x"),  # type: ignore[attr-defined]
            lambda: store.append_batch([("t", 0, b"x")]), store.flush,  # type: ignore[attr-defined]
        ):  # fmt: skip
            with pytest.raises(StoreError, match="only looked at"):
                call()
    assert files(tmp_path) == before


def test_open_store_is_refused_and_while_it_is_looked_at_nobody_opens_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path), pytest.raises(StoreLocked), look_into_folder(tmp_path):
        pass
    with look_into_folder(tmp_path), pytest.raises(StoreLocked):
        MessageStore.open(tmp_path)
    MessageStore.open(tmp_path).close()


def test_what_is_no_store_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(StoreUnusable), look_into_folder(folder):
            pass
    assert list(tmp_path.iterdir()) == []


def test_damage_that_keeps_a_store_from_opening_is_told(tmp_path: Path) -> None:
    fill(tmp_path, lanes=1)
    flip_bit(segment_path(tmp_path, 1), 20)
    before = files(tmp_path)
    with pytest.raises(StoreCorrupt), look_into_folder(tmp_path):
        pass
    assert files(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_folder_that_may_not_be_written_can_be_looked_at(tmp_path: Path) -> None:
    expected = fill(tmp_path)
    paths = [tmp_path, *tmp_path.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with look_into_folder(tmp_path) as store:
            assert contents(store, QUEUES) == expected
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
