"""What tests of the store may ask for beside the time limit."""

from __future__ import annotations

import pytest

from .disks import GatedDisk


@pytest.fixture
def disk() -> GatedDisk:
    """The system's disk with a gate before its writes; who wants another disk has a fixture of the same name."""
    return GatedDisk()
