"""Names of topics and groups: which are allowed, and which are the endpoint's own."""

from __future__ import annotations

import re
from typing import Final

from ..wire import Code
from .statuses import Refused

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
UNRESOLVED_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
DEAD_LETTERS: Final = "%DLQ%"

_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_MOST_TOPIC: Final = 127
_MOST_GROUP: Final = _MOST_TOPIC - len(DEAD_LETTERS)  # the topic of its dead letters has a name, too


def check_topic(name: str) -> str:
    """The name of a topic that a client gives. Raises Refused."""
    if not name or name.isspace():
        raise Refused(Code.ILLEGAL_TOPIC, "The specified topic is blank.")
    if len(name) > _MOST_TOPIC:
        raise Refused(Code.ILLEGAL_TOPIC, f"The specified topic is longer than topic max length {_MOST_TOPIC}.")
    if not _ALLOWED.fullmatch(name):
        allowed = f"^{_ALLOWED.pattern}$"
        raise Refused(Code.ILLEGAL_TOPIC, f"The specified topic contains illegal characters, allowing only {allowed}")
    check_not_own(name)
    return name


def check_not_own(topic: str) -> None:
    """Raise Refused for the topic that only the endpoint itself uses."""
    if topic == HALF_TOPIC:
        raise Refused(Code.ILLEGAL_TOPIC, "cannot access system topic")


def check_group(name: str) -> str:
    """The name of a consumer group that a client gives. Raises Refused."""
    if not name or name.isspace():
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, "The specified group is blank.")
    if len(name) > _MOST_GROUP:
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, f"The specified group is longer than {_MOST_GROUP} characters.")
    if not _ALLOWED.fullmatch(name):
        allowed = f"^{_ALLOWED.pattern}$"
        raise Refused(
            Code.ILLEGAL_CONSUMER_GROUP, f"The specified group contains illegal characters, allowing only {allowed}"
        )
    return name


def dead_letters_of(group: str) -> str:
    """The topic of a group's dead letters."""
    return DEAD_LETTERS + group
