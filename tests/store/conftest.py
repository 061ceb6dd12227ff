"""What tests of the store may ask for beside the time limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from .disks import GatedDisk


@pytest.fixture
def disk() -> GatedDisk:
    """The system's disk with a gate before its writes; who wants another disk has a fixture of the same name."""
    return GatedDisk()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in memory, for tests that make stores and copies of them in it."""
    return tmp_path
