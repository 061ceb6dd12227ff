"""Clocks that a test sets."""

from __future__ import annotations

import pytest

from .consumer import Hand


@pytest.fixture
def hand() -> Hand:
    return Hand()
