"""Where a dead letter comes from: properties with reserved names.

dead_letter.topic, dead_letter.queue_id, dead_letter.offset    the place of the message
dead_letter.subscription                                       which has given it out so often
dead_letter.attempts                                           how often
dead_letter.first_ms, dead_letter.last_ms                      when, first and last, ms since the epoch: by this
                                                               opening of the store; not there if it has not
dead_letter.reason                                             of its newest nack; not there if that had none
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from ..errors import InvalidTopic
from ..log.streams import check_name

PREFIX: Final = "dead_letter."


class Origin(NamedTuple):
    """Where one dead letter comes from."""

    topic: str
    queue_id: int
    offset: int
    subscription: str
    attempts: int
    first_ms: int | None
    last_ms: int | None
    reason: str | None

    def told(self, properties: bytes | None) -> bytes:
        """Properties (JSON) with the origin. Those of the same names are replaced; an older story ends."""
        mine = {PREFIX + name: str(value) for name, value in self._asdict().items() if value is not None}
        return _packed(without_origin(properties) | mine)


def without_origin(properties: bytes | None) -> dict[str, str]:
    """Properties (JSON) without the reserved ones."""
    return {name: value for name, value in _decoded(properties).items() if name not in RESERVED}


def place_of(properties: bytes | None) -> tuple[str, int] | None:
    """The topic and queue that a dead letter comes from, by its properties (JSON); None if they do not say."""
    given = _decoded(properties)
    queue_id = given.get(PREFIX + "queue_id", "")
    if not (queue_id.isascii() and queue_id.isdecimal() and len(queue_id) <= MOST_DIGITS):
        return None
    try:
        return check_name(given.get(PREFIX + "topic"), int(queue_id))
    except InvalidTopic:
        return None


def _decoded(properties: bytes | None) -> dict[str, str]:
    """Properties (JSON). What no call of ours has stored counts as none: it must not hold dead letters up."""
    if properties is None:
        return {}
    try:
        given: Any = json.loads(properties)
    except (ValueError, RecursionError):
        return {}
    is_good = isinstance(given, dict) and all(isinstance(value, str) for value in given.values())
    return given if is_good else {}


def _packed(properties: dict[str, str]) -> bytes:
    return json.dumps(properties, separators=(",", ":")).encode()


RESERVED: Final = frozenset(PREFIX + name for name in Origin._fields)
MOST_DIGITS: Final = 20
