"""The calls for subscriptions, as a user sees them: names, arguments and promises. `Subscriptions` does the work."""

from __future__ import annotations

from functools import partial
from typing import overload

from ..filters.given import Filter
from ..subscriptions.backoff import Backoff
from ..subscriptions.settings import Mode, OrderBy, Start
from ..subscriptions.subscription import Subscription
from ..subscriptions.topics_opening import subscribe_one_or_more
from ..subscriptions.topics_start import Topics, TopicsStart, check_topics
from ..subscriptions.topics_subscription import TopicsSubscription
from .appender import Appender
from .columns import ColumnAppender
from .redriving import Redriving
from .subscription_list import SubscriptionList, WritingParts
from .transaction import Transaction, TransactionParts
from .trimming import TrimChanges


class SubscriptionCalls(SubscriptionList):
    """Passes each call on to the store's part for subscriptions, made at the first one."""

    _columns: ColumnAppender
    _trimming: TrimChanges
    _appender: Appender
    _transacting: TransactionParts

    @overload
    def subscribe(
        self, topic: str, name: str, start: Start = "earliest", *, mode: Mode = "shared",
        precision_ms: int | None = None, order_by: OrderBy = "queue", filter: Filter | None = None,
        max_attempts: int | None = None, dead_letter_topic: str | None = None, backoff_ms: Backoff | None = None,
        pattern: None = None,
    ) -> Subscription: ...  # fmt: skip

    @overload
    def subscribe(
        self, topic: Topics, name: str, start: TopicsStart = "earliest", *, mode: Mode = "shared",
        precision_ms: int | None = None, order_by: OrderBy = "queue", filter: Filter | None = None,
        max_attempts: int | None = None, dead_letter_topic: str | None = None, backoff_ms: Backoff | None = None,
        pattern: None = None,
    ) -> TopicsSubscription: ...  # fmt: skip

    @overload
    def subscribe(
        self, topic: None = None, *, name: str, start: TopicsStart = "earliest", mode: Mode = "shared",
        precision_ms: int | None = None, order_by: OrderBy = "queue", filter: Filter | None = None,
        max_attempts: int | None = None, dead_letter_topic: str | None = None, backoff_ms: Backoff | None = None,
        pattern: str,
    ) -> TopicsSubscription: ...  # fmt: skip

    def subscribe(
        self,
        topic: str | Topics | None = None,
        name: str | None = None,
        start: Start | TopicsStart = "earliest",
        *,
        mode: Mode = "shared",
        precision_ms: int | None = None,
        order_by: OrderBy = "queue",
        filter: Filter | None = None,  # the field's word, and what users write
        max_attempts: int | None = None,
        dead_letter_topic: str | None = None,
        backoff_ms: Backoff | None = None,
        pattern: str | None = None,
    ) -> Subscription | TopicsSubscription:
        """Open a subscription: a durable cursor over all queues of a topic. It is made, durably, if there is none.

        With a list of topics, or a `pattern` in place of the topic, it is one object that receives from all of them,
        a `TopicsSubscription`: in each topic a subscription of this name, made with these settings if there is none,
        one after another. After an error some may have been made; call it again.

        It keeps what is acknowledged, whether it is open or not. Any number of objects of one name share it: their
        consumers compete for its messages. A queue that the topic gets later begins at its first message.

        Args:
            topic: a name, or a list, tuple or set of names; topics that have no message yet count, too.
            name: of the subscription within the topic; what may be a topic's name may be this one's.
            pattern: receive from all topics that match, now or later: `*` is any text, `?` any character, `[ab]` one of
                some, and `[*]` the character itself. Give `name` and no `topic`: `subscribe(pattern="orders.*",
                name="billing")`. A topic that gets its first message later joins by itself, and begins with that. The
                `dead_letter_topic` never joins.
            start: where a new one begins: "earliest"; "latest", after what is durable now; a time in ms since the
                epoch; or a dict of offsets by queue id. One that exists goes on where it was.
            mode: "shared" gives any consumer the next messages. "ordered" gives a batch of a line to one consumer, in
                order, and the next one only when all of it was acknowledged.
            precision_ms: how much later than its time a delayed message may come to waiting consumers, for fewer
                wake-ups. It never comes early. 0 for a new one.
            order_by: the lines of "ordered": each "queue", or each "key" in a queue; then messages without a key are
                in no line.
            filter: which messages are wanted: for each property named the values, as {"tag": {"a", "b"}}; or a
                condition in SQL, as "tag = 'a' AND price BETWEEN 1 AND 9". Others count as acknowledged.
            max_attempts, dead_letter_topic: a message that was given out `max_attempts` times, and is neither
                acknowledged nor in flight, is appended to this topic, in a queue of the same id, and acknowledged. It
                is another topic than `topic`, and its own dead letters do not lead back. Give both, or none.

            backoff_ms: how long a message rests that was given back without a delay, or has timed out: after its first
                attempt, its second one, .., as [1000, 5000, 30_000], whose last one repeats; or delays that grow, as
                {"first_ms": 1000, "factor": 2, "most_ms": 60_000}. An empty list is none, as for a new one.

        A subscription keeps the settings that it was made with. To open it again, give the same `mode`, `order_by` and
        `filter`; give the others the same, or leave them out. See `Subscription.change`.

        Raises:
            InvalidTopic, InvalidMessage: an argument is not valid, or the subscription has another setting. For SQL
                `position` says which character is wrong.
            OffsetOutOfRange: an offset of `start` is after its queue's next one.
            StoreCorrupt: a record of the subscription is damaged.
            PublishBufferFull, StoreFull, StorePoisoned, StoreClosed, StoreUnreadable: it was not made.
        """
        chosen = mode, order_by, filter, max_attempts, dead_letter_topic, precision_ms, backoff_ms
        return subscribe_one_or_more(self._subscriptions(), topic, pattern, name, start, *chosen)

    def transaction(self) -> Transaction:
        """Begin a transaction: what is appended and acknowledged in it is durable and visible at once, or not at all.

        Use it in a `with` block, or `async with`: see `Transaction`. Raises StoreClosed.
        """
        self._shared.check_open()
        return Transaction(self._transacting)

    def redrive(self, dead_letter_topic: str, *, queue_id: int | None = None, max_messages: int | None = None) -> int:
        """Send dead letters back to the topics and queues that they came from; return how many.

        Each is appended there, as it was, and counted as sent back, by one transaction: no crash sends it twice. The
        dead-letter topic keeps its messages: the cursor of its subscription "stratalog.redrive" says which were sent
        back; other subscriptions do not notice. To send all of them once more, delete that subscription.

        Args:
            dead_letter_topic: the topic that has them.
            queue_id: only those of one of its queues; the others are read all the same.
            max_messages: at most so many.

        A message that does not say where it comes from, or that its topic does not take (InvalidTopic, MessageTooLarge,
        TopicFull), is left, and tried again by the next call; the logger "stratalog" says how many. What comes after
        the call has begun waits for the next one. A call waits for another one that is under way.

        Raises:
            InvalidTopic, InvalidMessage: an argument is not valid.
            PublishBufferFull, StoreFull, StorePoisoned, StoreClosed, StoreCorrupt, StoreUnreadable: the rest was not
                sent; call it again.
        """
        self._shared.check_open()
        topics = self._shared.streams.topics
        redriving = Redriving(
            self._subscriptions(), self.transaction, lambda: len(topics.get(dead_letter_topic, ())),
            dead_letter_topic, queue_id, max_messages,
        )  # fmt: skip
        bounds = self._fetcher.bounds_of_topic(dead_letter_topic)
        return redriving.run({queue: end for queue, (_, end) in bounds.items()})

    async def redrive_async(
        self, dead_letter_topic: str, *, queue_id: int | None = None, max_messages: int | None = None
    ) -> int:
        """`redrive` for coroutines. Args and errors: as for `redrive`. If its task is cancelled, it ends by itself."""
        call = partial(self.redrive, dead_letter_topic, queue_id=queue_id, max_messages=max_messages)
        return await self._fetcher.async_reads.aside(call, self._shared.check_open)

    def delete_subscription(self, topic: str | Topics, name: str) -> bool:
        """Remove a subscription, durably; False if there is none. This closes its open objects.

        With a list of topics it removes those of all, one after another, and is False if none was there. One that
        belongs to a pattern's object leaves it; for all of them: `delete_subscription(sub.topics, sub.name)`.

        Raises:
            InvalidTopic, InvalidMessage: a name is not valid.
            PublishBufferFull, StoreFull, StorePoisoned, StoreReadOnly, StoreClosed, StoreUnreadable: it may still be
                there; call it again.
        """
        subscriptions = self._subscriptions()
        if isinstance(topic, list | tuple | set | frozenset):
            return any([subscriptions.delete(one, name) for one in check_topics(topic)])
        return subscriptions.delete(topic, name)

    def _forget_lost(self) -> None:
        """At an opening: take back, for good, acknowledgements of messages that a power cut took."""
        if self._subscriptions().forget_lost():
            self._appender.flush()  # also with durability "os": the next power cut may leave other messages there

    def _writes(self) -> WritingParts:
        trimming = self._trimming
        return WritingParts(self._appender, self._columns.append_again, trimming.trim_stream, trimming.check_writes)
