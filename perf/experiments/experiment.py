"""The options of an experiment: its fields, as the command line and the help know them."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def setting(
    default: Any, help: str, *, short: Any = None, least: float | None = None, option: str | None = None
) -> Any:
    """An option of an experiment. `short`: its value in a --short run, if the caller gives none.

    A field whose name ends in `_bytes` takes a human size ("64MiB"); its option has no `_bytes`. `option` is the
    option's name where it is another than the field's.
    """
    return field(default=default, metadata={"help": help, "short": short, "least": least, "option": option})


def repeats(default: int = 3) -> Any:
    """The option --repeat."""
    return setting(default, "rounds; the figures are their medians", short=1, least=1)


def queues(default: int = 20_000, short: int = 200) -> Any:
    """The option --queues; the default is the contest's."""
    return setting(default, "queues, unevenly filled", short=short, least=1)
