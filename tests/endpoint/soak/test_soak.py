"""The endpoint's soak in its short form, and that its ledger sees what it is there to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeds import draw_seed

from .ledger import Ledger, Violation
from .run import Kind, run


@pytest.mark.parametrize(("kind", "deaths"), [("kill", 1), ("power cut", 2)])
def test_clients_lose_nothing_and_get_nothing_again_however_the_endpoint_dies(
    tmp_path: Path, kind: Kind, deaths: int
) -> None:
    ledger = run(tmp_path, kind, deaths, draw_seed())
    assert len(ledger.sent) > deaths and ledger.acked


@pytest.mark.parametrize(("kind", "deaths"), [("kill", 1), ("power cut", 2)])
def test_node_clients_lose_nothing_and_get_nothing_again_however_the_endpoint_dies(
    tmp_path: Path, node_folder: Path, kind: Kind, deaths: int
) -> None:
    ledger = run(tmp_path, kind, deaths, draw_seed(), node=node_folder)
    assert len(ledger.sent) > deaths and ledger.acked


def noted(*lines: str) -> Ledger:
    ledger = Ledger()
    for line in lines:
        ledger.note(line.split())
    return ledger


ALL = ("sending a", "sent a", "came a", "acking a", "acked a")


def test_ledger_finds_all_as_it_should_be() -> None:
    noted(*ALL, "sending b", "failed b Error").check(["a"])
    noted(*ALL, "sending b", "failed b Error", "came b", "came b", "acking b").check(["a", "b"])


@pytest.mark.parametrize(
    ("lines", "stored", "sees"),
    [
        (ALL, [], "lost"),
        (ALL, ["a", "a"], "stored twice"),
        (ALL, ["a", "b"], "never sent"),
        ((*ALL, "came a"), ["a"], "came again"),
        (ALL[:2], ["a"], "never came"),
        (ALL[:3], ["a"], "nobody has tried"),
    ],
)
def test_ledger_sees_a_broken_promise(lines: tuple[str, ...], stored: list[str], sees: str) -> None:
    with pytest.raises(Violation, match=sees):
        noted(*lines).check(stored)
