"""The call that configures topics, as a user sees it: names, arguments and promises. `TopicChanges` does the work."""

from __future__ import annotations

from ..errors import InvalidMessage
from ..log.streams import check_name
from ..topics.settings import Keep, TopicSettings, checked
from .fetcher import Fetcher
from .shared import Shared


class TopicCalls:
    """Passes the call on to the store's part for topics. It has no state of its own."""

    _topics: TopicChanges

    def configure_topic(
        self, topic: str, *, queues: int | None = None, keep: Keep = "retention", retention_bytes: int | None = None
    ) -> TopicSettings:
        """Give a topic its settings, all at once, and return them. They are as durable as an append when it returns.

        A setting that is left out takes its default, so a program may call this at each start. The topic exists from
        then on, also without a message: `topics()` and `queues()` list it. `delete_topic` removes its settings.

        Args:
            topic: its name, as for `append`.
            queues: the topic has the queues 0 .. queues - 1, at most 65,536. A message that names no queue goes to one
                of them, and one that names another queue is refused: `append` and its like raise InvalidTopic. Bulk
                commits and dead letters are not held back by it. None: a queue comes with its first message.
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

        Raises:
            InvalidTopic, InvalidMessage: an argument is not valid, or a queue that would go has or had messages.
            PublishBufferFull, StoreFull, StoreClosed, StoreUnreadable: the topic is as it was.
            StorePoisoned: a write or force failed; the settings may or may not be there at the next opening.
        """
        return self._topics.configure(topic, queues, keep, retention_bytes)


class TopicChanges:
    """The part that `TopicCalls` passes its call on to."""

    def __init__(self, shared: Shared, fetcher: Fetcher) -> None:
        self._shared = shared
        self._fetcher = fetcher

    def configure(self, topic: object, queues: object, keep: object, retention_bytes: object) -> TopicSettings:
        """Check the settings, and make them durable."""
        self._shared.check_open()
        name, _ = check_name(topic, 0)
        settings = checked(queues, keep, retention_bytes)
        self._check_used(name, settings)
        self._fetcher.configured.change(name, settings)
        self._fetcher.configured.full.look_now()
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
