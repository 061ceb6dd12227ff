"""`stratalog top`: the figures of a store that another process has open, as text, JSON and a page."""

from __future__ import annotations

import copy
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stratalog import CacheConfig, MessageStore, StoreConfig, StoreUnusable
from stratalog.console.frames import frame_of, is_later
from stratalog.console.top_screen import screen_of
from stratalog.perf.report.figures import Figures
from stratalog.store import watch_folder

from ..browser import DESKTOP, PHONE, Tab, tab
from ..store.helpers import PATIENCE_S, memory_folder, start, tiny
from .command import process, run

WRITER = """
import sys, time
from stratalog import CacheConfig, MessageStore, StoreConfig
config = StoreConfig(memory_limit_bytes=64 << 20, cache=CacheConfig(), retention_bytes=1 << 30)
with MessageStore.open(sys.argv[1], config) as store:
    sub = store.subscribe("orders", "<b>office</b>")
    store.append("orders", 0, b"later", deliver_at_ms=4_000_000_000_000)
    print("ready", flush=True)
    while True:
        store.append_batch([("orders", queue, bytes(300)) for queue in range(4)] * 5)
        for delivery in sub.receive(10):
            sub.ack(delivery)
        time.sleep(0.05)  # its pace: it is to leave the processor to the page
"""


