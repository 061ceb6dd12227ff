"""The short form of the SIGKILL loop with consumers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..seeds import draw_seed
from .consumer_kill import ACKED, ACKING, CAME, CANCEL, CHANGED, CHANGING, IS_DELAYED, SENT, Ledger, run


def test_kills_lose_no_message_and_no_acknowledgement(tmp_path: Path) -> None:
    ledger = run(tmp_path, kills=2, seed=draw_seed())
    assert ledger.sent


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        (
            [(SENT, 0, 1, 0, 9, 5), (ACKING, 0, 1, 0, 0, 0), (ACKED, 0, 1, 0, 0, 0), (CAME, 0, 1, 0, 7, 0)],
            "acknowledged",
        ),
        ([(SENT, 1, 1, 0, 9, 5), (IS_DELAYED, 0, 1, 0, 100, 0), (CAME, 0, 1, 0, 99, 0)], "due at"),
        (
            [
                (SENT, 1, 1, 0, 9, 5), (IS_DELAYED, 0, 1, 0, 100, 0), (CHANGING, 0, 1, 0, CANCEL, 0),
                (CHANGED, 0, 1, 0, CANCEL, 0), (CAME, 0, 1, 0, 101, 0),
            ],
            "cancelled",
        ),
    ],
)  # fmt: skip
def test_ledger_sees_what_may_not_come(told: list[tuple[int, int, int, int, int, int]], wrong: str) -> None:
    ledger = Ledger()
    for row in told[:-1]:
        ledger.note(*row)
    with pytest.raises(AssertionError, match=wrong):
        ledger.note(*told[-1])
