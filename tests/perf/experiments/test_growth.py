from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stratalog.perf.report.curves import NoPicture, check_picture, write_curves

from ..short import error_of, figures_of

CHAPTERS = ("segments", "streams", "transactions", "readers", "queues", "waiting", "subscriptions", "delays")


def test_growth_gives_each_call_at_each_step_and_draws_how_it_grows(tmp_path: Path) -> None:
    picture = tmp_path / "curves.svg"
    chapters = figures_of(tmp_path, "growth", "--picture", str(picture))["chapters"]
    assert "</svg>" in picture.read_text() and picture.stat().st_size > 5_000
    assert tuple(chapters) == CHAPTERS
    for name, rows in chapters.items():
        for row in rows:
            steps = [int(step.replace(",", "")) for step in row if step not in ("what", "growth")]
            values = [row[f"{step:,}"] for step in steps]
            assert steps == sorted(steps) and min(values) >= 0, (name, row)
            if len(steps) > 1 and values[0]:
                assert row["growth"] == pytest.approx(values[-1] / values[0])
    calls = {row["what"] for row in chapters["segments"]}
    assert {"get_range, idle queue", "read, a random old message", "offset_at, idle queue", "open, close"} <= calls


def test_a_picture_that_cannot_be_drawn_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (tmp_path / "curves.txt", tmp_path / "none" / "curves.svg"):
        assert isinstance(error_of(tmp_path, "growth", "--picture", str(path)), NoPicture)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NoPicture, match="pip install"):
        check_picture(tmp_path / "curves.svg")


def test_a_row_without_a_figure_at_some_step_is_left_out_there(tmp_path: Path) -> None:
    rows = [{"what": "a", "1": 1.0, "10": None, "growth": None}, {"what": "b", "1": 0, "10": 2.0, "growth": 2}]
    write_curves(tmp_path / "curves.png", {"title": rows})
    assert (tmp_path / "curves.png").stat().st_size > 5_000