@contextmanager
def written(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes a store and reads it."""
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made / "store"


def test_frames_say_as_json_and_as_text_what_the_other_process_does_until_it_ends(folder: Path, tmp_path: Path) -> None:
    with written(folder) as writer:
        child = process("top", folder, "--json")
        assert child.stdout is not None and child.stderr is not None
        shown = run("top", folder, "--once", f"--json={tmp_path / 'frame.json'}").output
        frames = [json.loads(child.stdout.readline()) for _ in range(2)]
        writer.kill()
        writer.wait()
        assert child.wait(PATIENCE_S) == 4
        assert b"nobody has the store" in child.stderr.read().replace(b"\n", b" ")
        child.communicate()
    assert frames[1]["at_ms"] - frames[0]["at_ms"] == pytest.approx(frames[1]["seconds"] * 1000, abs=1)
    assert frames[1]["topics"][0]["appended"] > frames[0]["topics"][0]["appended"]
    frame = json.loads((tmp_path / "frame.json").read_text())
    assert frame["path"] == str(folder) and frame["pid"] != os.getpid() and frame["seconds"] > 0.5
    assert frame["appends"]["messages_per_s"] > 0 < frame["appends"]["written_bytes_per_s"]
    assert frame["appends"]["messages_a_force"] >= 1 <= frame["appends"]["write_amplification"]
    assert frame["writes"]["mean_ms"] > 0 and frame["writes"]["p50_below_ms"] <= frame["writes"]["p999_below_ms"]
    assert frame["reads"]["share"]["ring"] + frame["reads"]["share"]["cache"] == 1
    assert next(tier["tier"] for tier in frame["tiers"]) == "ring"
    (topic,), (sub,), (delayed,) = frame["topics"], frame["subscriptions"], frame["delayed"]
    assert (topic["topic"], topic["queues"]) == ("orders", 4) and topic["messages_per_s"] > 0
    assert sub["subscription"] == "<b>office</b>" and 0 < sub["acknowledged_per_s"] < topic["messages_per_s"]
    assert sub["unacknowledged"] < topic["appended"]
    assert (delayed["topic"], delayed["pending"]) == ("orders", 1)
    assert frame["retention"]["limit_bytes"] == 1 << 30 and frame["segments"]["open"] == 1
    for word in ("appends", "writes", "buffer", "reads", "ring", "segments", "orders", "<b>office</b>", "pending"):
        assert word in shown


def test_a_closed_store_and_a_folder_that_is_none_are_said_clearly(tmp_path: Path) -> None:
    shown = run("top", tmp_path / "none", "--once", code=4)
    assert "is not a folder" in " ".join(shown.errors.split())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    assert "is no store" in " ".join(run("top", tmp_path / "other", code=4).errors.split())
    MessageStore.open(tmp_path / "store", tiny()).close()
    shown = run("top", tmp_path / "store", "--once", code=4)
    assert "nobody has the store" in " ".join(shown.errors.split())
    shown = run("top", tmp_path / "store", "--web", "--port", 0, code=4)
    assert "nobody has the store" in " ".join(shown.errors.split())
    assert run("top", tmp_path / "store", "--web", "--once", code=2)
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["LIVE", "LOCK", "STORE", "lane-00"]


def figures_of_two_moments(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures as the writer tells them, a second apart and with some work in between."""
    config = StoreConfig(memory_limit_bytes=64 << 20, cache=CacheConfig())
    with MessageStore.open(folder, config) as store:
        store.append_batch([("t", 0, bytes(100))] * 10)
        sub = store.subscribe("t", "s")
        before = store._metric_figures()
        store.append_batch([("t", 0, bytes(100))] * 40)
        for delivery in sub.receive(25):
            sub.ack(delivery)
        now = store._metric_figures()
    return {**before, "pid": 7, "at_ms": 1000}, {**now, "pid": 7, "at_ms": 3000}


def test_rates_are_what_has_grown_between_two_figures(tmp_path: Path) -> None:
    before, now = figures_of_two_moments(tmp_path)
    assert is_later(before, now) and not is_later(now, before) and not is_later({**before, "pid": 8}, now)
    frame = frame_of(before, now)
    assert frame["seconds"] == 2
    assert frame["topics"] == [{"topic": "t", "queues": 1, "appended": 50, "messages_per_s": 20.0}]
    (sub,) = frame["subscriptions"]
    assert (sub["unacknowledged"], sub["acknowledged_per_s"]) == (25, 12.5)
    grown = {name: now["log"][name] - before["log"][name] for name in ("messages", "forces", "written_bytes")}
    assert frame["appends"]["messages_per_s"] == grown["messages"] / 2
    assert frame["appends"]["messages_a_force"] == round(grown["messages"] / grown["forces"], 2)
    times = copy.deepcopy(now)
    times["log"]["writes_by_time"] = [count + (90 if level == 5 else 10 if level == 27 else 0)
                                      for level, count in enumerate(before["log"]["writes_by_time"])]  # fmt: skip
    times["log"]["write_ms"] = before["log"]["write_ms"] + 50
    writes = frame_of(before, times)["writes"]
    assert writes == {"per_s": 50.0, "mean_ms": 0.5, "p50_below_ms": 0.032, "p99_below_ms": None, "p999_below_ms": None}
    still = frame_of(now, now)
    assert still["appends"]["messages_per_s"] is None and still["writes"]["mean_ms"] is None
    json.dumps([frame, still], allow_nan=False)


def test_a_screen_has_what_is_wrong_and_escapes_what_steers_the_terminal(tmp_path: Path) -> None:
    before, now = figures_of_two_moments(tmp_path)
    frame = frame_of(before, now)
    frame["poisoned"], frame["background_error"] = "the disk\x1b[2J", "no space"
    frame["topics"] = [{"topic": f"t{n}\x9b", "queues": 1, "appended": n, "messages_per_s": 1.0} for n in range(60)]
    frame["delayed"] = [{"topic": "d", "damaged": "bad", "pending": None}]
    frame["left_out"]["topics"] = 5
    frame["lost"] = {"removed_unacknowledged": 3, "expired": 0}
    for height in (None, 20, 60):
        text = printed(frame, 100, height)
        assert "poisoned: the disk\\x1b[2J" in text and "no space" in text and "\x9b" not in text
        assert "damaged" in text and "not shown 5 topics\n" in text and "3 removed" in text
        assert "of 60)" in text
        if height is not None:
            assert len(text.splitlines()) <= height
    assert all(len(line) <= 40 for line in printed(frame, 40, 20).splitlines())


def printed(frame: Figures, width: int, height: int | None) -> str:
    """A frame as a terminal shows it."""
    out = Console(width=width, record=True, file=io.StringIO())
    out.print(screen_of(frame, height))
    return out.export_text()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_long_name_takes_no_place_from_the_figures(tmp_path: Path, width: int) -> None:
    frame = frame_of(*figures_of_two_moments(tmp_path))
    (topic,), (sub,) = frame["topics"], frame["subscriptions"]
    frame["topics"] = [{**topic, "topic": "n" * 250, "appended": 87_654_321}, topic]
    frame["subscriptions"] = [{**sub, "topic": "n" * 250, "unacknowledged": 76_543_210}, sub]
    lines = printed(frame, width, 40).splitlines()
    for words in (("topic", "queues", "messages/s", "ever"), ("subscription", "backlog", "given out", "acks/s")):
        assert any(all(word[:4] in line for word in words[:1]) and all(word in line for word in words[1:])
                   for line in lines), words  # fmt: skip
    assert any(line.startswith("nnn") and line.rstrip().endswith("87,654,321") for line in lines)
    assert any(line.startswith("nnn") and "76,543,210" in line for line in lines)
    assert len(lines) <= 40 and all(len(line) <= width for line in lines)


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 5), (20, 12), (60, 24)])
def test_a_small_terminal_has_the_first_lines_and_no_more_than_it_has_room_for(
    tmp_path: Path, width: int, height: int
) -> None:
    lines = printed(frame_of(*figures_of_two_moments(tmp_path)), width, height).splitlines()
    assert len(lines) <= height and all(len(line) <= width for line in lines)
    assert any(line.startswith("appends") for line in lines) and (height < 24 or lines[-1].startswith("t s"))


