"""The errors of the public face: each says what happened and what to do about it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, TypeVar

REPAIR_ADVICE = (
    "Restore the file from a copy, or open the store with repair=True to set the damaged range aside and go on "
    "without it."
)


SHOWN_CHARACTERS = 200


def shown(value: object) -> str:
    """A value as an error's text shows it: shortened, or its type alone where it cannot be written."""
    try:
        text = repr(value)  # of an int with thousands of digits, or of anything of the caller's: it may raise
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}.."


class StoreError(Exception):
    """Base of everything that the store raises on purpose. All can be copied and pickled, with their attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own way calls `__init__` with the finished sentence, where some want its parts.
        return _made_again, (type(self), self.args), self.__dict__


def _made_again(kind: type[StoreError], arguments: tuple[Any, ...]) -> StoreError:
    return kind.__new__(kind, *arguments)


Failure = TypeVar("Failure", bound=StoreError)


class _OfOneMessage(StoreError):
    """`row`: in a batch, the number of the row that could not be taken, counted from 0; None elsewhere."""

    row: int | None = None


class StoreLocked(StoreError):
    """Another process, or another store object of this one, has the folder open."""


class StoreClosed(StoreError):
    """The store was closed; open the folder again."""


class StoreUnusable(StoreError):
    """The folder cannot be used as a store: forbidden, not a folder, or full of something else."""


class StoreCorrupt(StoreError):
    """Bytes that were durable are damaged or missing.

    `file` and `position` name the place; opening with `repair=True` sets the damaged range aside.
    """

    def __init__(self, what: str, file: Path | str, position: int, advice: str = REPAIR_ADVICE) -> None:
        super().__init__(f"{what} in {file} at byte {position}. {advice}")
        self.what = what
        self.file = str(file)
        self.position = position


class StoreUnreadable(StoreError):
    """The operating system refused a read: a bad sector, or no file descriptor left. Nothing is lost by that."""


class StorePoisoned(StoreError):
    """A write or force failed, so what is durable is unknown. Reads go on; close and reopen to recover."""


class StoreFull(StoreError):
    """There is no space for another segment. Nothing was written; free some space and append again."""


class PublishBufferFull(StoreError):
    """The publish buffer stayed full for `append_timeout_ms`; the message was not accepted."""


class MessageTooLarge(_OfOneMessage):
    """The message is over `max_message_bytes`; it was not accepted. `row` is its number in a batch."""


class OffsetOutOfRange(StoreError):
    """The offset lies outside the queue's bounds, which are in `first` and `next_offset`."""

    def __init__(self, topic: str, queue_id: int, offset: int, first: int, next_offset: int) -> None:
        super().__init__(
            f"offset {shown(offset)} is outside {topic!r}/{queue_id}, which holds offsets {first} to {next_offset} "
            f"(exclusive); read from one of those, see queue_bounds()."
        )
        self.first = first
        self.next_offset = next_offset


class InvalidTopic(_OfOneMessage):
    """The topic or queue id breaks the rules of naming. `row` is the number of the message in a batch."""


class InvalidMessage(_OfOneMessage):
    """An argument has a type or a value that cannot be used. `row` is the number of the message in a batch."""


class InvalidConfig(StoreError):
    """A setting of `StoreConfig` or `CacheConfig` is out of its range."""


def again(error: Failure) -> Failure:
    """The same error as an object of its own: one that is raised twice keeps the frames of both, and their locals."""
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh
