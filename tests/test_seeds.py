"""A printed seed is replayed with one variable."""

from __future__ import annotations

import pytest

from .seeds import VARIABLE, draw_seed


def test_a_seed_is_new_and_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    seeds = {draw_seed() for _ in range(4)}
    assert len(seeds) > 1
    printed = capsys.readouterr().out
    assert all(f"{VARIABLE}={seed}\n" in printed for seed in seeds)


def test_the_variable_gives_the_seed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1234")
    assert (draw_seed(), draw_seed()) == (1234, 1234)
