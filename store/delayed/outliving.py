"""Messages that somebody has still to get when their topic's own age would remove them: see `topics.aging`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..format.arrays import Bools, Int64s
from ..format.dues import NO_DUES
from ..log.lane import Lane
from ..log.streams import Stream
from ..segment.sealed import SealedSegment
from .keeping import KeepingTopics
from .wanted import has_expired, rows_of, still_wanted, unacknowledged

if TYPE_CHECKING:
    from .delays import Delays


class Outliving:
    """The messages that outlive their time: those that `wanted` names, in a segment or as copies."""

    def __init__(self, delays: Delays, topics: KeepingTopics) -> None:
        self._delays = delays
        self._topics = topics

    @property
    def is_known(self) -> bool:
        """Whether all indexes are open."""
        return self._delays.is_open

    def of(self, lane: Lane, sealed: SealedSegment) -> OutlivingOfSegment:
        """Those of a lane's segment."""
        return OutlivingOfSegment(self, lane, sealed)

    def keeps(self, stream: Stream) -> bool:
        """Whether its topic keeps what is not acknowledged, delayed or not."""
        return stream.topic in self._topics.keeping()

    def is_wanted(self, stream: Stream, offset: int) -> bool:
        """Whether somebody has still to get a message."""
        settings = self._topics.keeping().get(stream.topic)
        if settings is not None and settings.ttl_ms is not None:
            return False  # it may be too old by now, which `OutlivingOfSegment` knows
        return self.is_damaged(stream) or bool(self.are_wanted(stream, np.array([offset]))[0])

    def is_damaged(self, stream: Stream) -> bool:
        """Whether the changes of its topic cannot be read, so that nobody knows which delayed messages are wanted."""
        return stream.topic in self._delays.damaged

    def keeps_all(self, stream: Stream, sealed: SealedSegment) -> bool:
        """Whether its topic keeps what is not acknowledged of a segment, delayed or not."""
        settings = self._topics.keeping().get(stream.topic)
        return settings is not None and not has_expired(self._delays, settings, sealed)

    def are_wanted(self, stream: Stream, ascending: Int64s) -> Bools:
        """(n,) which messages some subscription has still to get."""
        topic = self._delays.find(stream.topic)
        if topic is not None:
            return still_wanted(self._delays, topic, stream.queue_id, ascending)
        return unacknowledged(self._delays, stream.topic, stream.queue_id, ascending)

    def copies_of(self, stream: Stream) -> Int64s:
        """The offsets of a queue's messages that live on as copies, in ascending order."""
        topic = self._delays.find(stream.topic)
        if topic is None or not len(topic.copies):
            return np.empty(0, np.int64)
        with topic.lock:
            found = [offsets for queue_id, _, offsets in topic.copies.of_queues() if queue_id == stream.queue_id]
        return np.sort(np.concatenate([*found, np.empty(0, np.int64)]))


class OutlivingOfSegment:
    """Those of one segment. The messages with delivery times are read once, if somebody asks for them."""

    def __init__(self, outliving: Outliving, lane: Lane, sealed: SealedSegment) -> None:
        self._outliving = outliving
        self._lane = lane
        self._sealed = sealed
        self._later: dict[int, Int64s] | None = None  # by stream number: the messages that came with a later time

    def first(self, stream: Stream, begin: int, end: int) -> int | None:
        """The first wanted offset of a stream below `end`, of those from `begin` on and of copies."""
        outliving = self._outliving
        if outliving.is_damaged(stream):
            return begin
        copies = outliving.copies_of(stream)
        here = np.arange(begin, end) if outliving.keeps_all(stream, self._sealed) else self._later_of(stream)
        asked = np.unique(np.concatenate([copies[copies < end], here[(here >= begin) & (here < end)]]))
        wanted = asked[outliving.are_wanted(stream, asked)] if len(asked) else asked
        return int(wanted[0]) if len(wanted) else None

    def _later_of(self, stream: Stream) -> Int64s:
        if self._later is None:
            self._later = self._read()
        return self._later.get(stream.number, np.empty(0, np.int64))

    def _read(self) -> dict[int, Int64s]:
        found: dict[int, list[Int64s]] = {}
        for rows in rows_of(self._lane, self._sealed) if self._sealed.footer.dues != NO_DUES else ():
            is_later = rows.times_ms > rows.written_ms
            for number in np.unique(rows.numbers[is_later]).tolist():
                found.setdefault(number, []).append(rows.offsets[is_later & (rows.numbers == number)])
        return {number: np.concatenate(parts) for number, parts in found.items()}
