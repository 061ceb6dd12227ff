"""What the tests of rounds begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog import (
    MessageStore,
)
from stratalog.store.log.crew import Crew
from stratalog.store.log.rounds import Rounds

from ..helpers import (
    KIB,
    small_frames,
    tiny,
)
from .helpers import LANES


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES)) as store:
        yield store


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread takes rounds: the test calls `step`."""
    monkeypatch.setattr(Rounds, "start", lambda self: None)
    monkeypatch.setattr(Crew, "do_all", lambda self, calls: [call() for call in calls])


@pytest.fixture(params=[512, 4 * KIB])
def block_bytes(request: pytest.FixtureRequest) -> int:
    """The blocks of the segments' writes."""
    blocks: int = request.param
    return blocks


@pytest.fixture(name="small_frames")
def with_small_frames() -> Iterator[None]:
    """See `helpers.small_frames`."""
    with small_frames():
        yield
