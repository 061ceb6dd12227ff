"""What is shown on a terminal while something runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from perf import hotcold, progress, report
from perf.hotcold import Options
from perf.phases import Drive
from perf.progress import Count, Parts, watched
from perf.workload import Sizes


def terminal() -> tuple[Console, io.StringIO]:
    """A console that takes itself for a terminal, and what it is given."""
    text = io.StringIO()
    return Console(file=text, force_terminal=True, width=80, color_system=None), text


def test_bars_show_the_last_counts_together() -> None:
    console, text = terminal()
    with watched(console, Count("append", 5, lambda: 4), Count("read", 9, lambda: 9)):
        pass
    assert "append" in text.getvalue() and "4/5" in text.getvalue()
    assert "read" in text.getvalue() and "9/9" in text.getvalue()


def test_stage_of_unknown_length_has_no_count() -> None:
    console, text = terminal()
    with watched(console, Count("warming up")):
        pass
    assert "warming up" in text.getvalue() and "/" not in text.getvalue().replace("[/", "")


def test_nothing_is_shown_without_a_terminal() -> None:
    text = io.StringIO()
    with watched(Console(file=text), Count("append", 5, lambda: 4)):
        pass
    assert text.getvalue() == ""


def test_parts_are_counted_against_their_total(monkeypatch: pytest.MonkeyPatch) -> None:
    console, text = terminal()
    monkeypatch.setattr(report, "messages_console", lambda: console)
    parts = Parts("lanes")
    parts.expect(2)
    parts.one_done()
    parts.one_done()
    said = [line.strip() for line in text.getvalue().replace("\r", "\n").splitlines()]
    assert said == ["lanes: part 1 of 2", "lanes: part 2 of 2", "lanes: part 2 of 2 done"]


def test_hotcold_names_each_of_its_stages(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    labels: list[str] = []
    real = progress.watched
    console, _ = terminal()

    def noted(on: Console, *counts: Count) -> object:
        if on is console:
            labels.extend(count.label.strip() for count in counts)
        return real(on, *counts)

    monkeypatch.setattr(hotcold, "watched", noted)
    monkeypatch.chdir(str(tmp_path))
    options = Options(
        size_bytes=1 << 20, threads=2, sizes=Sizes.parse("small"), drive=Drive("batch"), topics=10, queues=50,
        reference_s=0.01, reference_file_bytes=1 << 20,
    )  # fmt: skip
    hotcold.run(options, None, console)
    assert labels == [
        "warming up", "measuring the device and the floor", "writing segments ahead", "phase 1: append",
        "phase 2: append", "read", "measuring the device and the floor",
    ]  # fmt: skip
