"""Topics with an age of their own: their messages go earlier than the store's retention removes them, or later."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from ..device.clock import Clock
from ..errors import StoreCorrupt
from ..log.lane import Lane
from ..log.streams import Stream
from ..segment.sealed import SealedSegment

MOST_AT_ONCE = 256  # segments of a lane, for each age
LOOK_S = 1.0  # between two checks of messages that keep their queues ..
LOOK_TIMES = 20  # .. and so many times as long as a check takes

Range = tuple[Stream, int, int]  # the messages of a stream from one offset up to another one


class Wanted(Protocol):
    """The messages of a segment that somebody has still to get."""

    def first(self, stream: Stream, begin: int, end: int) -> int | None:
        """The first wanted offset of a stream below `end`, of those from `begin` on and of copies; None: nothing is
        wanted. Raises StoreError, OSError.
        """


class AllWanted(Protocol):
    """The messages that somebody has still to get, though their time is over."""

    @property
    def is_known(self) -> bool:
        """Whether it can be told by now which they are."""

    def of(self, lane: Lane, sealed: SealedSegment) -> Wanted:
        """Those of a lane's segment. Raises StoreCorrupt, OSError."""

    def keeps(self, stream: Stream) -> bool:
        """Whether its topic keeps all that is not acknowledged."""

    def is_wanted(self, stream: Stream, offset: int) -> bool:
        """Whether a message is one of them. Raises StoreError."""


class _AgeInLane:
    """The topics of one age, in one lane.

    Invariant: of each segment before `next` that has come of age, all messages of these topics are trimmed, or their
    stream is in `held`: with the first one that is not, the segment at which to go on, and whether its topic kept all
        that is not acknowledged.
    """

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.next = 0  # the number of the segment that is looked at next
        self.held: dict[Stream, tuple[int, int, bool]] = {}

    def let_go(self, wanted: AllWanted) -> None:
        """Go on with the streams whose message is not wanted any more."""
        for stream, (offset, sequence, keeps_all) in list(self.held.items()):
            is_over = offset < stream.low or keeps_all != wanted.keeps(stream)
            if is_over or not wanted.is_wanted(stream, offset):
                del self.held[stream]
                self.next = min(self.next, sequence)


