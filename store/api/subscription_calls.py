"""The calls for subscriptions, as a user sees them: names, arguments and promises. `Subscriptions` does the work."""

from __future__ import annotations

from ..read.caches import Caches
from ..subscriptions.parts import Parts, ReceiptNumbers
from ..subscriptions.read_ahead import READ_AHEAD_BYTES, ReadAhead
from ..subscriptions.registry import SubscriptionInfo, Subscriptions
from ..subscriptions.settings import Filter, Mode, OrderBy, Start
from ..subscriptions.subscription import Subscription
from .appender import Appender
from .columns import ColumnAppender
from .delayed_calls import Delaying
from .fetcher import Fetcher
from .running import Running
from .shared import Shared
from .trimming import Trimming


class SubscriptionCalls:
    """Passes each call on to the store's part for subscriptions, made at the first one."""

    _shared: Shared
    _columns: ColumnAppender
    _fetcher: Fetcher
    _trimming: Trimming
    _running: Running
    _delaying: Delaying
    _appender: Appender
    _caches: Caches
    _subscribed: Subscriptions | None = None

    def subscribe(
        self,
        topic: str,
        name: str,
        start: Start = "earliest",
        mode: Mode = "shared",
        precision_ms: int | None = None,
        *,
        order_by: OrderBy = "queue",
        filter: Filter | None = None,  # the field's word, and what users write
        max_attempts: int | None = None,
        dead_letter_topic: str | None = None,
    ) -> Subscription:
        """Open a subscription: a durable cursor over all queues of a topic. It is made, durably, if there is none.

        It keeps what is acknowledged, whether it is open or not. Any number of objects of one name share it: their
        consumers compete for its messages. A queue that the topic gets later begins at its first message.

        Args:
            name: of the subscription within the topic; what may be a topic's name may be this one's.
            start: where a new one begins: "earliest"; "latest", behind what is durable now; a time in ms since the
                epoch; or a dict of offsets by queue id. One that exists goes on where it was.
            mode: "shared" gives out whatever is next. "ordered" gives a batch of a line to one consumer, in order,
                and the next one only when all of it was acknowledged.
            precision_ms: how much later than its time a delayed message may come to those who wait, for fewer wake-ups.
                It never comes early. 0 for a new one.
            order_by: the lines of "ordered": each "queue", or each "key" in a queue; then messages without a key are
                in no line.
            filter: for each property named the values that are wanted, as {"tag": {"a", "b"}}. Other messages count as
                acknowledged.
            max_attempts, dead_letter_topic: a message that was given out so often, and neither acknowledged nor in
                flight, is appended to this topic, in a queue of the same id, and acknowledged. It is another topic than
                `topic`, and its own dead letters do not lead back. Give both, or none.

        A subscription keeps the settings that it was made with. Whoever opens it again gives the same `mode`,
        `order_by` and `filter`; `precision_ms`, `max_attempts` and `dead_letter_topic` are the same or left out. See
        `Subscription.change`.

        Raises:
            InvalidTopic, InvalidMessage: an argument is not valid, or the subscription has another setting.
            OffsetOutOfRange: an offset of `start` is after its queue's next one.
            StoreCorrupt: a record of the subscription is damaged.
            StoreReadOnly: the store is only read; see `subscriptions`.
            PublishBufferFull, StoreFull, StorePoisoned, StoreClosed, StoreUnreadable: it was not made.
        """
        return self._subscriptions().subscribe(
            topic, name, start, mode, order_by, filter, max_attempts, dead_letter_topic, precision_ms
        )

    def delete_subscription(self, topic: str, name: str) -> bool:
        """Remove a subscription, durably; False if there is none. Its open objects are closed by that.

        Raises:
            InvalidTopic, InvalidMessage: a name is not valid.
            PublishBufferFull, StoreFull, StorePoisoned, StoreReadOnly, StoreClosed, StoreUnreadable: it may still be
                there; call it again.
        """
        return self._subscriptions().delete(topic, name)

    def subscriptions(self, topic: str | None = None) -> list[SubscriptionInfo]:
        """Return the subscriptions of a topic, or of all, with their settings and backlogs, by topic and name.

        In a store that is only read, and until the index of a topic has read all of the log, the messages that are
        delayed are counted by the log: such a call reads all frames with delivery times to come. A call makes the index
        of one topic at the most that has delayed messages and no index yet, as the first receive would.

        Raises: InvalidTopic, StoreCorrupt, StoreUnreadable, StoreClosed.
        """
        return self._subscriptions().all(topic)

    def _subscriptions(self) -> Subscriptions:
        if self._subscribed is None:
            with self._shared.naming:
                if self._subscribed is None:
                    parts = self._parts_for_subscriptions()
                    self._subscribed = Subscriptions(parts)
                    if parts.delays is not None:
                        parts.delays.subscribers = self._subscribed
        return self._subscribed

    def _forget_lost(self) -> None:
        """At an opening: what was acknowledged of messages that a power cut took is not, for good."""
        if self._subscriptions().forget_lost():
            self._appender.flush()  # also with durability "os": the next power cut may leave other messages there

    def _end_subscriptions(self) -> None:
        """The store is about to close. Again is fine."""
        if self._subscribed is not None and not self._shared.closed:
            self._subscribed.closing()

    def _parts_for_subscriptions(self) -> Parts:
        shared, fetcher, trimming, plan = self._shared, self._fetcher, self._trimming, self._caches.plan
        limit = READ_AHEAD_BYTES if plan is None else plan.working_bytes // 2
        return Parts(
            shared.streams, shared.hidden, shared.clock, fetcher, self._columns.append_again, fetcher.waiting,
            fetcher.async_reads, trimming.trim_stream, shared.check_open, trimming.check_writes,
            shared.config.frame_bytes, shared.config.append_timeout_ms / 1000, ReceiptNumbers(),
            self._running.delays, self._delaying.sets, ReadAhead(limit, shared.clock.monotonic_s),
        )  # fmt: skip
