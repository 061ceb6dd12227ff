"""Changes that no other thread sees in part."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

Change: TypeAlias = tuple[Any, str, Any]  # an object, the name of an attribute, its new value


def set_together(changes: Sequence[Change]) -> None:
    """Set some attributes in one step.

    One call in C sets them all, and it calls nothing of Python's: the interpreter changes threads, runs handlers of
    signals and collects garbage between steps of Python only. The objects have plain attributes; `changes` keeps the
    old values alive, since their end might call something.
    """
    if not changes:
        return
    kept = [getattr(one, name, None) for one, name, _ in changes]
    deque(map(setattr, *zip(*changes, strict=True)), maxlen=0)
    del kept
