"""A commit goes into the log in frames or as segments, by its size. Tests of what holds for both run both ways."""

from __future__ import annotations

import pytest

from .helpers import attaching


@pytest.fixture
def as_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small commits become segments, too."""
    attaching(monkeypatch.setattr, as_segments=True)


@pytest.fixture(params=["frames", "segments"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small commits go into frames, and then become segments."""
    attaching(monkeypatch.setattr, as_segments=request.param == "segments")
    return str(request.param)
