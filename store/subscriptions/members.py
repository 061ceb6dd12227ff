"""The members of a subscription of several topics: one subscription a topic, all of one name."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np

from ..errors import InvalidMessage, StoreCorrupt, StoreError, SubscriptionClosed, copy_of
from ..format.arrays import Bools, Int64s
from ..log.request import Request
from ..read.waiting import ANY_QUEUE
from .acknowledging import Acknowledging
from .calling import WaitingConsumers
from .delivery import Delivery, DeliveryBatch
from .in_flight import NEVER
from .parts import Parts
from .receipt_topics import ReceiptTopics
from .settings import ReceiveArguments, Settings, Start, receipt_of, stale
from .shared import Enter
from .subscription import Subscription
from .wake_times import WakeTimes

OpenOne = Callable[[str, str, Start, Settings, Collection[str], Enter], Subscription]  # see `Subscriptions.open`


class MemberLook:
    """One look at a member; see `receiving.Look`."""

    def __init__(self) -> None:
        self.has_more = True


class Member(Subscription):
    """One topic's subscription, as the subscription of several topics uses it."""

    @classmethod
    def of(cls, opened: Subscription) -> Member:
        """A member in the place of an object that was opened for it."""
        return cls(opened._shared, opened._owner)

    @property
    def acks(self) -> Acknowledging:
        """The part that acknowledges."""
        return self._acks

    def look(self, wanted: ReceiveArguments) -> tuple[DeliveryBatch | None, Sequence[Request], int]:
        """Messages, the requests that make their attempts durable, and when to look again, by the clock of deadlines,
        if `WaitingReaders.listeners` are not told of news before. Raises as `receive` does.
        """
        self._settings()
        look = MemberLook()
        seen, dispatcher = self._looks.version(), self._dispatcher
        with dispatcher.receiving:
            self._settings()
            batch = self._looks.look(look, seen, partial(dispatcher.take, *wanted[:3], self._owner))
            noted = dispatcher.attempt_records
        self._state.calling.ended(None, has_more=look.has_more)  # calls others that wait for this topic alone
        return batch, noted, 0 if look.has_more else self._looks.sleeps_until_ms()

    def take_few(self, count: int, visibility_ms: int) -> list[Delivery] | None:
        """`count` messages that are at hand; None if they are not."""
        return self._dispatcher.receive_few(count, visibility_ms, self._owner, self._settings)

    def take_at_hand(self, count: int, visibility_ms: int) -> list[Delivery] | None:
        """`take_few` for a loop."""
        self._settings()
        return self._dispatcher.take_at_hand(count, visibility_ms, self._owner, self._settings)

    def wait_for(self, noted: Sequence[Request], receipts: Int64s) -> None:
        """Return when the attempts of messages are durable. Raises StoreError: then the messages come again."""
        if noted:
            self._dispatcher.tries.wait_for(noted, receipts)

    def undo(self, receipts: Int64s) -> None:
        """Messages that no consumer gets come again at once."""
        self._state.undo_receive(receipts)

    def check(self, receipts: Int64s) -> None:
        """Raise StaleReceipt if a message is not a consumer's, SubscriptionClosed."""
        self._settings()
        with self._state.lock:
            self._state.rows(receipts)

    def are_live(self, begins: Int64s, ends: Int64s) -> Bools:
        """(n,) which ranges of receipts have one of a message that is not over."""
        table = self._state.table
        with self._state.lock:
            receipts, removed = table.receipts(table.live()), table.removed
            found: Bools = receipts.searchsorted(begins) < receipts.searchsorted(ends)
            for at in np.flatnonzero(~found).tolist() if removed else ():
                found[at] = removed.has_between(int(begins[at]), int(ends[at]))
        return found


