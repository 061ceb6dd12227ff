"""Clocks that a test sets, and a store with such a clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.store import MessageStore

from .consumer import Hand


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def store(tmp_path: Path, hand: Hand) -> Iterator[MessageStore]:
    """For tests that open it once."""
    with hand.open(tmp_path / "s") as opened:
        yield opened
