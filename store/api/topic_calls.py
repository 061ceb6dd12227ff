"""The call that configures topics, as a user sees it: names, arguments and promises. `TopicChanges` does the work."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from ..errors import InvalidMessage
from ..log.streams import check_name
from ..topics.id_windows import IdWindows
from ..topics.settings import Keep, MessageType, TopicSettings, checked
from .fetcher import Fetcher
from .shared import Shared


class TopicCalls:
    """Passes the call on to the store's part for topics. It has no state of its own."""

    _topics: TopicChanges

    def configure_topic(
        self, topic: str, *, queues: int | None = None, retention_ms: int | None = None,
        retention_bytes: int | None = None, keep: Keep = "retention", ttl_ms: int | None = None,
        id_window_ms: int = 600_000, id_window_count: int = 100_000, types: Collection[MessageType] | None = None,
    ) -> TopicSettings:  # fmt: skip
        """Give a topic its settings, all at once, and return them. They are as durable as an append when it returns.

        A setting that is left out takes its default, so a program may call this at each start. The topic exists from
        then on, also without a message: `topics()` and `queues()` list it. `delete_topic` removes its settings.

        Args:
            topic: its name, as for `append`.
            queues: the topic has the queues 0 .. queues - 1, at most 65,536. A message that names no queue goes to one
                of them, and one that names another queue is refused: `append` and its like raise InvalidTopic. Bulk
                commits and dead letters are not held back by it. None: a queue comes with its first message.
            retention_ms: the age at which messages of the topic are removed, in place of StoreConfig's. They go with
                the newest message of their segment, see `docs/how-to/operating.md`: sooner than others of the segment,
                by a trim; or later, and then their segment stays, with all that is in it. What outlives retention (see
                `keep`, and delayed messages) keeps those after it in its queue. `retention_bytes` of StoreConfig
                removes segments all the same. None: StoreConfig's.
            keep: what keeps a message of the topic. "retention": the age and size that StoreConfig gives, whoever still
                wants it; `SubscriptionInfo.removed_unacknowledged` says what that took. "unacknowledged": each
                subscription of the topic that has not acknowledged it, too. A message then lives on under its own name
                when its segment goes; a reader finds it no more, and a subscription does. "until_acknowledged": a work
                queue; its subscriptions alone keep a message, whatever age and size want, and what all of them have
                acknowledged goes. Without a subscription, all messages stay.
            retention_bytes: with another `keep` than "retention", the most that messages may take, in bytes on disk,
                which a subscription has not acknowledged; with "unacknowledged" those that age and size would have
                removed. The newest segments do not count. While there is more, the topic takes no message: `append` and
                its like raise TopicFull, which names the subscription. A bulk commit is not held back by it, nor a
                transaction that acknowledges as many messages of the topic as it appends there. None: no limit.
            ttl_ms: the age from which on no subscription gets a message: it counts as acknowledged, and as `expired` in
                SubscriptionInfo. A delayed message ages from its delivery time on. Reads by offset find it as before.
                None: subscriptions get messages whatever their age.
            id_window_ms, id_window_count: the topic knows a `message_id` (see `append`) for so long, and as long as
                fewer than so many other ids came after it; at most 10,000,000. An id takes 52 to 205 bytes of memory,
                from the first append with an id since the opening on. A smaller window holds at once; a larger one
                does not bring back what has left the one before, also over restarts: the call then writes the ids that
                still count again, 36 bytes each.
            types: the types of messages that the endpoint for RocketMQ's clients takes for the topic: some of "normal",
                "fifo" (with a message group), "delay" (with a delivery time) and "transaction". It tells clients of
                them, and refuses others. The store keeps this for the endpoint, and itself takes every message.
                None: all.

        Raises:
            InvalidTopic, InvalidMessage: an argument is not valid, or a queue that would go has or had messages.
            PublishBufferFull, StoreFull, StoreClosed, StoreUnreadable: the topic is as it was.
            StoreCorrupt: settings of the topic are damaged; or its message ids are, and the window gets larger.
            StorePoisoned: a write or force failed; the settings may or may not be there at the next opening.
        """
        return self._topics.configure(
            topic, queues, keep, retention_bytes, retention_ms, ttl_ms, id_window_ms, id_window_count, types
        )


class TopicChanges:
    """The part that `TopicCalls` passes its call on to."""

    def __init__(self, shared: Shared, fetcher: Fetcher, windows: IdWindows) -> None:
        self._shared = shared
        self._fetcher = fetcher
        self._windows = windows

    def configure(self, topic: object, *given: object) -> TopicSettings:
        """Check the settings, `given` as `checked` takes them, and make them durable."""
        self._shared.check_open()
        name, _ = check_name(topic, 0)
        settings = checked(*given)
        self._windows.forget_before(name, settings)
        self._fetcher.configured.change(name, settings, partial(self._check_used, name, settings))
        self._windows.resize(name)
        full = self._fetcher.configured.full
        if settings.retention_bytes is not None or full:
            full.look_now()
        return settings

    def _check_used(self, topic: str, settings: TopicSettings) -> None:
        """Raise InvalidMessage if there is a queue that the topic would not have any more.

        Also one of a deleted topic: its stream stays, and an append that finds it asks for no settings.
        """
        last = max(list(self._shared.streams.topics.get(topic, {})), default=0)
        if settings.queues is not None and last >= settings.queues:
            raise InvalidMessage(
                f"the topic {topic!r} has or had messages in queue {last}: queues is at least {last + 1}"
            )
