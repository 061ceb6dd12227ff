"""Hidden streams: what the store must remember of users' topics, as messages that users never see.

The topic of a hidden stream begins with HIDDEN_MARK, a control character, and so no user can name it. Then come its
kind and the names that it is about, each after a mark of its own:

    \\x01records                          the lane's records, see `records`; its queue id is the lane
    \\x01KIND\\x01TOPIC                    of a topic
    \\x01KIND\\x01TOPIC\\x01NAME            of something in a topic that has a name, such as a subscription

A message of a hidden stream has the checksums, the chain and the recovery of every other message. Hidden streams are
in no list of topics or queues and in no scan; `StreamMap` keeps them apart, so no call that takes a topic finds one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .layout import MAX_TOPIC_BYTES

HIDDEN_MARK: Final = "\x01"
CURSOR_KIND: Final = "cursor"
TOPIC_KIND: Final = "topic"  # its settings, see `topic_settings`
IDS_KIND: Final = "ids"  # of its messages, see `message_ids`
MAX_KIND_BYTES: Final = 16
MAX_HIDDEN_TOPIC_BYTES: Final = MAX_KIND_BYTES + 2 * MAX_TOPIC_BYTES + 3


_SAID_AGAIN: Final = tuple(
    f"{HIDDEN_MARK}{kind}{HIDDEN_MARK}" for kind in (CURSOR_KIND, "delays", TOPIC_KIND, IDS_KIND)
)


class HiddenTopic(NamedTuple):
    """The parts of a hidden stream's topic."""

    kind: str
    names: tuple[str, ...]


def hidden_topic(kind: str, *names: str) -> str:
    """The topic of a hidden stream.

    Args:
        kind: what the stream remembers; at most MAX_KIND_BYTES of ASCII.
        names: at most two, each one that `check_name` takes as a topic.

    Raises ValueError for what could not be taken apart again.
    """
    parts = (kind, *names)
    if not (kind.isascii() and 0 < len(kind) <= MAX_KIND_BYTES and len(names) <= 2) or HIDDEN_MARK in "".join(parts):
        raise ValueError(f"a hidden topic cannot be made of {parts}")
    return "".join(HIDDEN_MARK + part for part in parts)


def is_hidden(topic: str) -> bool:
    """Whether users never see a topic; True for the records of a lane, too."""
    return topic.startswith(HIDDEN_MARK)


def is_said_again(topic: str) -> bool:
    """Whether a topic's records can be written again at the log's end: see `cursors`, `delays`, `topic_settings`
    and `message_ids`."""
    return topic.startswith(_SAID_AGAIN)


def hidden_parts(topic: str) -> HiddenTopic | None:
    """The parts of a hidden topic; None for a topic of users."""
    if not is_hidden(topic):
        return None
    _, kind, *names = topic.split(HIDDEN_MARK)
    return HiddenTopic(kind, tuple(names))
