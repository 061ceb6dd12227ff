"""What tests of the store may ask for beside the time limit."""

from __future__ import annotations

import pytest

from stratalog.store.log.upkeep import Upkeep

from .disks import GatedDisk


@pytest.fixture
def disk() -> GatedDisk:
    """The system's disk with a gate before its writes; who wants another disk has a fixture of the same name."""
    return GatedDisk()


@pytest.fixture
def no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes that go quiet write no marks, however slow the machine is: for tests that count frames or blocks."""
    without_marks(monkeypatch)


def without_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for fixtures of a whole module."""
    monkeypatch.setattr(Upkeep, "_mark_quiet", lambda upkeep: None)
