"""What a user may set of a topic: values, checks, and how they become a record."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Final, Literal, cast, get_args

import numpy as np

from ..errors import InvalidMessage, StoreError, shown
from ..format.topic_settings import UNKNOWN, pack_settings, unpack_settings

MOST_QUEUES = 1 << 16  # all of them are listed, used or not
MOST_BYTES = (1 << 63) - 1
MOST_MS = 1 << 50  # some 35,000 years
MOST_IDS = 10_000_000  # of a topic: some 900 MB of memory, and 130 bytes a frame

Keep = Literal["retention", "unacknowledged", "until_acknowledged"]
KEEPS: Final = get_args(Keep)
MessageType = Literal["normal", "fifo", "delay", "transaction"]
MESSAGE_TYPES: Final[tuple[MessageType, ...]] = get_args(MessageType)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of one topic; see `MessageStore.configure_topic`.

    Attributes:
        queues: the topic has the queues 0 .. queues - 1, and takes messages in no other. None: in any queue.
        keep: what keeps a message. "retention": age and size alone. "unacknowledged": also each subscription of the
            topic that has not acknowledged it. "until_acknowledged": these alone, and what all of them have
            acknowledged goes.
        retention_bytes: the most that such messages may take, "unacknowledged" beyond retention. None: no limit.
        retention_ms: the age at which messages are removed. None: the store's.
        ttl_ms: the age from which on subscriptions do not get a message. None: they get it whatever its age.
        id_window_ms, id_window_count: how long, and for how many later ids, the topic knows a `message_id`.
        types: the types of messages that the endpoint for RocketMQ's clients takes for the topic, each once, in the
            order of `MESSAGE_TYPES`. None: all. The store itself takes every message.
    """

    queues: int | None = None
    keep: Keep = "retention"
    retention_bytes: int | None = None
    retention_ms: int | None = None
    ttl_ms: int | None = None
    id_window_ms: int = 600_000
    id_window_count: int = 100_000
    types: tuple[MessageType, ...] | None = None

    def pack(self) -> bytes:
        """The record of these settings: of those that are not the defaults."""
        defaults = asdict(NOT_CONFIGURED)
        return pack_settings({name: value for name, value in asdict(self).items() if value != defaults[name]})

    @classmethod
    def unpack(cls, data: bytes) -> TopicSettings:
        """The settings of a record. Raises ValueError for what is none."""
        given = unpack_settings(data)
        try:
            return checked(
                given.get("queues"),
                given.get("keep", NOT_CONFIGURED.keep),
                given.get("retention_bytes"),
                given.get("retention_ms"),
                given.get("ttl_ms"),
                given.get("id_window_ms", NOT_CONFIGURED.id_window_ms),
                given.get("id_window_count", NOT_CONFIGURED.id_window_count),
                given.get("types"),
            )
        except StoreError as error:
            raise ValueError(str(error)) from error


NOT_CONFIGURED = TopicSettings()
UNREADABLE = TopicSettings(keep=cast(Keep, UNKNOWN), retention_ms=MOST_MS)  # in place of settings that cannot be read


def checked(
    queues: object, keep: object, retention_bytes: object, retention_ms: object, ttl_ms: object, id_window_ms: object,
    id_window_count: object, types: object,
) -> TopicSettings:  # fmt: skip
    """Settings of a user's arguments. Raises InvalidMessage."""
    if not isinstance(keep, str) or keep not in KEEPS:
        raise InvalidMessage(f"keep is one of {', '.join(map(repr, KEEPS))}, not {shown(keep)}")
    if retention_bytes is not None and keep == "retention":
        raise InvalidMessage(
            "retention_bytes of a topic limits what is kept for its subscriptions: give another `keep` with it. The "
            "limit of the whole store is `retention_bytes` of StoreConfig"
        )
    return TopicSettings(
        queues=None if queues is None else _number("queues", queues, 1, MOST_QUEUES),
        keep=cast(Keep, str(keep)),
        retention_bytes=None if retention_bytes is None else _number("retention_bytes", retention_bytes, 1, MOST_BYTES),
        retention_ms=None if retention_ms is None else _number("retention_ms", retention_ms, 1, MOST_MS),
        ttl_ms=None if ttl_ms is None else _number("ttl_ms", ttl_ms, 1, MOST_MS),
        id_window_ms=_number("id_window_ms", id_window_ms, 1, MOST_MS, or_none=False),
        id_window_count=_number("id_window_count", id_window_count, 1, MOST_IDS, or_none=False),
        types=None if types is None else _types(types),
    )


def _types(given: object) -> tuple[MessageType, ...]:
    """Types of messages, in any order and any collection."""
    found = list(given) if isinstance(given, Collection) and not isinstance(given, (str, bytes)) else []
    if not found or not all(isinstance(one, str) and one in MESSAGE_TYPES for one in found):
        names = ", ".join(map(repr, MESSAGE_TYPES))
        raise InvalidMessage(f"types is a list of one or more of {names}, or None for all, not {shown(given)}")
    return tuple([one for one in MESSAGE_TYPES if one in found])


def _number(name: str, value: object, least: int, most: int, *, or_none: bool = True) -> int:
    """An int in a range; numpy's ints are taken, too."""
    if isinstance(value, np.integer):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        none = ", or None" if or_none else ""
        raise InvalidMessage(f"{name} is an int from {least} to {most}{none}, not {shown(value)}")
    return int(value)