def pages(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    child = process("top", folder, "--web", "--port", 0)
    assert child.stdout is not None
    word, address = child.stdout.readline().decode().split()
    assert word == "ready" and address.startswith("http://127.0.0.1:")
    return child, address


FRAMES = "Number(document.body?.dataset.frames || 0)"
WHY = "document.getElementById('why').textContent"
LINES = """[...document.querySelectorAll("svg")].map((one) =>
  [one.querySelector("polyline").getAttribute("points"), one.nextSibling.textContent])"""
STALE = "document.body.classList.contains('stale')"
WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


def test_the_page_moves_without_an_error_and_goes_on_with_the_next_process(folder: Path, tmp_path: Path) -> None:
    """Wide and light first, then narrow and dark; then the store's process ends, another one comes, and `top` ends."""
    with tab(tmp_path / "profile") as page:
        with written(folder):
            child, address = pages(folder)
            page.shape(*DESKTOP)
            page.load(address)
            page.until(FRAMES, lambda count: count >= 1)
            first = look_at(page, tmp_path / "light.png")
            assert page.value("document.getElementById('path').textContent") == str(folder)
            assert "<b>office</b>" in first and "orders" in first  # as text, not as a tag
            assert page.value("document.querySelectorAll('b').length") == 0
            page.shape(*PHONE, scheme="dark", mobile=True)
            page.until(FRAMES, lambda count: count >= 2)
            assert look_at(page, tmp_path / "dark.png") != first
            assert page.value("document.querySelector('polyline').getAttribute('points').split(' ').length") >= 2
        try:
            page.until(WHY, lambda text: "nobody has the store" in text)
            assert page.value(STALE)
            seen = page.value(FRAMES)
            with written(folder):
                page.until(FRAMES, lambda count: count > seen)
                assert not page.value(STALE)
                assert page.errors == []
                assert all(one.startswith((address, "data:", "about:")) for one in page.asked)
                child.send_signal(signal.SIGINT)
                assert child.wait(PATIENCE_S) == 0
                page.until(WHY, lambda text: "has ended" in text)
        finally:
            child.kill()
            child.communicate()


def look_at(page: Tab, path: Path) -> str:
    """The text of the page, which is no wider than the screen and in the colours of the scheme."""
    assert not page.value(WIDER)
    back = page.value("getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(246, 247, 249)", "dark": "rgb(20, 23, 26)"}[path.stem]
    page.picture(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    lines = page.value(LINES)  # of each chart: its points, and its span and highest value
    assert len(lines) == 5 and all(points and "top: " in scale for points, scale in lines), lines
    text = str(page.value("document.body.innerText"))
    assert "NaN" not in text and "undefined" not in text and "null" not in text
    return text


def test_a_writer_that_tells_nothing_is_said_to_hang(folder: Path) -> None:
    with written(folder) as writer, watch_folder(folder) as watch:
        watch.next()
        writer.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnusable, match=f"process {writer.pid}, which has told no figures for 0.2 s"):
                for _ in range(2):  # it may have told once more
                    watch.next(patience_s=0.2)
        finally:
            writer.send_signal(signal.SIGCONT)
        assert watch.next()["pid"] == writer.pid


def test_watchers_come_and_go_while_the_store_is_used(folder: Path) -> None:
    with MessageStore.open(folder, tiny()) as store:
        over = threading.Event()

        def use() -> None:
            while not over.is_set():
                store.append("t", 0, b"x")

        user = start(use)
        try:
            for _ in range(2):
                with watch_folder(folder) as first, watch_folder(folder) as second:
                    assert first.next()["named"]["topics"][0]["topic"] == "t"
                    assert second.next()["pid"] == os.getpid()
        finally:
            over.set()
            user.join()
        assert store.stats()["last_background_error"] is None
