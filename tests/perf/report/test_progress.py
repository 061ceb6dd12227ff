"""What is shown on a terminal while something runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from stratalog.perf.experiments import hotcold_run
from stratalog.perf.experiments.hotcold import HotCold
from stratalog.perf.report import progress
from stratalog.perf.report.progress import Count, Run, watched


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


def test_parts_are_counted_against_their_total() -> None:
    console, text = terminal()
    run = Run("lanes", console)
    run.expect(2)
    run.one_done()
    run.one_done()
    said = [line.strip() for line in text.getvalue().replace("\r", "\n").splitlines()]
    assert said == ["lanes: part 1 of 2", "lanes: part 2 of 2", "lanes: part 2 of 2 done"]


def test_stage_names_the_run() -> None:
    console, text = terminal()
    with Run("lanes", console).stage("filling the store"):
        pass
    assert "lanes: filling the store" in text.getvalue()


def test_hotcold_names_each_of_its_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels: list[str] = []
    real = progress.watched
    console, _ = terminal()

    def noted(on: Console, *counts: Count) -> object:
        if on is console:
            labels.extend(count.label.strip() for count in counts)
        return real(on, *counts)

    monkeypatch.setattr(hotcold_run, "watched", noted)
    job = HotCold(
        size_bytes=1 << 20, sizes="small", api="batch", queues=50, reference_s=0.01, reference_file_bytes=1 << 20
    )
    job.study(tmp_path, Run("hotcold", console))
    measuring = "measuring the device, and producers without an engine"
    assert labels == [
        "warming up", measuring, "writing segments ahead", "phase 1: append", "phase 2: append", "read",
        "comparing the whole store", measuring,
    ]  # fmt: skip
