"""The errors of timers, operations and trackers, and the log for errors that nobody is there to catch."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

LOGGER: Final = logging.getLogger("stratalog")


class TimersClosed(RuntimeError):
    """A timer thread or a purgatory takes nothing any more: it was closed, or it belongs to the parent of a fork."""


class BadEntry(ValueError):
    """A ledger, an entry, a time or a count that no tracker can take; the text says which and why."""


class TrackerClosed(RuntimeError):
    """A tracker takes nothing any more: it was closed, or it belongs to the parent of a fork."""


class TrackerFull(RuntimeError):
    """A tracker is at its limit of memory. Take what is due, or wait, and give it the same entries again."""


class TrackerDamaged(RuntimeError):
    """Files of a tracker are missing or have wrong bytes: clear its folder, and add what is pending from the log.

    Or an exception, an interrupt above all, has ended a change in the middle: a tracker on disk is opened anew from its
    files, as after a crash; one in memory is made anew.
    """


def report(what: str, error: BaseException) -> None:
    """Log an error of the program's code that a thread of the index has called."""
    with suppress(Exception):  # a handler or filter of the program's may raise as well
        LOGGER.error(what, exc_info=error)
