"""The errors of timers, operations and trackers, and the log for errors that no caller can catch."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

LOGGER: Final = logging.getLogger("stratalog")


class TimersClosed(RuntimeError):
    """A timer thread or a purgatory takes no more work: it was closed, or it belongs to the parent of a fork."""


class BadEntry(ValueError):
    """A ledger, an entry, a time or a count that no tracker can take; the text says which and why."""


class TrackerClosed(RuntimeError):
    """A tracker takes no more calls: it was closed, or it belongs to the parent of a fork."""


class TrackerFull(RuntimeError):
    """A tracker is at its memory limit. Take due entries, or wait, and add the same entries again."""


class TrackerDamaged(RuntimeError):
    """Files of a tracker are missing or have wrong bytes: clear its folder, and add the pending entries from the log.

    Or an exception, mostly an interrupt, has ended a change in the middle: then open a tracker on disk again from its
    files, as after a crash; make one in memory again.
    """


def report(what: str, error: BaseException) -> None:
    """Log an error of the program's code that a thread of the index has called."""
    with suppress(Exception):  # a handler or filter of the program may raise as well
        LOGGER.error(what, exc_info=error)
