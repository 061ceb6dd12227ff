"""What a user may set of a topic: values, checks, and how they become a record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, Literal, cast, get_args

import numpy as np

from ..errors import InvalidMessage, StoreError, shown
from ..format.topic_settings import pack_settings, unpack_settings

MOST_QUEUES = 1 << 16  # all of them are listed, used or not
MOST_BYTES = (1 << 63) - 1

Keep = Literal["retention", "unacknowledged", "until_acknowledged"]
KEEPS: Final = get_args(Keep)
WORK_QUEUE: Final = "until_acknowledged"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of one topic; see `MessageStore.configure_topic`.

    Attributes:
        queues: the topic has the queues 0 .. queues - 1, and takes messages in no other. None: in any queue.
        keep: what keeps a message. "retention": age and size alone. "unacknowledged": also each subscription of the
            topic that has not acknowledged it. "until_acknowledged": these alone, and what all of them have
            acknowledged goes.
        retention_bytes: the most that such messages may take, "unacknowledged" beyond retention. None: no limit.
    """

    queues: int | None = None
    keep: Keep = "retention"
    retention_bytes: int | None = None

    def pack(self) -> bytes:
        """The record of these settings: of those that are not the defaults."""
        defaults = asdict(NOT_CONFIGURED)
        return pack_settings({name: value for name, value in asdict(self).items() if value != defaults[name]})

    @classmethod
    def unpack(cls, data: bytes) -> TopicSettings:
        """The settings of a record. Raises ValueError for what is none."""
        given = unpack_settings(data)
        try:
            return checked(given.get("queues"), given.get("keep", "retention"), given.get("retention_bytes"))
        except StoreError as error:
            raise ValueError(str(error)) from error


NOT_CONFIGURED = TopicSettings()


def checked(queues: object, keep: object, retention_bytes: object) -> TopicSettings:
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
    )


def _number(name: str, value: object, least: int, most: int) -> int:
    """An int in a range; numpy's ints are taken, too."""
    if isinstance(value, np.integer):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidMessage(f"{name} is an int from {least} to {most}, or None, not {shown(value)}")
    return int(value)
