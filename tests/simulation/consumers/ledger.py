"""What is certain of the messages and subscriptions of a run, at each of its moments."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from stratalog.store import MessageStore, PublishBufferFull, StoreError, StoreFull, Ticket

from ..check import BrokenPromise
from .bills import Bills
from .dead import DeadLetters
from .side import Side

Place = tuple[int, int]  # (queue id, offset)
CONFIGURED: Final = ("x", "y")  # topics that get settings
PLAIN: Final = (  # settings that may be changed, as they are without
    ("max_attempts", None),
    ("precision_ms", 0),
    ("filter", None),
)
TAGGED: Final = ("a", "b")
FILTERS_OF_TAGGED: Final = (
    {"tag": TAGGED},
    "tag IN ('b', 'a')",
    "NOT (tag <> 'a' AND tag <> 'b')",
)  # they mean the same


@dataclass(slots=True)
class Sent:
    """A message that was handed over.

    Attributes:
        times: when it may be due, in ms; () if it has no delivery time. Several while it is being moved.
        is_durable: its append has returned; without that it may be there or not.
        outlives: it was delayed when it was written: so it outlives its segment while it is pending.
        may_be_over: somebody tries to cancel it.
    """

    data: bytes
    tag: str | None
    times: tuple[int, ...]
    is_durable: bool = False
    outlives: bool = False
    may_be_over: bool = False
    key: bytes | None = None


@dataclass(frozen=True)
class Kind:
    """A subscription as it is made: its name and the settings of `subscribe`."""

    name: str
    settings: Mapping[str, Any]

    def takes(self, sent: Sent) -> bool:
        """Does its filter let a message pass?"""
        return "filter" not in self.settings or sent.tag in TAGGED

    @property
    def fixed(self) -> dict[str, Any]:
        """The settings that each `subscribe` has to give."""
        return {name: value for name, value in self.settings.items() if name in ("mode", "order_by", "filter")}

    @property
    def is_ordered(self) -> bool:
        """Does a message wait for the one before it?"""
        return self.settings.get("mode") == "ordered"

    @property
    def precision_ms(self) -> int:
        """How much later than its time a message may come."""
        found: int = self.settings.get("precision_ms", 0)
        return found

    def rests_ms(self, attempt: int) -> int:
        """How long a message rests that was given out so often, and failed."""
        delays: list[int] = self.settings.get("backoff_ms", [0])
        return delays[min(attempt, len(delays)) - 1]

    @property
    def dead_letters(self) -> str | None:
        """The topic of its dead letters."""
        return self.settings.get("dead_letter_topic")


@dataclass
class Known:
    """What is certain of a subscription. Messages in neither set may come or not.

    Attributes:
        exists: None while it is being made or deleted.
        open: pending: these must come.
        acked: acknowledged, and the call has returned: none of these may come.
    """

    exists: bool | None = False
    open: set[Place] = field(default_factory=set)
    acked: set[Place] = field(default_factory=set)


@dataclass(slots=True)
class _Awaited:
    """A ticket, and what its answer makes certain."""

    ticket: Ticket
    sent: Place | None = None
    acked: tuple[str, Place] | None = None
    is_there: bool = True


class Ledger:
    """Pending, acknowledged, cancelled. `version` changes with what is certain.

    Attributes:
        sent: by place, all messages of the topic that may be there.
        over: cancelled or trimmed, and the call has returned: none of these may come to anybody.
        highest_ms: the latest time of day that the store has seen: what was due then may have been taken out.
        kinds: with the settings that each subscription has.
        maybe: with other settings, which a subscription may have: its change has not returned.
        settings: by topic, the numbers of queues that it may be configured with; None: it is not configured.
        is_poisoned: a write or force has failed in this life: nothing is promised any more.
        keeps: messages outlive their segments while they are not acknowledged.
    """

    def __init__(self, kinds: Iterable[Kind], *, keeps: bool = False) -> None:
        self.keeps = keeps
        self.kinds = {kind.name: kind for kind in kinds}
        self.subscriptions = {name: Known() for name in self.kinds}
        self.sent: dict[Place, Sent] = {}
        self.over: set[Place] = set()
        self.highest_ms = 0
        self.version = 0
        self.maybe: dict[str, Kind] = {}
        self.settings: dict[str, set[int | None]] = {topic: {None} for topic in CONFIGURED}
        self.is_poisoned = False
        self.bills = Bills()
        self.side = Side()
        self.dead = DeadLetters()
        self._awaited: list[_Awaited] = []

    # -- messages -------------------------------------------------------------------------------------

    def certain(self) -> None:
        """Something was promised just now. Raises BrokenPromise if that cannot be."""
        if self.is_poisoned:
            raise BrokenPromise("a store that is poisoned promises something")

    @contextmanager
    def handing_over(self, sent: Mapping[Place, Sent]) -> Iterator[None]:
        """Messages are handed over inside, and get these places if they are stored."""
        assert not sent.keys() & self.sent.keys()
        self.sent.update(sent)
        self.version += 1
        try:
            yield
        except (StoreFull, PublishBufferFull):
            self._refused(sent)
            raise

    def _refused(self, places: Iterable[Place]) -> None:
        """The store says that these were not stored: others get their places."""
        for place in places:
            del self.sent[place]
        self.version += 1

    def stored(self, place: Place) -> None:
        """Its append has returned."""
        self.certain()
        sent = self.sent[place]
        sent.is_durable = True
        is_delayed = bool(sent.times) and min(sent.times) > self.highest_ms  # the time of day of the call
        sent.outlives = is_delayed or self.keeps
        for known in self.subscriptions.values():
            if known.exists and place not in known.acked:
                known.open.add(place)
        self.version += 1

    def await_stored(self, place: Place, ticket: Ticket) -> None:
        """It is stored when the ticket is done."""
        self._awaited.append(_Awaited(ticket, sent=place))

    def await_acked(self, name: str, place: Place, ticket: Ticket, *, is_there: bool) -> None:
        """It is acknowledged when the ticket is done."""
        self._awaited.append(_Awaited(ticket, acked=(name, place), is_there=is_there))

    def settle(self) -> None:
        """Look which tickets are done."""
        for one in [one for one in self._awaited if one.ticket.done()]:
            self._awaited.remove(one)
            error = _error_of(one.ticket)
            if isinstance(error, StoreFull) and one.sent is not None:
                self._refused([one.sent])
            if error is not None:
                continue
            if one.sent is not None and one.sent in self.sent:
                self.stored(one.sent)
            if one.acked is not None:
                self.acked(one.acked[0], [one.acked[1]], are_there=one.is_there)

    @contextmanager
    def ending(self, places: Iterable[Place]) -> Iterator[None]:
        """Messages are trimmed or cancelled inside: afterwards none of them comes."""
        found = set(places)
        for place in found & self.sent.keys():
            self.sent[place].may_be_over = True
        self.version += 1
        yield
        self.over |= found
        self.version += 1

    def places_of(self, data: Container[bytes]) -> set[Place]:
        """Where these messages were sent to."""
        return {place for place, sent in self.sent.items() if sent.data in data}

    def is_wanted(self, place: Place) -> bool:
        """Must some subscription still get it?"""
        return any(
            known.exists and place in known.open and self.kinds[name].takes(self.sent[place])
            for name, known in self.subscriptions.items()
        )

    # -- subscriptions --------------------------------------------------------------------------------

    def try_to_ack(self, name: str, places: Iterable[Place]) -> set[Place]:
        """These may come or not from now on; those that had to come until now."""
        known = self.subscriptions[name]
        found = known.open & set(places)
        known.open -= found
        self.version += 1
        return found

    def acked(self, name: str, places: Iterable[Place], *, are_there: bool = True) -> None:
        """Their acknowledgement has returned. That of messages that were removed does nothing, and promises nothing."""
        if are_there:
            self.certain()
        self.subscriptions[name].acked |= set(places)
        self.version += 1

    def refused(self, name: str, places: set[Place]) -> None:
        """Nothing was acknowledged: these must come, as before."""
        self.subscriptions[name].open |= places
        self.version += 1

    @contextmanager
    def moving(self, name: str, offsets: Mapping[int, int], first: Mapping[int, int]) -> Iterator[None]:
        """A subscription goes on at other offsets of some queues; `first`: where each queue begins now."""
        self.settle()
        known = self.subscriptions[name]
        mine = {place for place in self.sent if place[0] in offsets}
        self._forget_awaited(name, offsets)
        known.open -= mine
        known.acked = {place for place in known.acked if place[0] not in offsets}
        self.version += 1
        yield
        if offsets:
            self.certain()
        self._begin_at(known, offsets, first)

    @contextmanager
    def changing(self, kind: Kind, given: Mapping[str, Any]) -> Iterator[None]:
        """A subscription gets other settings."""
        changed = replace(kind, settings={**kind.settings, **given})
        self.maybe[kind.name] = changed
        self.version += 1
        try:
            yield
        except (StoreFull, PublishBufferFull):
            del self.maybe[kind.name]
            raise
        if any(value != kind.settings.get(name, dict(PLAIN)[name]) for name, value in given.items()):
            self.certain()
        self.kinds[kind.name] = changed
        del self.maybe[kind.name]
        self.version += 1

    def precision_ms(self, name: str) -> int:
        """The most that a subscription may have."""
        return max(kind.precision_ms for kind in (self.kinds[name], self.maybe.get(name)) if kind is not None)

    def of_settings(self, name: str, has: Any) -> Kind:
        """The subscription's kind, by the settings that the store says. Raises BrokenPromise."""
        for kind in (self.kinds[name], self.maybe.get(name)):
            if kind is None:
                continue
            if all(getattr(has, field) == kind.settings.get(field, plain) for field, plain in PLAIN):
                return kind
        raise BrokenPromise(f"{name} has the settings {has}, and not {self.kinds[name].settings}")

    def _begin_at(self, known: Known, offsets: Mapping[int, int], first: Mapping[int, int]) -> None:
        """All from these offsets on must come, as far as it is there for certain, and what is before may not."""
        for place, sent in self.sent.items():
            queue_id, offset = place
            if queue_id in offsets and offset < offsets[queue_id]:
                known.acked.add(place)
            elif queue_id in offsets and sent.is_durable and offset >= first.get(queue_id, 0):
                known.open.add(place)
        self.version += 1

    def _forget_awaited(self, name: str, queue_ids: Container[int]) -> None:
        """Acknowledgements under way are over with the next seek: what they said counts for nothing then."""
        self._awaited = [
            one for one in self._awaited
            if one.acked is None or one.acked[0] != name or one.acked[1][0] not in queue_ids
        ]  # fmt: skip

    @contextmanager
    def making(self, name: str, offsets: Mapping[int, int], first: Mapping[int, int]) -> Iterator[None]:
        """It is made with these first offsets, if there is none."""
        self.settle()
        before = self.subscriptions[name].exists
        if before:
            yield
            return
        self.subscriptions[name] = Known(exists=None)
        self.version += 1
        yield
        known = self.subscriptions[name]
        known.exists = True
        if before is False:  # else it may be an older one, which is somewhere else
            self.certain()
            self._begin_at(known, offsets, first)
        self.version += 1

    @contextmanager
    def deleting(self, name: str) -> Iterator[None]:
        """It is deleted."""
        known = self.subscriptions[name]
        self._forget_awaited(name, {queue_id for queue_id, _ in self.sent})
        self.subscriptions[name] = Known(exists=None if known.exists else known.exists)
        self.version += 1
        yield
        self.subscriptions[name] = Known(exists=False)
        self.version += 1

    def after_loss(self) -> Ledger:
        """What is certain after a power cut that took of each lane what was not forced: nothing. A copy."""
        left = Ledger(self.kinds.values())
        left.sent = {place: replace(sent, may_be_over=True) for place, sent in self.sent.items()}
        left.highest_ms, left.version = self.highest_ms, self.version
        left.bills.stored = None
        left.subscriptions = {name: Known(exists=None) for name in self.subscriptions}
        return left

    def lose(self) -> None:
        """Such a power cut: only what comes from now on is certain."""
        left = self.after_loss()
        self.sent, self.subscriptions, self.over = left.sent, left.subscriptions, set()
        self.bills, self.dead = left.bills, left.dead
        self._awaited.clear()
        self.version += 1

    # -- topics ---------------------------------------------------------------------------------------

    @contextmanager
    def configuring(self, topic: str, queues: int | None) -> Iterator[None]:
        """A topic gets this number of queues inside."""
        before = self.settings[topic]
        self.settings[topic] = before | {queues}
        self.version += 1
        try:
            yield
        except (StoreFull, PublishBufferFull):
            self.settings[topic] = before
            raise
        self.certain()
        self.settings[topic] = {queues}
        self.version += 1

    def check_settings(self, store: MessageStore) -> dict[str, int | None]:
        """The settings of a store's topics. Raises BrokenPromise if they are none that they may have."""
        listed, found = store.topics(), {topic: store.topic_settings(topic).queues for topic in CONFIGURED}
        for topic, queues in found.items():
            if queues not in self.settings[topic] or (topic in listed) != (queues is not None):
                raise BrokenPromise(f"the topic {topic} has {queues} queues, and may have {self.settings[topic]}")
        return found

    # -- lives ----------------------------------------------------------------------------------------

    def crashed(self, next_offsets: Mapping[int, int], subscriptions: Mapping[str, Any]) -> None:
        """The next life has these ends of queues, and these subscriptions: their settings by name."""
        self._awaited.clear()
        self.side.crashed()
        self.is_poisoned = False
        for place in [place for place in self.sent if place[1] >= next_offsets.get(place[0], 0)]:
            del self.sent[place]  # it was never stored, and another one gets its place
            self.over.discard(place)
            for known in self.subscriptions.values():
                known.acked.discard(place)
        for name, known in self.subscriptions.items():
            if known.exists is None:
                self.subscriptions[name] = Known(exists=name in subscriptions)
            if name in subscriptions:
                self.kinds[name] = self.of_settings(name, subscriptions[name])
        self.maybe.clear()
        self.version += 1

    def is_due(self, sent: Sent, now_ms: int) -> bool:
        """Must it be due by now?"""
        return not sent.times or max(sent.times) <= now_ms

    def is_early(self, sent: Sent, now_ms: int) -> bool:
        """Can it not be due yet?"""
        return bool(sent.times) and min(sent.times) > max(now_ms, self.highest_ms)


def _error_of(ticket: Ticket) -> StoreError | None:
    try:
        ticket.result(0)
    except StoreError as error:
        return error
    return None
