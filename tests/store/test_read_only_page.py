"""The live page: its bytes, its two slots, and what a reader makes of them."""

from __future__ import annotations

import shutil
import threading
import time
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import MessageStore, StoreError, StoreUnusable
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.mapped import MappedFile
from stratalog.store.format.layout import DATA_START, MAX_LANES
from stratalog.store.format.live_page import (
    BELL_AT,
    LANES_AT,
    LIVE_FILE,
    PAGE_BYTES,
    SLOT_BYTES,
    LaneState,
    LiveHeader,
    mark_at,
    mark_of,
    mark_word,
    newest_state,
    slot_at,
)
from stratalog.store.format.store_files import StoreHeader
from stratalog.store.live.follower import AWAKE_S, LOOK_S
from stratalog.store.live.page import LivePage
from stratalog.store.live.publisher import RING_EVERY_S, Publisher

from .helpers import PATIENCE_S, has_settled, tiny, until


def page_of(folder: Path) -> bytes:
    return (folder / LIVE_FILE).read_bytes()


def state_in(folder: Path, lane: int = 0) -> LaneState:
    page = page_of(folder)
    state = newest_state(page[slot_at(lane, 0) : slot_at(lane, 0) + 2 * SLOT_BYTES])
    assert state is not None
    return state


def mark_in(folder: Path, lane: int = 0) -> tuple[int, int]:
    return mark_of(int.from_bytes(page_of(folder)[mark_at(lane) :][:8], "little"), state_in(folder, lane).mark)


def test_golden_bytes() -> None:
    """The page is a part of the format."""
    header = LiveHeader(2, bytes(range(16)), 7, bytes(range(16, 32)), 4711, 3)
    assert header.pack().hex() == (
        "534c4f474c495632" "01000000" "02000000" + bytes(range(16)).hex() + "0700000000000000"
        + bytes(range(16, 32)).hex() + "6712000000000000" "0300000000000000" + header.pack()[-8:].hex()
    )  # fmt: skip
    assert LiveHeader.unpack(header.pack() + bytes(100)) == header
    state = LaneState(9, 1, 4, 5, 8_192)
    assert state.pack()[:40] == array("Q", [9, 1, 4, 5, 8_192]).tobytes()
    assert (LANES_AT, SLOT_BYTES, BELL_AT, PAGE_BYTES) == (4096, 64, 2048, 12_288)
    assert (mark_at(0), mark_at(MAX_LANES - 1) + 8 <= LANES_AT) == (2056, True)
    assert mark_word((5, 8_192)) == 5 << 40 | 8_192
    assert (slot_at(0, 0), slot_at(0, 1), slot_at(3, 1)) == (4096, 4160, 4096 + 7 * 64)


def test_mark_is_told_by_one_word_beside_another_mark() -> None:
    for near in (1, 3, 1 << 24, (1 << 24) - 1, 5 << 24, (1 << 40) + 7):
        for further in (0, 1, 2, 1000, 1 << 22, -1, -3):
            if near + further >= 0:
                mark = (near + further, (1 << 40) - 4096)
                assert mark_of(mark_word(mark), (near, 17)) == mark


def test_page_says_how_far_each_lane_is(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=3)) as store:
        header = LiveHeader.unpack(page_of(tmp_path))
        assert header is not None
        assert (header.lanes, header.openings, header.inode) == (3, 1, (tmp_path / LIVE_FILE).stat().st_ino)
        for number in range(200):
            store.append("t", number, bytes(1500))
        until(lambda: has_settled(store) and all(lane.view.sealed for lane in store._lanes))
        for lane in store._lanes:
            until(lambda lane=lane: state_in(tmp_path, lane.index).sealed == lane.view.sealed[-1].segment.sequence)  # type: ignore[misc]
            state = state_in(tmp_path, lane.index)
            assert mark_in(tmp_path, lane.index) == lane.under_way.forced_mark >= state.mark
            assert (state.first, state.position > DATA_START) == (1, True)
    with MessageStore.open(tmp_path) as store:
        assert state_in(tmp_path).bell >= state.bell
        again = LiveHeader.unpack(page_of(tmp_path))
        assert again is not None
        assert again == header._replace(openings=2)


def test_page_has_what_an_answer_told(tmp_path: Path) -> None:
    """An answer comes after the page."""
    with MessageStore.open(tmp_path, tiny()) as store:
        before = mark_in(tmp_path)
        for _ in range(50):
            store.append("t", 0, b"x")
            mark = mark_in(tmp_path)
            assert mark > before
            before = mark


