"""Counts the messages that retention removed before a subscription had acknowledged them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np

from ...index.trackers.places import those_between
from ..delayed.parts import ENTRY_BITS, places_of
from ..device.background import LOGGER, report
from ..errors import StoreError
from ..format.arrays import Int64s
from ..format.layout import LOST_ENTRY
from ..log.lane import Lane
from ..log.streams import Stream
from ..segment.sealed import SealedSegment
from .life_counts import LifeCounts
from .parts import Parts
from .progress import count_left, count_lost
from .state import State

States = Mapping[str, Sequence[State]]  # of subscriptions, by topic

_NONE = np.empty(0, np.int64)


class RemovedMessages:
    """How many messages each subscription has lost to retention since the store was opened.

    A segment that goes costs by the streams that have messages in it, not by the messages: the range of each stream is
    compared with the cursors of its topic's subscriptions. That is done when the messages are gone for good and no
    consumer can see it yet: a consumer that finds them missing counts them as acknowledged.
    Messages that have expired do not count: `Parts.expired` counts them.

    Attributes:
        counts: of each subscription.
    """

    def __init__(self, parts: Parts, states: Callable[[set[str]], States], topics: Callable[[], set[str]]) -> None:
        """`states` gives the subscriptions of some topics, loaded if need be. It leaves damaged ones out. `topics` are
        those with a subscription.
        """
        self._parts = parts
        self._states = states
        self._topics = topics
        self.counts = LifeCounts()

    @property
    def total(self) -> int:
        """Of all subscriptions, also of those that were deleted since."""
        return self.counts.total

    def of(self, topic: str, name: str, life: int) -> tuple[int, int]:
        """How many messages one life of a subscription has lost, and how many have expired."""
        return self.counts.of(topic, name, life), self._parts.expired.of(topic, name, life)

    def forget(self, topic: str, name: str) -> None:
        """Forget a deleted subscription."""
        self.counts.forget(topic, name)
        self._parts.expired.forget(topic, name)

    def count(self, lane: Lane, gone: Sequence[SealedSegment]) -> None:
        """Count what a lane's segments had that leave the log now. Raises nothing."""
        try:
            topics = self._topics()
            for sealed in gone if topics else ():
                with suppress(StoreError, OSError):  # of a segment that cannot be read nothing is known
                    streams = streams_of(lane, sealed, topics)
                    states = self._states({stream.topic for stream in streams}) if streams else {}
                    for stream in streams:
                        self._count_stream(stream, sealed, states.get(stream.topic, ()))
        except Exception as error:  # the segments are gone, and retention goes on
            report("messages that retention removed could not be counted", error)

    def count_trimmed(self, sealed: SealedSegment, ranges: Sequence[tuple[Stream, int, int]]) -> None:
        """Count what streams lose now of a segment by an age of their topics: each from an offset to another.

        Raises nothing.
        """
        try:
            states = self._states({stream.topic for stream, _, _ in ranges})
            for stream, begin, end in ranges:
                self._count_range(stream, sealed, begin, end, states.get(stream.topic, ()))
        except Exception as error:  # the messages are gone, and retention goes on
            report("messages that retention removed could not be counted", error)

    def _count_stream(self, stream: Stream, sealed: SealedSegment, states: Sequence[State]) -> None:
        """Count what a stream loses with a segment."""
        first, count = sealed.first_of(stream.number)
        self._count_range(stream, sealed, first, first + count, states)

    def _count_range(
        self, stream: Stream, sealed: SealedSegment, begin: int, end: int, states: Sequence[State]
    ) -> None:
        """Count what a stream loses of a segment. Messages that were trimmed before are not lost."""
        begin = max(begin, stream.low)
        losers = [state for state in states if count_left(state, stream.queue_id, begin, end, _NONE)]
        spared = self._spared(stream, sealed, begin, end) if losers else _NONE
        has_expired = bool(losers) and self._has_expired(stream, sealed)
        for state in losers:
            left = count_lost(state, stream.queue_id, begin, end, spared)
            if left and has_expired:
                self._parts.expired.add(state.topic, state.name, state.cursor.life, left)
            elif left:
                self._note(state, left)

    def _has_expired(self, stream: Stream, sealed: SealedSegment) -> bool:
        """Whether all messages of a segment are older than their topic's `ttl_ms`."""
        ttl_ms = self._parts.reads.configured.ttl_of(stream.topic).ms()
        return ttl_ms is not None and sealed.record.newest_ms < self._parts.clock.wall_ms() - ttl_ms

    def _note(self, state: State, count: int) -> None:
        if self.counts.add(state.topic, state.name, state.cursor.life, count):
            with suppress(Exception):  # a handler or filter of the program's may raise
                LOGGER.warning(
                    "retention removed %d messages of the topic %r that its subscription %r had not acknowledged; "
                    "further ones are counted in subscriptions()",
                    count, state.topic, state.name,
                )  # fmt: skip

    def _spared(self, stream: Stream, sealed: SealedSegment, begin: int, end: int) -> Int64s:
        """(n,) offsets of a range that nobody has lost, ascending: these messages live on as copies, were cancelled, or
        a repair had given them up. Raises StoreCorrupt, OSError.
        """
        index = sealed.index
        row = index.row(stream.number)
        lost = np.flatnonzero(np.asarray(index.entries[index.start[row] : index.start[row + 1]]) == LOST_ENTRY)
        found = np.unique(np.concatenate([index.first[row] + lost, self._out_of_retention(stream, begin, end)]))
        return found[(found >= begin) & (found < end)]

    def _out_of_retention(self, stream: Stream, begin: int, end: int) -> Int64s:
        """The offsets of a range that have copies, or were cancelled."""
        topic = None if self._parts.delays is None else self._parts.delays.find(stream.topic)
        if topic is None:
            return _NONE
        found = []
        for low, high in _rounds(begin, end):
            least, most = places_of(stream.queue_id, low), places_of(stream.queue_id, high - 1)
            with topic.lock:
                copied = topic.copies.places
                cancelled = those_between(topic.changes.cancelled, least, most + 1)
            there = copied[slice(*np.searchsorted(copied, (least, most + 1)))]
            found += [low + (there - least), low + (np.frombuffer(cancelled.to_array(), np.int64) - least)]
        return np.concatenate(found)


def _rounds(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a range of offsets whose places ascend: the entries begin again at 0 after each 2**32 offsets."""
    while begin < end:
        middle = min(end, ((begin >> ENTRY_BITS) + 1) << ENTRY_BITS)
        yield begin, middle
        begin = middle


def streams_of(lane: Lane, sealed: SealedSegment, topics: set[str]) -> list[Stream]:
    """The streams of some topics that have messages in a segment. Raises StoreCorrupt, OSError."""
    footer = sealed.footer
    numbers: list[int] = footer.numbers[footer.counts > 0].tolist()
    return [lane.streams[number] for number in numbers if lane.streams[number].topic in topics]  # those in it alone
