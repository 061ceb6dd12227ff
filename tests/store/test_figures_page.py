"""FIGURES: what a store tells those that watch it, and nobody else; no state of the page misleads a watcher."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog import MessageStore, StoreLocked, StoreReader, StoreUnusable
from stratalog.store import watch_folder
from stratalog.store.api.named_figures import MOST_QUEUES
from stratalog.store.device.descriptor import open_descriptor
from stratalog.store.device.disk import OsDisk
from stratalog.store.format.figures_page import FIGURES_BYTES, FIGURES_FILE, MOST_BODY_BYTES, FiguresPage
from stratalog.store.live import figures_teller, figures_watch
from stratalog.store.live.figures_teller import FiguresTeller, body_of
from stratalog.store.live.figures_watch import writer_of

from .helpers import PATIENCE_S, memory_folder, tiny, until


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made / "store"


def named(topics: int, size: int, figures: int = 1) -> dict[str, Any]:
    names = [f"{number}-" + "é" * size for number in range(topics)]
    return {
        "named": {
            "topics": [{"topic": name, "queues": 1, "appended": 5} for name in names],
            "subscriptions": [{"topic": name, "subscription": name, "unacknowledged": 1} for name in names],
            "left_out": {"topics": 0},
        },
        "delayed": {name: {f"figure{number}": 12_345_678 for number in range(figures)} for name in names},
    }


def test_a_page_comes_back_and_any_torn_or_foreign_one_says_nothing() -> None:
    page = FiguresPage(7, b'{"a":1}')
    packed = page.pack() + bytes(100)
    assert FiguresPage.unpack(packed) == page
    for at in range(len(page.pack())):
        assert FiguresPage.unpack(packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :]) is None
    for size in range(len(page.pack())):
        assert FiguresPage.unpack(packed[:size]) is None
    larger = FiguresPage(8, b"x" * 90).pack()
    for cut in range(1, len(larger)):  # half of the next one over this one
        torn = larger[:cut] + packed[cut:]
        assert FiguresPage.unpack(torn) in (None, page, FiguresPage(8, b"x" * 90))
    assert len(FiguresPage(1, bytes(MOST_BODY_BYTES)).pack()) == FIGURES_BYTES


def test_figures_that_are_too_large_lose_names_and_stay_json() -> None:
    small = json.loads(body_of(named(10, 10)))
    assert len(small["named"]["topics"]) == len(small["delayed"]) == 10
    body = body_of(named(100, 127, figures=40))
    large = json.loads(body)
    assert len(body) <= MOST_BODY_BYTES
    assert 25 <= len(large["named"]["topics"]) == len(large["named"]["subscriptions"]) < 100
    assert large["named"]["left_out"] == {"topics": 0}


def test_nobody_watches_and_nothing_is_written_or_asked_for(folder: Path) -> None:
    asked: list[int] = []
    MessageStore.open(folder, tiny()).close()

    def figures() -> dict[str, Any]:
        asked.append(1)
        return named(1, 1)

    teller = FiguresTeller(OsDisk(), folder, figures)
    before = sorted(folder.rglob("*"))
    for _ in range(3):
        teller.look()
    teller.close()
    assert asked == [] and sorted(folder.rglob("*")) == before


def test_while_somebody_watches_the_store_tells_once_a_second_and_then_no_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, is_watched = list[bool](), FiguresTeller._is_watched

    def noted(teller: FiguresTeller) -> bool:
        looks.append(is_watched(teller))
        return looks[-1]

    monkeypatch.setattr(FiguresTeller, "_is_watched", noted)
    with MessageStore.open(folder, tiny()) as store:
        store.append("t", 0, b"x")
        with watch_folder(folder) as watch:
            first = watch.next()
            assert (first["pid"], first["log"]["messages"]) == (os.getpid(), store.stats()["log"]["messages"])
            second = watch.next()
            assert second["at_ms"] - first["at_ms"] >= 990
        until(lambda: looks.count(False) >= 1)
        page, last = (folder / FIGURES_FILE).read_bytes(), looks.count(False)
        assert len(page) == FIGURES_BYTES
        until(lambda: looks.count(False) >= last + 2)
        assert (folder / FIGURES_FILE).read_bytes() == page
    assert not (folder / FIGURES_FILE).exists()


def test_a_page_that_a_killed_writer_left_is_not_taken_for_the_next_one(folder: Path) -> None:
    with MessageStore.open(folder, tiny()), watch_folder(folder) as watch:
        watch.next()
        left = (folder / FIGURES_FILE).read_bytes()
    (folder / FIGURES_FILE).write_bytes(left)
    with pytest.raises(StoreUnusable, match="nobody has the store"), watch_folder(folder):
        pass
    with MessageStore.open(folder, tiny()) as store:
        store.append("now", 0, b"x")
        with watch_folder(folder) as watch:
            assert [row["topic"] for row in watch.next()["named"]["topics"]] == ["now"]


def test_without_room_for_the_page_the_store_goes_on_and_tells_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: FiguresTeller) -> Any:
        raise OSError(28, "no space")

    monkeypatch.setattr(figures_teller, "EVERY_S", 0.0)
    with MessageStore.open(folder, tiny()) as store, watch_folder(folder) as watch:
        with monkeypatch.context() as patched:
            patched.setattr(FiguresTeller, "_made", full)
            with pytest.raises(StoreUnusable, match="no room for its page"):
                watch.next(patience_s=0.8)
            store.append("t", 0, b"x")
            assert store.stats()["last_background_error"] is None
        assert watch.next()["log"]["messages"] >= 1


def test_a_page_that_was_removed_is_made_again(folder: Path) -> None:
    with MessageStore.open(folder, tiny()), watch_folder(folder) as watch:
        watch.next()
        (folder / FIGURES_FILE).unlink()
        assert watch.next()["pid"] == os.getpid()


def test_a_page_that_another_program_truncates_harms_nobody_and_is_whole_the_next_time(folder: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    writer = spawn.Process(target=write_until_killed, args=(folder, ready))
    writer.start()
    try:
        assert ready.wait(60)
        with watch_folder(folder) as watch:
            for _ in range(2):
                watch.next()
                os.truncate(folder / FIGURES_FILE, 0)
            assert watch.next()["pid"] == writer.pid
        assert writer.is_alive()
    finally:
        writer.kill()
        writer.join()


def test_a_reader_and_a_closed_store_tell_nothing(folder: Path) -> None:
    MessageStore.open(folder, tiny()).close()
    with StoreReader.open(folder), pytest.raises(StoreUnusable, match="nobody has"), watch_folder(folder):
        pass


def test_a_watcher_takes_no_lock_that_an_opening_needs(folder: Path) -> None:
    store = MessageStore.open(folder, tiny())
    with watch_folder(folder) as watch:
        watch.next()
        for _ in range(20):
            store.close()
            store = MessageStore.open(folder, tiny())
        assert watch.next()["pid"] == os.getpid()
    store.close()


def test_an_opening_waits_for_a_watcher_that_looks_whether_somebody_has_the_store(folder: Path) -> None:
    MessageStore.open(folder, tiny()).close()
    looking = (folder / "LOCK").open("rb")
    fcntl.flock(looking, fcntl.LOCK_SH)  # as `writer_of` does
    ended = threading.Timer(0.05, looking.close)
    ended.start()
    try:
        with MessageStore.open(folder, tiny()) as store:
            assert writer_of(folder) == str(os.getpid())
            with pytest.raises(StoreLocked):
                MessageStore.open(folder, tiny())
            assert not store.closed
    finally:
        ended.join()


@pytest.mark.parametrize("file", ["LOCK", FIGURES_FILE])
def test_a_file_that_cannot_be_read_is_said_and_not_that_nobody_has_the_store(
    folder: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    def refuse(path: Path, flags: int) -> Any:
        if path.name == file:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return open_descriptor(path, flags)

    with MessageStore.open(folder, tiny()):
        monkeypatch.setattr(figures_watch, "open_descriptor", refuse)
        monkeypatch.setattr(figures_watch, "_page_in", lambda folder: None)
        with (
            pytest.raises(StoreUnusable, match=f"{file} cannot be read: Permission denied"),
            watch_folder(folder) as watch,
        ):
            watch.next(patience_s=0.1)


def write_until_killed(folder: Path, ready: Any) -> None:
    with MessageStore.open(folder, tiny()) as store:
        store.append("t", 0, b"x")
        ready.set()
        while True:
            store.append("t", 0, b"y")


def test_a_store_whose_writer_was_killed_while_it_was_watched_opens_with_all_messages(folder: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    writer = spawn.Process(target=write_until_killed, args=(folder, ready), daemon=True)
    writer.start()
    try:
        assert ready.wait(PATIENCE_S)
        with watch_folder(folder) as watch:
            told = watch.next()["named"]["topics"][0]["appended"]
            writer.kill()
            writer.join()
            with pytest.raises(StoreUnusable, match="nobody has"):
                for _ in range(3):  # what the writer told last may come first
                    watch.next()
    finally:
        writer.kill()
        writer.join()
    with MessageStore.open(folder, tiny()) as store:
        assert store.queue_bounds("t", 0)[1] >= told - 1  # the newest may not have been answered


class Counted(dict[str, Any]):
    """Topics that count how many of them were asked for one by one, and how often all were gone through."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.asked = self.passes = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)

    def values(self) -> Any:
        self.passes += 1
        return super().values()

    def items(self) -> Any:
        self.passes += 1
        return super().items()


def test_a_look_takes_as_many_steps_at_4_n_topics_as_at_n(folder: Path) -> None:
    steps = []
    with MessageStore.open(folder, tiny()) as store:
        for begin, end in ((0, 300), (300, 1200)):
            store.append_batch([(f"t{number}", queue, b"x") for number in range(begin, end) for queue in range(5)])
            for number in range(begin, end, 2):
                store.subscribe(f"t{number}", "s")
            figures = store._metric_figures()
            assert figures["streams"] == store.stats()["streams"] == 5 * end
            topics = store._streams.topics = Counted(store._streams.topics)
            figures = store._metric_figures()
            steps.append((topics.asked, topics.passes, sum(row["queues"] for row in figures["named"]["topics"])))
            assert len(figures["named"]["topics"]) == 100 == len(figures["named"]["subscriptions"])
            assert figures["named"]["left_out"]["topics"] == end - 100
            assert figures["subscriptions"]["in_memory"] == end // 2 and figures["subscriptions"]["due_bytes"] is None
    assert steps[0] == steps[1] and steps[0][1] == 0 and steps[0][2] <= MOST_QUEUES
