"""Steps that are all taken, whatever one of them raises: for ends, and for answers to waiting callers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

ItemT = TypeVar("ItemT")


def take_all(steps: Iterable[Callable[[], object]]) -> None:
    """Take all steps in order. The first error that one raises comes out when all are taken.

    An interrupt comes out at once: the caller is to call again, so a step may be taken twice.
    """
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except Exception as error:  # whatever it is, the other steps are to be taken
            first = first or error
    if first is not None:
        raise first


def for_each(items: Iterable[ItemT], call: Callable[[ItemT], object]) -> None:
    """Make a call for each item. The first error, or interrupt, comes out when all are made: none is made twice."""
    left, failed = iter(items), None
    while True:
        try:
            for item in left:  # after an error it goes on where it was
                call(item)
            break
        except BaseException as error:  # also an interrupt
            failed = failed or error
    if failed is not None:
        raise failed
