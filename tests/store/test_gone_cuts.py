"""The short form of `gone_cuts`."""

from __future__ import annotations

import pytest

from .gone_cuts import run


@pytest.mark.parametrize("seed", range(2, 4))
def test_power_cuts_leave_what_was_acknowledged_and_no_deleted_topic(seed: int) -> None:
    opened, forgotten = run(seed, lives=7)
    assert opened > 15
    assert forgotten, "nothing was ever forgotten"
