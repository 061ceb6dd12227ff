"""The drawings of the pages, made from the numbers of the code. `python -m docs.drawings` writes them.

They are kept beside this file, so that the pages have them without a build; a test compares them with the code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .delays import buckets, forms
from .log import answers, segment
from .memory import plan
from .timers import wheels

DRAWINGS: Final[dict[str, Callable[[], str]]] = {
    "answers": answers,
    "buckets": buckets,
    "forms": forms,
    "plan": plan,
    "segment": segment,
    "wheels": wheels,
}