def test_slots_and_bell_follow_the_mark_after_a_quiet_time(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(10):
            before = state_in(tmp_path)

            def follows() -> bool:
                """Not where the background has just moved them."""
                time.sleep(2 * RING_EVERY_S)
                store.append("t", 0, b"x")
                return state_in(tmp_path).mark == mark_in(tmp_path)

            until(follows)
            assert state_in(tmp_path).bell > before.bell
            assert state_in(tmp_path).mark > before.mark


def test_mark_of_another_boot_counts_by_its_slot_alone(tmp_path: Path) -> None:
    """The word has no checksum: it counts as long as it has not left the memory."""
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
        header = StoreHeader.unpack((tmp_path / "STORE").read_bytes())
        assert header is not None
        page = LivePage.of(OsDisk(), tmp_path, header)
        assert page is not None and page.is_current
        true = page.state(0)
        assert true is not None
        publisher: Any = store._running.live
        publisher._page.set_word(mark_at(0), mark_word((true.sequence, true.position + 4096)))
        assert page.state(0) == true._replace(position=true.position + 4096)
        page.is_current = False
        assert page.state(0) == state_in(tmp_path)


def test_slot_that_is_half_written_hides_no_earlier_state(tmp_path: Path) -> None:
    """A kill in the middle of it leaves the other slot."""
    with MessageStore.open(tmp_path, tiny()) as store, MessageStore.open(tmp_path, read_only=True) as reader:
        count = 0
        for _ in range(19):
            written: list[tuple[int, bytes, int, int]] = []
            publisher: Any = store._running.live
            page = publisher._page
            real = page.store_and_set

            def torn(at: int, data: bytes, *bell: int, written: list[Any] = written, page: Any = page) -> None:
                if not written:  # killed in the middle, so before the bell, and before all that would come
                    written.append((at, data, *bell))
                    page.store(at, data[:20])

            page.store_and_set = torn
            while not written:  # by an append, and now and then by the seal of a segment
                time.sleep(2 * RING_EVERY_S)  # then the next append writes a slot, unless the background just has
                store.append("t", 0, b"y")
                count += 1
            with MessageStore.open(tmp_path, read_only=True) as fresh:
                assert fresh.queue_bounds("t", 0)[1] in (count - 1, count)
            page.store_and_set = real
            real(*written[-1])
        store.append("t", 0, b"z")
        assert reader.queue_bounds("t", 0) == (0, count + 1)


def test_message_behind_the_mark_is_not_shown(tmp_path: Path) -> None:
    """A frame may be durable in part: only the messages that end at the mark or before it are shown."""
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append_batch([("t", 0, b"%d" % number * 1000) for number in range(4)])
        publisher: Any = store._running.live
        sequence, position = mark_in(tmp_path)  # the slot may be older, if the background has written it just before
        real = state_in(tmp_path)._replace(sequence=sequence, position=position)
        for behind, count in ((0, 4), (1, 3), (999, 3), (1000, 3), (1001, 2), (4000, 0)):
            state = real._replace(bell=real.bell + 100 + behind, position=real.position - behind)
            publisher._page.set_word(mark_at(0), mark_word(state.mark))
            publisher._page.store(slot_at(0, behind), state.pack())
            publisher._page.store(slot_at(0, behind + 1), bytes(SLOT_BYTES))
            with MessageStore.open(tmp_path, read_only=True) as reader:
                assert reader.queue_bounds("t", 0) == (0, count), behind
                assert sum(len(batch) for batch in reader.scan()) == count


def test_whoever_sleeps_on_the_page_after_a_quiet_time_is_woken(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        mapped = MappedFile(tmp_path / LIVE_FILE, PAGE_BYTES, BELL_AT, write=False)
        for _ in range(20):
            moves = b""
            while moves != page_of(tmp_path):  # a reader sleeps only after so long a time without a move
                moves = page_of(tmp_path)
                time.sleep(AWAKE_S)
            seen, woken = int.from_bytes(moves[BELL_AT:][:8], "little"), threading.Event()
            asleep = threading.Event()

            def sleep(seen: int = seen, woken: threading.Event = woken, asleep: threading.Event = asleep) -> None:
                asleep.set()
                mapped.sleep(seen, 10 * PATIENCE_S)
                woken.set()

            threading.Thread(target=sleep, daemon=True).start()
            assert asleep.wait(PATIENCE_S)
            store.append("t", 0, b"x")
            assert woken.wait(PATIENCE_S / 4)


def test_store_works_where_there_can_be_no_page(tmp_path: Path) -> None:
    """It is not worth an append. The next opening tries again."""

    class NoPage(OsDisk):
        def rename(self, old: Path, new: Path) -> None:
            if new.name == LIVE_FILE:
                raise OSError(28, "no space")
            super().rename(old, new)

    with MessageStore.open(tmp_path, tiny(), disk=NoPage()) as store:
        assert store.append("t", 0, b"x") == 0
        assert "readers in other processes cannot follow" in str(store.stats()["last_background_error"])
        assert not (tmp_path / LIVE_FILE).exists()
    with MessageStore.open(tmp_path, read_only=True) as reader:
        assert reader.queue_bounds("t", 0) == (0, 1)
    with MessageStore.open(tmp_path, tiny()) as store:
        assert (tmp_path / LIVE_FILE).exists()


def test_page_of_another_store_is_replaced(tmp_path: Path) -> None:
    for name in "ab":
        with MessageStore.open(tmp_path / name, tiny()) as store:
            store.append("t", 0, name.encode())
    (tmp_path / "a" / LIVE_FILE).write_bytes(page_of(tmp_path / "b"))
    with MessageStore.open(tmp_path / "a", read_only=True) as reader:
        assert not reader.stats()["live"]["page"]
        assert reader.read("t", 0)[0].data == b"a"
    with MessageStore.open(tmp_path / "a", tiny()), MessageStore.open(tmp_path / "a", read_only=True) as reader:
        assert reader.stats()["live"]["current"]


def test_any_bytes_in_the_page_make_no_reader_see_what_is_not_there(tmp_path: Path) -> None:
    """Sound by its checksums, and nonsense: a reader sees true messages, fewer, or raises an error of the store's."""
    with MessageStore.open(tmp_path, tiny()) as store:
        for number in range(60):
            store.append("t", 0, b"%d" % number * 500)
    chance = np.random.default_rng(5)
    page = bytearray(page_of(tmp_path))
    for round_ in range(60):
        numbers = [int(chance.integers(0, high)) for high in (4, 6, 6, 70_000)]
        page[slot_at(0, 0) : slot_at(0, 0) + 48] = LaneState(1000 + round_, *numbers).pack()
        page[slot_at(0, 1) : slot_at(0, 1) + 48] = bytes(48)
        word = mark_word((numbers[0], numbers[3])) if round_ % 2 else int(chance.integers(0, 1 << 63))
        page[mark_at(0) : mark_at(0) + 8] = word.to_bytes(8, "little")
        (tmp_path / LIVE_FILE).open("r+b").write(page)
        try:
            with MessageStore.open(tmp_path, read_only=True) as reader:
                first, end = reader.queue_bounds("t", 0)
                for message in reader.read("t", 0, first, max_messages=100):
                    assert message.data == b"%d" % message.offset * 500
                assert end <= 60
        except StoreError:
            continue


def test_publisher_without_a_mapping_disk_says_so(tmp_path: Path) -> None:
    class Unmapped(OsDisk):
        def map(self, path: Path, size_bytes: int, bell_at: int) -> MappedFile:
            raise OSError("this disk maps no files")

    publisher = Publisher(Unmapped(), tmp_path, bytes(16))
    publisher.begin([])
    assert publisher.error is not None


def test_reader_is_told_when_another_store_has_taken_its_folder(tmp_path: Path) -> None:
    """A removed folder alone takes nothing from it; another store's messages are never given as its own."""
    folder = tmp_path / "store"
    with MessageStore.open(folder) as store:
        store.append("t", 0, b"old")
    with MessageStore.open(folder, read_only=True) as reader:
        assert reader.queue_bounds("t", 0) == (0, 1)
        shutil.rmtree(folder)
        time.sleep(1.1 * LOOK_S)
        assert reader.read("t", 0)[0].data == b"old"
        with MessageStore.open(folder) as store:
            for _ in range(5):
                store.append("t", 0, b"new")
            time.sleep(1.1 * LOOK_S)
            with pytest.raises(StoreUnusable, match="another store"):
                reader.read("t", 0)
            with pytest.raises(StoreUnusable, match="open it again"):
                reader.read("t", 0, 1, wait_ms=60_000)
