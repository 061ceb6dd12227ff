"""All subscriptions of one store: making, finding, listing and deleting them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext, suppress

from ..delayed.counting import DelayedSets
from ..errors import StoreCorrupt, StoreError, SubscriptionClosed
from ..format.arrays import Bools, Int64s
from ..format.hidden import CURSOR_KIND
from ..log.hidden_streams import HiddenNames
from ..log.lane import Lane
from ..log.streams import check_name
from ..segment.sealed import SealedSegment
from .acknowledging import Acknowledging
from .backlog import TopicBounds, backlog_of, queues_of, recorded, snapshot
from .cursor import Cursor
from .info import SubscriptionInfo
from .journal import Journal, names_of
from .parts import Parts
from .positions import Rates, oldest_of, positions_of
from .progress import count_acknowledged, unacknowledged
from .removed import RemovedMessages
from .settings import (
    DeadLetterChains,
    Settings,
    Start,
    check_dead_letters,
    check_settings,
    check_start,
    check_subscription,
)
from .shared import Enter, Shared
from .state import State
from .subscription import Subscription
from .told_counts import Counts
from .used_up import UsedUp
from .watched import WatchedSubscriptions

Name = tuple[str, str]  # (topic, name)


class Subscriptions:
    """The subscriptions of one store. Any number of threads may use it.

    Nothing is loaded before it is used: a store without subscriptions reads and holds nothing for them. Of a deleted
    one the number of its life stays: its acknowledgements on their way must not count for the next one of its name.

    Attributes:
        redriving: held while dead letters are sent back: another call would not find those that the first one has met.
        removed: counts the messages that retention has taken from them.
        told_counts: in a store that is only read, what the writer says of `removed`; None in a writer.
        used_up: moves messages to the dead letters before retention takes them.
        watched: counts backlogs for metrics.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = self._parts = parts
        self._known: dict[tuple[str, str], Shared] = {}
        self._lives: dict[tuple[str, str], int] = {}  # of the deleted subscriptions
        self._lock = threading.Lock()
        self._names = HiddenNames(parts.hidden, CURSOR_KIND, may_write=parts.may_write)
        self._rates = Rates()
        self._chains = DeadLetterChains(self._names_of, self._dead_letters_of)
        self.redriving = threading.Lock()
        self.removed = RemovedMessages(parts, self._states_of, self.topics)
        self.told_counts: Callable[[], Counts] | None = None
        self.used_up = UsedUp(parts, self._shared_of, self.topics)
        self.watched = WatchedSubscriptions(parts, self._names.oldest, self._in_memory, self._state_of)

    def _names_of(self, topic: str) -> list[str]:
        """The names of a topic's subscriptions, sorted."""
        return [name for _, name in self._names.of(topic)]

    def _dead_letters_of(self, topic: str, name: str) -> str | None:
        with suppress(StoreCorrupt):  # a damaged subscription gives nothing out
            settings = self.settings_of(topic, name)
            return None if settings is None else settings.dead_letter_topic
        return None

    def settings_of(self, topic: str, name: str) -> Settings | None:
        """The settings of a subscription; None if there is none. Raises StoreCorrupt, StoreUnreadable."""
        shared = self._known.get((topic, name))  # one step, without the lock
        return self._cursor_of(topic, name).settings if shared is None else shared.state.cursor.settings

    def subscribe(self, topic: object, name: object, start: object, *chosen: object) -> Subscription:
        """An object of the subscription; makes the subscription if there is none. `chosen`: see `check_settings`."""
        self._parts.check_open()
        self._parts.check_writes()
        plain, who = check_name(topic, 0)[0], check_subscription(name)
        return self.open(plain, who, check_start(start), *check_settings(*chosen))

    def open(
        self, topic: str, name: str, start: Start, settings: Settings, given: Collection[str], enter: Enter = id
    ) -> Subscription:
        """`subscribe` with checked arguments. `enter` gets the object before it counts as open: after an
        interrupt it can be closed by that.
        """
        check_dead_letters(settings.dead_letter_topic, topic)
        while True:
            shared = self._shared(topic, name)
            with self._chains.changing(topic, settings.dead_letter_topic) as check:
                opened = shared.open(settings, given, start, check, enter)
            if opened is not None:
                shared.tell_precision()
                return opened
            self._forget_deleted(shared)  # the thread that retired it may have been interrupted

    def acknowledging(self, topic: object, name: object) -> Acknowledging:
        """The part of a subscription that acknowledges what it has given out.

        Raises SubscriptionClosed, InvalidTopic, InvalidMessage.
        """
        if type(topic) is str and type(name) is str:
            key = topic, name
        else:
            key = check_name(topic, 0)[0], check_subscription(name)
        shared = self._known.get(key)  # one step, without the lock: each acknowledgement comes here
        if shared is None or shared.state.cursor.settings is None:
            raise SubscriptionClosed(f"there is no open subscription {key[1]!r} of {key[0]!r}; subscribe again")
        return shared.acks

    def forget_lost(self) -> bool:
        """After a possible loss of messages: write durably that lost ones are not acknowledged, before others get their
        offsets. False if there is no subscription.
        """
        names = list(self._names)
        for topic, name in names:
            with suppress(StoreCorrupt):  # `subscribe` raises it
                self._forget_deleted(self._shared(topic, name))
        return bool(names)

    def _shared(self, topic: str, name: str, *, for_retention: bool = False) -> Shared:
        """The shared state of a name, loaded if needed. `for_retention` skips damaged records, and writes all again."""
        with self._lock:
            shared = self._known.get((topic, name))
            if shared is None:
                self._names.add((topic, name))
                shared = self._loaded(topic, name, for_retention)
                shared.state.cursor.life = max(shared.state.cursor.life, self._lives.get((topic, name), 0))
                self._known[topic, name] = shared
        return shared

    def _forget_deleted(self, shared: Shared) -> None:
        """Forget the state of a subscription that does not exist."""
        state = shared.state
        key = state.topic, state.name
        if shared.retire():
            self._rates.forget(key)
            with self._lock:
                self._lives[key] = state.cursor.life
                if self._known.get(key) is shared:
                    self._names.drop(key)
                    del self._known[key]
                    self.removed.forget(*key)

    def _loaded(self, topic: str, name: str, for_retention: bool) -> Shared:
        try:
            return Shared(self._parts, topic, name, self._chains)
        except StoreCorrupt:
            shared = Shared(self._parts, topic, name, self._chains, pass_damage=True) if for_retention else None
            if shared is None or shared.state.cursor.settings is None:  # the settings that it was made with are lost
                raise
            return shared

    def delete(self, topic: object, name: object) -> bool:
        """Remove a subscription; False if there is none."""
        self._parts.check_open()
        self._parts.check_writes()
        plain, who = check_name(topic, 0)[0], check_subscription(name)
        if (plain, who) not in self._names:
            return False
        shared = self._shared(plain, who)
        was_there = shared.delete()
        self._forget_deleted(shared)
        if self._parts.delays is not None:
            self._parts.delays.accepts(plain, who, None)
        return was_there

    def stats(self, most: int | None = None) -> dict[str, int | None]:
        """The memory that subscriptions take, without their cursors. If more than `most` are in memory, what would be a
        step for each is None.
        """
        is_long = most is not None and len(self._known) > most
        with self._lock:
            known = [] if is_long else list(self._known.values())
        ahead = self._parts.ahead
        return {
            "in_memory": len(self._known),
            "read_ahead_bytes": ahead.size_bytes,
            "read_ahead_limit_bytes": ahead.limit_bytes,
            "due_bytes": None if is_long else sum(shared.dispatcher.due_bytes for shared in known),
            "in_flight_bytes": None if is_long else sum(shared.state.table.size_bytes for shared in known),
            "removed_unacknowledged": self.removed.total,
            "expired": self._parts.expired.total,
        }

    def closing(self) -> None:
        """The store is about to close: submit records of state that only this process has. Nobody waits for them."""
        with self._lock:
            known = list(self._known.values())
        for shared in known:
            shared.state.note_left_out()

    def all(self, topic: object, sets_of: Callable[[str], DelayedSets] | None = None) -> list[SubscriptionInfo]:
        """The subscriptions of one topic or of all, sorted; `sets_of` if the delayed messages were read already."""
        self._parts.reads.topics()  # by this call a reader of another process's store follows the log
        wanted = None if topic is None else check_name(topic, 0)[0]
        names = [one for one in self._names if wanted in (None, one[0])]
        topics = sorted({of_topic for of_topic, _ in names})
        queues = {one: queues_of(self._parts, one) for one in topics}
        sets = self._parts.delayed_sets(topics) if sets_of is None else {one: sets_of(one) for one in topics}
        told = None if self.told_counts is None else self.told_counts()
        found = []
        for of_topic, name in names:
            info = self._info(of_topic, name, TopicBounds(queues[of_topic], sets[of_topic]), told)
            if info is not None:
                found.append(info)
        return found

    def may_go(self, lane: Lane, oldest: SealedSegment) -> bool:
        """Whether retention may remove a segment. Messages that subscriptions have used up go to the dead letters, and
        records of subscriptions in it are written again first.
        """
        if not self.used_up.save(lane, oldest):
            return False
        for stream in list(lane.hidden):
            names = names_of(stream)
            if names is None or stream.number < 0:
                continue
            begin, count = oldest.first_of(stream.number)
            if count and begin + count > stream.low:
                shared = self._shared(*names, for_retention=True)
                shared.move_records()
                self._forget_deleted(shared)
                if begin + count > stream.low:
                    return False
        return True

    def _states_of(self, topics: set[str]) -> dict[str, list[State]]:
        """The subscriptions of some topics, loaded if need be, without damaged ones: nobody knows what these lack."""
        return {topic: [state for state in self._states_or_none(topic) if state is not None] for topic in topics}

    def holds_most(self, topic: str) -> tuple[str | None, int]:
        """The subscription of a topic with the largest backlog, and that backlog; None if none can be counted."""
        with suppress(StoreError):
            backlogs = [(one.backlog.total, one.name) for one in self.all(topic)]
            if backlogs:
                return max(backlogs)[1], max(backlogs)[0]
        return None, 0

    @property
    def count(self) -> int:
        """How many subscriptions there are."""
        return len(self._names)

    def _in_memory(self, topic: str, name: str) -> State | None:
        shared = self._known.get((topic, name))  # one step, without the lock
        return None if shared is None else shared.state

    def _state_of(self, topic: str, name: str) -> State:
        """The state of a subscription, loaded if need be. Raises StoreCorrupt, StoreUnreadable."""
        shared = self._shared(topic, name)
        self._forget_deleted(shared)
        return shared.state

    def topics(self) -> set[str]:
        """The topics that have a subscription."""
        return {topic for topic, _ in self._names}

    def unacknowledged(self, topic: str, queue_id: int, offsets: Int64s, *, without: bool = False) -> Bools:
        """As `progress.unacknowledged`, for the subscriptions of a topic."""
        return unacknowledged(self._states_or_none(topic), queue_id, offsets, without=without)

    def acknowledged(self, topic: str, queue_id: int, begin: int, end: int) -> list[int]:
        """As `progress.count_acknowledged`, for the subscriptions of a topic."""
        return count_acknowledged(self._states_or_none(topic), queue_id, begin, end)

    def save_used_up(self, topic: str, queue_id: int, begin: int, end: int) -> bool:
        """As `UsedUp.save_ranges`, for messages of one queue."""
        stream = self._parts.streams.get(topic, queue_id)
        return stream is None or self.used_up.save_ranges([(stream, begin, end)])

    def _states_or_none(self, topic: str) -> Iterator[State | None]:
        """Yield the subscriptions of a topic, loaded if need be; None for a damaged one."""
        for shared in self._shared_or_none(topic):
            yield None if shared is None else shared.state

    def _shared_of(self, topic: str) -> Iterator[Shared]:
        """Yield the subscriptions of a topic, loaded if need be, without damaged ones."""
        yield from (shared for shared in self._shared_or_none(topic) if shared is not None)

    def _shared_or_none(self, topic: str) -> Iterator[Shared | None]:
        for name in self._names_of(topic):
            try:
                shared = self._shared(topic, name)
            except StoreCorrupt:
                yield None
                continue
            if shared.state.cursor.settings is not None:
                yield shared
            self._forget_deleted(shared)

    def _info(
        self, topic: str, name: str, bounds: TopicBounds, told: Counts | None
    ) -> SubscriptionInfo | None:  # fmt: skip
        with self._lock:
            shared = self._known.get((topic, name))
        state = None if shared is None else shared.state
        if shared is not None:
            shared.acks.finish()
        cursor = self._cursor_of(topic, name) if state is None else state.cursor
        with nullcontext() if state is None else state.lock:
            settings = cursor.settings
            if settings is None:
                self._rates.forget((topic, name))  # deleted, maybe by another process
                return None
            if state is not None:
                state.take_in()
            known = recorded(cursor) if state is None else snapshot(cursor, state.table, state.now_ms())
            counts = self.removed.of(topic, name, cursor.life) if told is None else told.get((topic, name, cursor.life))
        positions = positions_of(bounds.queues, known)
        rates = self._rates.of((topic, name), positions, self._parts.clock.monotonic_s())
        oldest_ms = oldest_of(self._parts, topic, bounds.queues, known)
        backlog = backlog_of(bounds, known)
        return SubscriptionInfo(topic, name, settings, backlog, positions, oldest_ms, *rates, *(counts or (0, 0)))

    def _cursor_of(self, topic: str, name: str) -> Cursor:
        """The cursor of a subscription that nobody uses, read from the log."""
        cursor = Cursor()
        Journal(self._parts, topic, name).load(cursor)
        return cursor