class Members:
    """The members, and whose turn it is. Any number of threads may use it; it is what a receive waits for.

    Invariants:
        * a member that is not `ready` was looked at, and is made ready by the next news of its topic, or by a timer
          that its look has set; or a look is under way, which makes it ready again if it does not come to its end;
        * where a member is ready or a topic is to be joined, a waiting consumer is called, or one is about to look;
        * each object that was opened is in `by_topic` or in `_opening`, and none is opened once it is `closed`.

    Attributes:
        closed: true from the beginning of `close` on.
        topic: the name under which consumers wait: no topic has it.
        by_topic: the members, also those that were deleted since.
        ready: topics that may have messages, the one whose turn is next first.
        joining: topics that are to be joined.
        settings: those of new members while there is none to ask.
        failed: an error of an earlier look, which gave out messages of other topics; the next call raises it.
    """

    def __init__(self, parts: Parts, name: str, open_one: OpenOne, settings: Settings) -> None:
        """`open_one` opens a member."""
        self.parts = parts
        self.name = name
        self.topic = f"\0topics {id(self):x}"
        self.by_topic: dict[str, Member] = {}
        self.ready: OrderedDict[str, None] = OrderedDict()
        self.joining: OrderedDict[str, None] = OrderedDict()
        self.failed: StoreError | None = None
        self.receipts = ReceiptTopics(self._are_live)
        self.calling = WaitingConsumers(parts.waiting, self.topic, self._now_ms, self.notify)
        self.closed = False
        self._open_one = open_one
        self._opening: dict[str, Subscription] = {}  # by topic: objects that may be open, and are no member yet
        self._joins = threading.Lock()  # of one topic at a time; a look-up of a member goes without it
        self.settings = settings
        self._deleted: dict[str, None] = {}
        self._wakes = WakeTimes()
        self._matches: Callable[[str], bool] | None = None
        me = weakref.ref(self)  # so an object that its program lets go of is not held
        self._listener, self._new_listener = partial(_tell, me), partial(_tell_new, me)

    def _now_ms(self) -> int:
        return int(self.parts.clock.monotonic_s() * 1000)

    def notify(self) -> None:
        """Have waiting consumers look again."""
        self.parts.waiting.look_at([(self.topic, ANY_QUEUE)])

    def _call(self) -> None:
        self.parts.waiting.look_at([(self.topic, ANY_QUEUE)], one_a_group=True)

    # -- joining --------------------------------------------------------------------------------------

    def join(self, topic: str, start: Start, settings: Settings, given: Collection[str]) -> None:
        """Add a member; makes its subscription, durably, if there is none. It may be repeated, and finishes a call that
        was interrupted. Raises as `subscribe` does, and SubscriptionClosed.
        """
        listeners = self.parts.waiting.listeners
        with self._joins:
            if self.closed:
                raise SubscriptionClosed(
                    f"the subscription {self.name!r} of several topics was closed; subscribe again"
                )
            if topic not in self.by_topic:
                if topic in self._opening:
                    self._opening[topic].close()  # an earlier call was interrupted
                enter = partial(self._opening.__setitem__, topic)
                self.by_topic[topic] = Member.of(self._open_one(topic, self.name, start, settings, given, enter))
                self._opening.pop(topic, None)
            listeners.leave(topic, self._listener)  # it is told once of each, also after an earlier call
            listeners.listen(topic, self._listener)
            self.ready[topic] = None  # after them: news of a moment without a listener is found

    def follow(self, matches: Callable[[str], bool]) -> None:
        """Join topics that come later, if they match."""
        self._matches = matches
        self.parts.waiting.listeners.listen_for_new(self._new_listener)

    @property
    def follows(self) -> bool:
        """Whether topics that come later may join."""
        return self._matches is not None

    def wants(self, topic: str) -> bool:
        """Whether a topic may join: not that of the dead letters, which would come back without end."""
        matches = self._matches
        return matches is not None and topic != self.settings.dead_letter_topic and matches(topic)

    def tell(self, topic: str) -> None:
        """A topic has news. Called by threads that may not wait."""
        if topic not in self.ready:
            self.ready[topic] = None
            self._call()

    def tell_new(self, topic: str) -> None:
        """A topic has its first message, as far as was told."""
        if topic not in self.by_topic and self.wants(topic):
            self.joining[topic] = None
            self._call()

    def join_new(self) -> None:
        """Join the topics that have come. An error is kept in `failed`, and delays no other topic.

        A topic that cannot be had with these settings is left out; others are tried again by the next call.
        """
        for topic in list(self.joining):
            try:
                self.join(topic, "earliest", self.settings_now(), ("mode", "order_by", "filter"))
            except StoreError as error:
                self.failed = error
                if not isinstance(error, InvalidMessage | StoreCorrupt):
                    continue
            self.joining.pop(topic, None)

    def settings_now(self) -> Settings:
        """The settings that new members get: those of the others, which may have been changed by another object."""
        for member in list(self.by_topic.values()):
            with suppress(SubscriptionClosed):
                return member._settings()
        return self.settings

    def close(self) -> None:
        """Close all members; a join that is under way ends before that. It may be called again."""
        listeners = self.parts.waiting.listeners
        with self._joins:
            self.closed = True
        listeners.leave_new(self._new_listener)
        for topic, member in dict(self.by_topic).items():
            listeners.leave(topic, self._listener)
            member.close()
        for opened in list(self._opening.values()):
            opened.close()
        self.notify()

    # -- members --------------------------------------------------------------------------------------

    def open_ones(self) -> list[Member]:
        """The members that were not deleted, by topic."""
        return [member for _, member in sorted(dict(self.by_topic).items()) if not member.closed]

    def of(self, delivery: Delivery | int) -> Member:
        """The member that has given out a message. Raises StaleReceipt, InvalidMessage."""
        receipt = receipt_of(delivery)
        if isinstance(delivery, Delivery):
            topic = getattr(delivery.message, "topic", None)
        else:
            topic = self.receipts.topic_of(receipt)
        member = self.by_topic.get(topic) if isinstance(topic, str) else None
        if member is None:
            raise stale(self.name, [receipt])
        return member

    def _are_live(self, topic: str, begins: Int64s, ends: Int64s) -> Bools:
        return self.by_topic[topic].are_live(begins, ends)

    def undo_receive(self, receipts: Int64s) -> None:
        """Messages taken for a consumer that has gone meanwhile come again at once. It may be repeated."""
        for topic, mine in self.receipts.by_topic(receipts)[0].items():
            self.by_topic[topic].undo(mine)

    # -- turns ----------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there is something to look at."""
        return bool(self.ready) or bool(self.joining) or self.failed is not None

    def raise_failed(self) -> None:
        """Raise the error of an earlier look, once."""
        failed, self.failed = self.failed, None
        if failed is not None:
            raise copy_of(failed)

    def looked_at(self, topic: str, until_ms: int) -> bool:
        """A look at a topic has ended, which is not ready until this time. Returns whether that has come."""
        is_now = until_ms <= self._now_ms()
        if is_now:
            self.served(topic)
        elif until_ms < NEVER:
            self._wakes.add(topic, until_ms)
        return is_now

    def wake(self) -> None:
        """Make the topics ready whose time has come. A timer does so, too; but maybe after the next look."""
        for topic in self._wakes.take(self._now_ms()):
            self.ready[topic] = None

    def first(self) -> str | None:
        """The topic whose turn is next; it stays ready."""
        for _ in range(3):
            with suppress(RuntimeError):  # another thread has changed the list meanwhile
                return next(iter(self.ready), None)
        return None

    def served(self, topic: str) -> None:
        """A topic had its turn, and stays ready."""
        self.ready[topic] = None
        with suppress(KeyError):
            self.ready.move_to_end(topic)

    @contextmanager
    def turn(self, topic: str) -> Iterator[None]:
        """A look at a topic: it is not ready, unless it does not come to its end, or is made so by news meanwhile."""
        try:
            self.ready.pop(topic, None)
            yield
        except SubscriptionClosed:
            self._drop_deleted(topic)
        except BaseException:  # passed on; an interrupt, too, leaves it ready
            self.ready[topic] = None
            raise

    def _drop_deleted(self, topic: str) -> None:
        """A member's subscription was deleted. Raises SubscriptionClosed if none is left, and none can come."""
        self._deleted[topic] = None
        self.parts.waiting.listeners.leave(topic, self._listener)
        self.check_left()

    def check_left(self) -> None:
        """Raises SubscriptionClosed if all subscriptions were deleted, and no topic can come."""
        if not self.follows and len(self._deleted) == len(self.by_topic):
            raise SubscriptionClosed(
                f"the subscriptions {self.name!r} of all topics of this object were deleted; subscribe again"
            )


def _tell(members: weakref.ref[Members], topic: str) -> bool:
    """Tell members of news. False if they are no more."""
    known = members()
    if known is not None:
        known.tell(topic)
    return known is not None


def _tell_new(members: weakref.ref[Members], topic: str) -> bool:
    known = members()
    if known is not None:
        known.tell_new(topic)
    return known is not None
