"""The row that a store's list of subscriptions has of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .backlog import Backlog
from .positions import Position
from .settings import Settings


class SubscriptionInfo(NamedTuple):
    """One row of `MessageStore.subscriptions`.

    Attributes:
        topic, name: of the subscription.
        settings: its arguments of `subscribe`.
        backlog: messages that are not acknowledged. In a store that is only read, none is known to be in flight.
        positions: how far it is in each queue of its topic, by queue id.
        oldest_ms: when its oldest message that is not acknowledged was put into the log, ms since the epoch; None if
            there is none, and in a topic of more than 1,000 queues. Copies of delayed messages that retention has
            removed do not count.
        arrived_per_s, acknowledged_per_s: messages that came to the topic, and that were acknowledged, a second: since
            the newest call before this one that was a second ago or more; None where there was none. A `seek` counts
            as acknowledging what it passes.
        removed_unacknowledged: messages that retention has removed, since the store was opened, before the subscription
            had acknowledged them. Trims and deletions do not count, and neither do messages that live on as copies or
            were cancelled. The process that writes counts them, since it opened the store; a store that is only
            read has what that process last told, half a second ago or earlier.
        expired: messages that were left out since the store was opened, as they were older than their topic's `ttl_ms`.
            A consumer's call that receives finds them, and so does retention; until then they are in the backlog. Other
            processes are told of them, too.
    """

    topic: str
    name: str
    settings: Settings
    backlog: Backlog
    positions: Mapping[int, Position]
    oldest_ms: int | None
    arrived_per_s: float | None
    acknowledged_per_s: float | None
    removed_unacknowledged: int = 0
    expired: int = 0
