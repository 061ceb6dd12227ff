"""The commands of the examples print what their pages say: kills of workers, services, shops and relays among it."""

from __future__ import annotations

import os
import re

import pytest

from .pages import command_of, printed_by, run

NEEDS = {"web_service": "grpc", "outbox": "sqlite3"}


@pytest.mark.parametrize("example", NEEDS)
def test_an_example_prints_what_its_page_says(example: str) -> None:
    pytest.importorskip(NEEDS[example])
    assert run(command_of(example)) == printed_by(example)


def test_the_tests_of_the_bank_find_no_fault_in_it_and_both_planted_bugs() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    said = run(command_of("power_cuts"), env=environment)
    assert re.sub(r" in [\d.]+s", "", said) == printed_by("power_cuts")
