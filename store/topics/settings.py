"""What a user may set of a topic: values, checks, and how they become a record."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from ..errors import InvalidMessage, StoreError, shown
from ..format.layout import MAX_QUEUE_ID
from ..format.topic_settings import pack_settings, unpack_settings

MOST_QUEUES = MAX_QUEUE_ID + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of one topic; see `MessageStore.configure_topic`.

    Attributes:
        queues: the topic has the queues 0 .. queues - 1, and takes messages in no other. None: in any queue.
    """

    queues: int | None = None

    def pack(self) -> bytes:
        """The record of these settings."""
        return pack_settings(asdict(self))

    @classmethod
    def unpack(cls, data: bytes) -> TopicSettings:
        """The settings of a record. Raises ValueError for what is none."""
        given = unpack_settings(data)
        try:
            return checked(given.get("queues"))
        except StoreError as error:
            raise ValueError(str(error)) from error


NOT_CONFIGURED = TopicSettings()


def checked(queues: object) -> TopicSettings:
    """Settings of a user's arguments. Raises InvalidMessage."""
    return TopicSettings(queues=None if queues is None else _number("queues", queues, 1, MOST_QUEUES))


def _number(name: str, value: object, least: int, most: int) -> int:
    """An int in a range; numpy's ints are taken, too."""
    if isinstance(value, np.integer):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidMessage(f"{name} is an int from {least} to {most}, or None, not {shown(value)}")
    return int(value)
