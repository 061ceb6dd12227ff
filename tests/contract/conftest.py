"""The store under test, by both of its ways in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.testing import VirtualClock

from .served import opened


@pytest.fixture(params=["store", "connection"])
def kind(request: pytest.FixtureRequest) -> str:
    """How the store is reached."""
    return str(request.param)


@pytest.fixture
def store(kind: str, tmp_path: Path) -> Iterator[Any]:
    """An empty store."""
    with opened(kind, tmp_path / "store") as one:
        yield one


@pytest.fixture
def clock() -> VirtualClock:
    """The clock of `timed`."""
    return VirtualClock()


@pytest.fixture
def timed(kind: str, tmp_path: Path, clock: VirtualClock) -> Iterator[Any]:
    """An empty store whose time the test moves."""
    with opened(kind, tmp_path / "store", clock=clock) as one:
        yield one
