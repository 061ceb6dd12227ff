"""What producers have sent, as a test wants to look at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stratalog.plans import ScanFilter

from ..rocketmq.translating import ESCAPED, GROUP, KEYS, OWN, STORY, TAG, id_of

if TYPE_CHECKING:
    from stratalog import Message, MessageStore


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message of a topic, in a client's words.

    Attributes:
        topic, queue_id, offset: where it is.
        body, tag, keys, message_group: what the producer said; "" and () for what it did not.
        properties: the user's.
        message_id: that of the producer's receipt.
        deliver_at_ms: of a delayed message, ms since the epoch.
        stored_ms: when it was stored, by the store's clock, ms since the epoch.
    """

    topic: str
    queue_id: int
    offset: int
    body: bytes
    tag: str
    keys: tuple[str, ...]
    message_group: str
    properties: dict[str, str]
    message_id: str
    deliver_at_ms: int | None
    stored_ms: int


def sent_to(store: MessageStore, topic: str) -> list[SentMessage]:
    """All messages of a topic, those of delays to come too, in the order in which they were stored."""
    found: list[SentMessage] = []
    for batch in store.scan(ScanFilter(topics=(topic,))):
        found += [_sent(message) for message in batch.messages()]
    return found


def _sent(message: Message) -> SentMessage:
    given = message.properties or {}
    users = {
        name.removeprefix(ESCAPED): value
        for name, value in given.items()
        if name.startswith(ESCAPED) or not (name == TAG or name.startswith((OWN, STORY)))
    }
    keys = tuple(given[KEYS].split(" ")) if KEYS in given else ()
    return SentMessage(
        message.topic, message.queue_id, message.offset, message.data, given.get(TAG, ""), keys, given.get(GROUP, ""),
        users, id_of(message), message.deliver_at_ms, message.timestamp_ms,
    )  # fmt: skip