class TopicAges:
    """Trims what is older than its topic's `retention_ms`, and keeps segments that topics want for longer than the
    store. Called by the store's upkeep alone.

    A segment costs a look at its footer once, for each different age. A message that outlives retention keeps those
    after it in its queue, for a trim removes a queue's beginning.
    """

    def __init__(
        self, clock: Clock, lanes: Sequence[Lane], ages: Callable[[], Mapping[str, int] | None], default_ms: int | None,
        wanted: AllWanted, save: Callable[[Sequence[Range]], bool],
        trim: Callable[[Sequence[tuple[Stream, int]], Callable[[], object]], None],
        count: Callable[[SealedSegment, Sequence[Range]], None],
    ) -> None:  # fmt: skip
        """`ages` has the topics with an age, in ms, and None until it knows them; `default_ms` is the store's. `save`
        moves what subscriptions have used up to the dead letters, and says False where it has to be asked again; `trim`
        removes the messages of streams below offsets, durably, and calls a function before a consumer can see that;
        `count` counts what subscriptions have lost by it.
        """
        self._clock = clock
        self._lanes = lanes
        self._ages = ages
        self._default_ms = default_ms
        self._wanted = wanted
        self._save = save
        self._trim = trim
        self._count = count
        self._known: Mapping[str, int] = {}  # the ages that `_in_lanes` and `_longer` are made of
        self._in_lanes: dict[tuple[int, int], _AgeInLane] = {}  # by lane and age
        self._longer: dict[str, int] = {}  # the topics that keep their messages longer than the store
        self._longest_ms = 0  # of them
        self._kept: dict[int, tuple[int, float, bool]] = {}  # by lane: a segment, until when this holds, is it kept
        self._look_s = 0.0  # when held streams are looked at again
        self._rest_s = 0.0  # until then nothing is looked at
        self._is_known = False  # which topics have an age

    def look(self) -> None:
        """Trim what has come of age. Raises StoreError, OSError; then the next look tries again."""
        began_s = self._clock.monotonic_s()
        if began_s < self._rest_s:
            return
        has_trimmed = False
        try:
            self._is_known = self._follow_settings()
            if self._in_lanes and self._wanted.is_known:
                has_trimmed = self._look(began_s, self._clock.wall_ms())
        finally:
            end_s = self._clock.monotonic_s()
            self._rest_s = 0.0 if has_trimmed else end_s + LOOK_TIMES * (end_s - began_s)

    def _look(self, began_s: float, now_ms: int) -> bool:
        """True if something was trimmed: there may be more."""
        if began_s >= self._look_s and any(one.held for one in self._in_lanes.values()):
            for one in self._in_lanes.values():
                one.let_go(self._wanted)
            end_s = self._clock.monotonic_s()
            self._look_s = end_s + max(LOOK_S, LOOK_TIMES * (end_s - began_s))
        looked = [
            self._look_at(self._lanes[lane], one, now_ms - age_ms) for (lane, age_ms), one in self._in_lanes.items()
        ]
        return any(looked)

    def _follow_settings(self) -> bool:
        """Take on ages that were changed; False if they are not known yet. The topics of another age begin with the
        oldest segment.
        """
        ages = self._ages()
        if ages is None or ages is self._known or ages == self._known:
            return ages is not None
        by_age: defaultdict[int, set[str]] = defaultdict(set)
        for topic, age_ms in ages.items():
            by_age[age_ms].add(topic)
        known, self._in_lanes = self._in_lanes, {}
        for age_ms, names in by_age.items():
            for lane in range(len(self._lanes)):
                before = known.get((lane, age_ms))
                is_same = before is not None and before.topics == names
                self._in_lanes[lane, age_ms] = before if is_same and before else _AgeInLane(frozenset(names))
        default = self._default_ms
        self._longer = {} if default is None else {topic: one for topic, one in ages.items() if one > default}
        self._longest_ms = max(self._longer.values(), default=0)
        self._kept.clear()
        self._known = ages
        return True

    def _look_at(self, lane: Lane, one: _AgeInLane, limit_ms: int) -> bool:
        """Trim the topics of one age, in the segments of a lane whose newest message is older than a time. True if
        there was something.
        """
        sealed = lane.view.sealed
        at = bisect_left(sealed, one.next, key=_number)
        lows, ranges, held = dict[Stream, int](), list[tuple[SealedSegment, list[Range]]](), dict(one.held)
        following = one.next
        for segment in sealed[at : at + MOST_AT_ONCE]:
            if segment.record.newest_ms >= limit_ms:
                break
            mine = self._old_of(lane, segment, one.topics, lows, held)
            if not self._save(mine):
                break
            lows |= {stream: end for stream, _, end in mine}
            ranges.append((segment, mine))
            following = _number(segment) + 1
        if lows:
            self._trim(list(lows.items()), partial(self._count_all, ranges))
        one.next, one.held = following, held  # last: what was not trimmed is looked at again
        return bool(lows)

    def _count_all(self, ranges: Sequence[tuple[SealedSegment, Sequence[Range]]]) -> None:
        for segment, mine in ranges:
            if mine:
                self._count(segment, mine)

    def _old_of(
        self, lane: Lane, sealed: SealedSegment, topics: frozenset[str], lows: Mapping[Stream, int],
        held: dict[Stream, tuple[int, int, bool]],
    ) -> list[Range]:  # fmt: skip
        """The messages of a segment that are to be trimmed; streams that are kept from there on are added to `held`."""
        found: list[Range] = []
        try:
            streams = [stream for stream in _streams_of(lane, sealed) if stream.topic in topics and stream not in held]
        except StoreCorrupt:  # whose messages it has is not known: they go with those after them
            return found
        wanted = self._wanted.of(lane, sealed) if streams else None
        for stream in streams:
            first, count = sealed.first_of(stream.number)
            begin, end = max(first, stream.low, lows.get(stream, 0)), first + count
            kept = None if wanted is None or begin >= end else wanted.first(stream, begin, end)
            if kept is not None:
                held[stream] = kept, _number(sealed), self._wanted.keeps(stream)
                end = kept
            if begin < end:
                found.append((stream, begin, end))
        return found

    # -- longer than the store ------------------------------------------------------------------------

    def outlives(self, lane: Lane, sealed: SealedSegment) -> bool:
        """Whether a segment that is older than the store's `retention_ms` may have messages of a topic with a longer
        one.

        It asks once in a second for each lane, as the answer is wanted with each progress of a lane.
        """
        if not self._is_known:
            return True
        self._follow_settings()
        if not self._longer:
            return False
        now_s, number = self._clock.monotonic_s(), _number(sealed)
        known, until_s, is_kept = self._kept.get(lane.index, (-1, 0.0, False))
        if known != number or now_s >= until_s:
            is_kept = self._is_younger(lane, sealed)
            self._kept[lane.index] = number, now_s + LOOK_S, is_kept
        return is_kept

    def _is_younger(self, lane: Lane, sealed: SealedSegment) -> bool:
        age_ms = self._clock.wall_ms() - sealed.record.newest_ms
        if age_ms > self._longest_ms:
            return False
        try:  # by the segment's streams, which are few beside all topics
            streams = [one for one in _streams_of(lane, sealed) if age_ms <= self._longer.get(one.topic, -1)]
        except StoreCorrupt:  # it may have some
            return True
        return any(sum(sealed.first_of(stream.number)) > stream.low for stream in streams)


def _number(sealed: SealedSegment) -> int:
    return sealed.segment.sequence


def _streams_of(lane: Lane, sealed: SealedSegment) -> list[Stream]:
    """The streams that have messages in a segment. Raises StoreCorrupt, OSError."""
    footer = sealed.footer
    numbers: list[int] = footer.numbers[footer.counts > 0].tolist()
    return [lane.streams[number] for number in numbers]
