"""The errors of the public face. The text of each says what happened and what to do."""

from __future__ import annotations

import copy
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

REPAIR_ADVICE = (
    "Restore the file from a copy, or open the store with repair=True to set the damaged range aside and go on "
    "without it."
)


NOTHING_IS_LOST = "Nothing is lost; call it again."
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
SHOWN_CHARACTERS = 200


def shown(value: object) -> str:
    """The text of a value in an error's message: shortened; only its type if it cannot be written."""
    try:
        text = repr(value)  # of an int with thousands of digits, or of a caller's object: it may raise
    except Exception:  # whatever it raises, the first error is what the caller must see
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}.."


class StoreError(Exception):
    """Base of all errors of the store. They can be copied and pickled, with their attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own way calls `__init__` with the finished sentence; some errors want its parts.
        return _made_again, (type(self), self.args), self.__dict__


def _made_again(kind: type[StoreError], arguments: tuple[Any, ...]) -> StoreError:
    return kind.__new__(kind, *arguments)


Failure = TypeVar("Failure", bound=StoreError)


class _OfOneMessage(StoreError):
    """`row`: in a batch, the number of the wrong row, counted from 0; None in all other cases."""

    row: int | None = None

    def in_row(self, row: int) -> Self:
        """This error, with the number of the row."""
        told = type(self)(f"row {row}: {self}")
        told.row = row
        return told


class StoreLocked(StoreError):
    """Another process, or another store object of this one, has the folder open."""


class StoreClosed(StoreError):
    """The store was closed, or was opened before a fork. Open the folder again."""


class StoreReadOnly(StoreError):
    """The store was opened with `read_only=True`: it takes no message. Append in the process that writes."""


class StoreUnusable(StoreError):
    """The folder or this machine cannot be used for the store; the text says why.

    Examples: a folder that holds something else, a store of another format version, a cache without its memory, or an
    append to the store of `look_into_folder`.
    """


class StoreCorrupt(StoreError):
    """Bytes that were durable are damaged or missing.

    `what` says what is wrong, `file` is the path, and `position` is in bytes. Opening with `repair=True` sets the
    damaged range aside.
    """

    def __init__(self, what: str, file: Path | str, position: int, advice: str = REPAIR_ADVICE) -> None:
        super().__init__(f"{what} in {file} at byte {position}. {advice}")
        self.what = what
        self.file = str(file)
        self.position = position


class StoreUnreadable(StoreError):
    """The operating system refused a step: a bad sector, or no file descriptor or thread left. Nothing is lost by it.

    Repeat the call; the text says more.
    """


class LogOvertaken(StoreError):
    """Retention removed messages before a bulk read reached them. Keep more, read sooner, or go on after the gap."""


class StorePoisoned(StoreError):
    """A write or force failed, so nobody knows what is durable. Reads go on. Close the store and open it again."""


class StoreFull(StoreError):
    """There is no space for another segment; nothing was stored. Free some space; docs/how-to/operating.md says how."""


class PublishBufferFull(StoreError):
    """The publish buffer stayed full for `append_timeout_ms`; the message was not accepted."""


class TopicFull(StoreError):
    """Subscriptions keep more of the topic than its `retention_bytes`; the message was not accepted, and none is lost.

    `topic` is its name, `subscription` that of the one with the largest backlog, None if there is none.
    """

    def __init__(self, topic: str, subscription: str | None, backlog: int, kept_bytes: int, most_bytes: int) -> None:
        who = (
            "it has no subscription: make one, and consume"
            if subscription is None
            else f"the subscription {subscription!r} has {backlog} messages to acknowledge: consume, call its "
            f"`skip_all`, or delete it"
        )
        super().__init__(
            f"the topic {topic!r} keeps {kept_bytes} bytes of messages that are not acknowledged, and its "
            f"retention_bytes is {most_bytes}; {who}, or give `configure_topic` a larger one. Nothing is lost."
        )
        self.topic = topic
        self.subscription = subscription


class MessageTooLarge(_OfOneMessage):
    """The message is over `max_message_bytes` and was not accepted. `row` is its number in a batch, from 0."""


class OffsetOutOfRange(StoreError):
    """A read before the queue's first offset (`first`) or beyond its next one (`next_offset`).

    `topic`, `queue_id` and `offset` are those of the read.
    """

    def __init__(self, topic: str, queue_id: int, offset: int, first: int, next_offset: int) -> None:
        super().__init__(
            f"offset {shown(offset)} is outside {topic!r}/{queue_id}, which holds offsets {first} to {next_offset} "
            f"(exclusive); read from one of those, see queue_bounds()."
        )
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.first = first
        self.next_offset = next_offset


class InvalidTopic(_OfOneMessage):
    """The topic or the queue id is not valid. `row` is the number of the message in a batch, from 0."""


class InvalidMessage(_OfOneMessage):
    """An argument has a wrong type or value. `row` is the number of the message in a batch, from 0.

    Of a filter in SQL, `position` is the number of the wrong character, from 1, and `expected` says what may stand
    there. Both are None in all other cases.
    """

    position: int | None = None
    expected: str | None = None


class ReplayDiffers(StoreError):
    """A bulk commit has the name of one that was applied, and other rows. Nothing of it was stored."""


class InvalidConfig(StoreError):
    """A setting of `StoreConfig` or `CacheConfig` is out of its range, or `lanes` differs from the folder's."""


class StaleReceipt(StoreError):
    """A receipt is not good any more: its message was acknowledged, given back, or timed out and was given to another.

    `receipts` are the stale ones. Nothing was done with the others of the same call.
    """

    def __init__(self, text: str, receipts: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.receipts = receipts


class SubscriptionClosed(StoreError):
    """The subscription was closed or deleted. Subscribe again."""


def of_system(error: OSError, what: object, advice: str = NOTHING_IS_LOST) -> StoreError:
    """The error to raise for a system's error that has no other meaning. `what` names the object worked on."""
    if error.errno in NO_SPACE:
        return StoreFull(f"{what}: {error}. Free some space. {advice}")
    return StoreUnreadable(f"{what}: {error}. {advice}")


@contextmanager
def system_errors(what: object, advice: str = NOTHING_IS_LOST) -> Iterator[None]:
    """Raise this package's errors in place of the system's; see `of_system`."""
    try:
        yield
    except OSError as error:
        raise of_system(error, what, advice) from error


def copy_of(error: Failure) -> Failure:
    """A copy of an error to raise: an error raised twice keeps the frames of both, and their locals."""
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh
