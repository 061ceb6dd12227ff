"""The exit codes of the console: one code, one meaning."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from ..perf.report import figures as report
from ..perf.report.tables import plain
from ..pipeline import BadOption
from ..store import (
    InvalidMessage,
    InvalidTopic,
    MessageTooLarge,
    OffsetOutOfRange,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreUnusable,
)

SYSTEM_SAYS_NO = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC})
DAMAGED, USAGE, REFUSED, NOT_THERE, IN_USE, INTERRUPTED, UNREAD, TERMINATED = 1, 2, 3, 4, 5, 130, 141, 143
MEANINGS = {
    0: "done, no damage found",
    DAMAGED: "damaged (of bench: a measurement has a wrong result)",
    USAGE: "the command was used wrongly, or its input is not what it takes",
    REFUSED: "the system refused something: no permission, no space",
    NOT_THERE: "no such store (or one of another version of the format), topic, queue or subscription",
    IN_USE: "another process has the store open, and the command has to write to it, or needs it closed",
    INTERRUPTED: "interrupted (Ctrl-C)",
    UNREAD: "the reader of the output has gone away, as with | head",
    TERMINATED: "terminated (SIGTERM)",
}
EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in MEANINGS.items()) + "."


def code_of(error: StoreError) -> int:
    """The exit code for an error of the store."""
    if isinstance(error, StoreCorrupt):
        return DAMAGED
    if isinstance(error, StoreLocked):
        return IN_USE
    if isinstance(error, BadOption | InvalidTopic | InvalidMessage | MessageTooLarge | OffsetOutOfRange):
        return USAGE
    refused = isinstance(error.__cause__, OSError) and error.__cause__.errno in SYSTEM_SAYS_NO
    return NOT_THERE if isinstance(error, StoreUnusable) and not refused else REFUSED


class _Console(Console):
    """A console that leaves a closed pipe to `told`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """The console of the results, as `report.console` makes it."""
    known = report.console()
    return _Console(width=known.width if known.is_terminal is False else None, markup=False, emoji=False)


def complain(sentence: str) -> None:
    """Print a sentence on standard error."""
    report.messages_console().print(plain(sentence), style="red", highlight=False, soft_wrap=True)


@contextmanager
def told() -> Iterator[None]:
    """Run a command. An error of the store becomes a sentence and an exit code; a closed pipe ends it quietly."""
    _take_all_letters()
    try:
        yield
        sys.stdout.flush()
    except StoreError as error:
        complain(str(error))
        raise typer.Exit(code_of(error)) from error
    except BrokenPipeError:
        _end_output()
        raise typer.Exit(UNREAD) from None
    except OSError:
        try:
            sys.stdout.flush()
        except OSError:  # it is the output that is full
            _end_output()
        raise


def _end_output() -> None:
    """Have what the output did not take go nowhere: the interpreter flushes it again at its end, and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _take_all_letters() -> None:
    """Write characters that the output's encoding lacks as escapes; a closed output takes nothing."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # open as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
