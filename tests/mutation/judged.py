"""Survivors that somebody has looked at: `judged.toml` says what they are, and why no test is to see them.

They stay survivors in the figure; the report counts them by class beside it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

from .run import Outcome

FILE = Path(__file__).with_name("judged.toml")
KINDS = ("equivalent", "performance", "text", "hole")


class Judged(NamedTuple):
    """A change of a line, whatever number the line has now."""

    path: str
    before: str
    after: str
    kind: str
    why: str

    def fits(self, outcome: Outcome) -> bool:
        """Is it this change?"""
        if outcome.name.partition(":")[0] != self.path:
            return False
        changed = [line for line in outcome.diff.splitlines() if line[:1] in "+-"]
        before = " ".join(line[1:].strip() for line in changed if line[0] == "-")
        after = " ".join(line[1:].strip() for line in changed if line[0] == "+")
        return (before, after) == (self.before, self.after)


def judgements() -> list[Judged]:
    """All that are written down."""
    if not FILE.exists():
        return []
    found = [Judged(**one) for one in tomllib.loads(FILE.read_text()).get("survivor", [])]
    assert all(one.kind in KINDS for one in found)
    return found
