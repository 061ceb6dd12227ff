"""Delayed indexes made in parts: the store opens with them, and delivers what one that was never closed would."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreConfig, StoreCorrupt, rebuild_store
from stratalog.store.api import rebuilding as rebuilding_module
from stratalog.store.delayed.due_scan import DueScan
from stratalog.store.format.layout import SEALED
from tests.seeds import draw_seed

from ..delayed.consumer import START_MS, Consumer, Got, Hand, topic_of
from ..helpers import crash_copy, overwrite, seal_of, segment_paths, tiny, until

COUNT = 150
TRIMMED = 5  # the first messages of a queue
LATER = 40  # messages that are due behind COUNT ms


@pytest.fixture
def hand() -> Hand:
    return Hand()


def make(path: Path, hand: Hand, seed: int, config: StoreConfig | None = None) -> None:
    """Some segments with delays of 1 .. COUNT ms, in no order; some are cancelled, some moved, some trimmed."""
    chance = random.Random(seed)
    delays = chance.sample(range(1, COUNT + 1), COUNT)
    with hand.open(path, config) as store:
        topic_of(store)
        for number, delay_ms in enumerate(delays):
            store.submit("t", number % 3, bytes(2_000), deliver_at_ms=START_MS + delay_ms)
            store.submit(chance.choice("tu"), 7, bytes(300))
            store.submit("u", 0, b"", deliver_at_ms=START_MS + delay_ms)  # a topic that has no index
        store.flush()
        for number in chance.sample(range(TRIMMED * 3, COUNT), 20):  # others a compaction may forget, at any time
            if number % 2:
                store.cancel_delayed("t", number % 3, number // 3)
            else:
                store.reschedule_delayed("t", number % 3, number // 3, START_MS + chance.randrange(1, 2 * COUNT))
        store.trim("t", 0, before_offset=TRIMMED)
        for number in range(LATER):
            store.submit("t", number % 3, bytes(2_000), deliver_at_ms=START_MS + COUNT + number)


def deliveries(store: MessageStore, hand: Hand) -> list[list[Got]]:
    """What comes in each ms until all has come."""
    consumer = Consumer(store)
    until(lambda: not topic_of(store).is_lagging)
    found = []
    for _ in range(2 * COUNT + 100):
        found.append(consumer.poll())
        hand.now_ms += 1
    return found


def rows_of_an_opening(path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many rows an opening adds to the index from the log, and how many are pending then."""
    rows, look = [0], DueScan.look

    def counted(scan: DueScan, due_after_ms: int) -> Any:
        found = look(scan, due_after_ms)
        rows[0] += 0 if found is None else len(found.rows.numbers)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(DueScan, "look", counted)
        with hand.open(path) as store:
            until(lambda: not topic_of(store).is_lagging)
            assert topic_of(store).last_rebuild is None
            return rows[0], topic_of(store).pending


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("how", ["closed", "crashed"])
def test_opening_takes_the_index_over_and_delivers_all_once_in_order(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch, how: str, lanes: int
) -> None:
    make(tmp_path / "closed", hand, draw_seed(), tiny(lanes=lanes))
    path = tmp_path / how
    if how == "crashed":
        with hand.open(tmp_path / "closed") as store:
            store.append("t", 1, b"", deliver_at_ms=START_MS + 3)
            crash_copy(tmp_path / "closed", path)
    shutil.rmtree(path / "delayed")
    shutil.copytree(path, tmp_path / "other")
    all_rows, pending = rows_of_an_opening(tmp_path / "other", Hand(), monkeypatch)
    done = rebuild_store(path, now_ms=START_MS)
    assert done.delayed.keys() == {"t"} and 0.6 * pending < done.delayed["t"] <= pending + 40
    rows, found = rows_of_an_opening(path, Hand(), monkeypatch)
    assert found == pending and rows < all_rows / 3  # those of the segments that are not sealed
    with hand.open(path) as store, Hand().open(tmp_path / "other") as other:
        one, other_hand = deliveries(store, hand), Hand()
        other.close()
        with other_hand.open(tmp_path / "other") as again:
            assert one == deliveries(again, other_hand)


def test_index_takes_the_place_of_a_damaged_one(tmp_path: Path, hand: Hand) -> None:
    make(tmp_path, hand, 3)
    (folder,) = (tmp_path / "delayed").iterdir()
    (folder / "MANIFEST").write_bytes(b"nonsense")
    rebuild_store(tmp_path, now_ms=START_MS)
    assert not (tmp_path / "rebuild").exists()
    with hand.open(tmp_path) as store:
        assert (topic_of(store).rebuilds, topic_of(store).last_rebuild) == (0, None)


@pytest.mark.parametrize("passed_ms", [COUNT // 2, 10 * COUNT])
def test_what_is_due_by_then_is_not_pending(tmp_path: Path, hand: Hand, passed_ms: int) -> None:
    make(tmp_path, hand, 4)
    done = rebuild_store(tmp_path, now_ms=START_MS + passed_ms)
    hand.now_ms += passed_ms
    with hand.open(tmp_path) as store:
        until(lambda: not topic_of(store).is_lagging)
        pending = topic_of(store).pending
    assert (pending == done.delayed["t"] == 0) is (passed_ms > COUNT)
    assert done.delayed["t"] <= max(0, COUNT - passed_ms) + LATER  # one was due in each ms
    assert done.delayed["t"] <= pending + 20  # as many were cancelled, or moved, which the opening applies


@pytest.mark.parametrize("step", ["gather_dues", "join_index", "_put_index"])
def test_kill_at_each_step_leaves_an_index_that_is_right(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    make(tmp_path, hand, 5)
    with hand.open(tmp_path) as store:
        pending = topic_of(store).pending
    shutil.rmtree(tmp_path / "delayed")
    work = getattr(rebuilding_module, step)

    def killed(*given: Any, **named: Any) -> None:
        work(*given, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rebuilding_module, step, killed)
        with pytest.raises(KeyboardInterrupt):
            rebuild_store(tmp_path, now_ms=START_MS)
    with hand.open(tmp_path) as store:
        until(lambda: not topic_of(store).is_lagging)
        assert topic_of(store).pending == pending
    rebuild_store(tmp_path, now_ms=START_MS)
    assert not (tmp_path / "rebuild").exists()


def test_footer_that_hides_messages_is_an_error_and_changes_no_index(tmp_path: Path, hand: Hand) -> None:
    make(tmp_path, hand, 6)
    segment = segment_paths(tmp_path)[1]
    record = seal_of(segment)
    assert record is not None and record.state == SEALED
    overwrite(segment, record.footer_position, bytes(record.footer_bytes))
    before = {path: path.read_bytes() for path in (tmp_path / "delayed").rglob("*") if path.is_file()}
    with pytest.raises(StoreCorrupt, match="footer"):
        rebuild_store(tmp_path, footers=False, now_ms=START_MS)
    assert {path: path.read_bytes() for path in (tmp_path / "delayed").rglob("*") if path.is_file()} == before
    done = rebuild_store(tmp_path, now_ms=START_MS)
    assert done.footers == 1 and done.delayed["t"] > COUNT / 3


def test_store_without_delays_has_nothing_to_make(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append("t", 0, b"")
    assert rebuild_store(tmp_path) == (0, [], {})
    assert not (tmp_path / "delayed").exists()
