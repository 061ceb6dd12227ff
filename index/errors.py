"""The errors of timers and of waiting operations, and the log for errors that nobody is there to catch."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

LOGGER: Final = logging.getLogger("stratalog")


class TimersClosed(RuntimeError):
    """A timer thread or a purgatory takes nothing any more: it was closed, or it belongs to the parent of a fork."""


def report(what: str, error: BaseException) -> None:
    """Log an error of the program's code that a thread of the index has called."""
    with suppress(Exception):  # a handler or filter of the program's may raise as well
        LOGGER.error(what, exc_info=error)
