"""What tests of the store may ask for beside the time limit."""

from __future__ import annotations

import pytest

from stratalog.store.log.upkeep import Upkeep


@pytest.fixture
def no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes that go quiet write no marks, however slow the machine is: for tests that count frames or blocks."""
    monkeypatch.setattr(Upkeep, "_mark_quiet", lambda upkeep: None)
