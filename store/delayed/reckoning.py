"""Which delayed messages are pending by the log alone: for a store that is only read, whose indexes are not open."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..format.delays import COPIES, DELAYS
from ..format.hidden import hidden_parts, hidden_topic, is_hidden
from .changes import ChangedDelays, ChangesReader
from .copies import Copies
from .opening import changes_of
from .parts import StoreParts
from .positions import ENTRY_BITS, MOST_ENTRY, offsets_of, places_of
from .walk import Walk

Int64s = npt.NDArray[np.int64]
_Queues = dict[int, list[Int64s]]


class Pending(NamedTuple):
    """The messages whose time has not come, and that are not cancelled.

    Attributes:
        offsets: by topic and queue id, (n,) ascending.
        cancelled: the same of those that were cancelled, and may be there no more.
        copies: the same of those that live on as copies, delayed or not.
        is_whole: False if damage hides some. The index of a store that opens leaves out the same ones.
    """

    offsets: dict[str, dict[int, Int64s]]
    cancelled: dict[str, dict[int, Int64s]]
    copies: dict[str, dict[int, Int64s]]
    is_whole: bool

    def counts(self) -> dict[str, int]:
        """How many there are of each topic that has some, sorted."""
        return {topic: sum(map(len, queues.values())) for topic, queues in sorted(self.offsets.items())}


def pending_by_log(parts: StoreParts, topics: Collection[str] | None = None) -> Pending:
    """Read the frames with delivery times and the records of changes; nothing else is read, and nothing is changed.

    `topics`: None counts all. It takes 8 bytes of memory a pending message.

    Raises StoreCorrupt if a record of a change or a copy is damaged, OffsetOutOfRange or OSError if a writer
    removed some of them meanwhile.
    """
    now_ms = parts.clock.wall_ms()
    changes = _changes(parts, topics)
    found: dict[str, _Queues] = {}
    copied: dict[str, _Queues] = {}
    damaged = 0
    for lane in parts.lanes:
        walk = Walk(lane)
        for rows in walk.parts(now_ms):
            later = rows.times_ms > now_ms
            for number in np.unique(rows.numbers[later]).tolist():
                stream = lane.streams[number]
                mine = later & (rows.numbers == number)
                if not is_hidden(stream.topic) and (topics is None or stream.topic in topics):
                    _note(found, stream.topic, stream.queue_id, rows.offsets[mine])
        damaged += walk.damaged
    for topic in _topics_with(COPIES, parts, topics):
        copies = Copies(topic, parts)
        for queue_id, at, offsets in copies.of_queues():
            _note(found, topic, queue_id, offsets[copies.times_ms[at] > now_ms])
            _note(copied, topic, queue_id, offsets)
    for topic, changed in changes.items():
        _apply(changed, found.setdefault(topic, {}), topic, parts, now_ms)
    cancelled = {topic: _cancelled(changed, topic, parts) for topic, changed in changes.items()}
    counted = [_all_counted(one, parts) for one in (found, cancelled, copied)]
    return Pending(counted[0], counted[1], counted[2], not damaged)


def _note(found: dict[str, _Queues], topic: str, queue_id: int, offsets: Int64s) -> None:
    found.setdefault(topic, {}).setdefault(queue_id, []).append(offsets)


def _topics_with(kind: str, parts: StoreParts, topics: Collection[str] | None) -> list[str]:
    """The topics, of some or of all, that have a hidden stream of a kind."""
    told = [hidden_parts(stream.topic) for stream in parts.hidden.of_kind(kind)]
    named = [one.names[0] for one in told if one is not None and one.names]
    return [name for name in named if topics is None or name in topics]


def _changes(parts: StoreParts, topics: Collection[str] | None) -> dict[str, ChangedDelays]:
    found = {}
    for topic in _topics_with(DELAYS, parts, topics):
        stream, reader = parts.hidden.find(hidden_topic(DELAYS, topic)), ChangesReader()
        assert stream is not None, "it was just listed"
        for record in changes_of(stream, parts.reader):
            reader.add(record.data)
        found[topic] = reader.state
    return found


def _apply(changed: ChangedDelays, queues: _Queues, topic: str, parts: StoreParts, now_ms: int) -> None:
    """Leave out what was cancelled or moved, and take in what was moved to a later time."""
    if not len(changed):
        return
    for queue_id, pieces in queues.items():
        offsets = np.concatenate(pieces)
        places = places_of(np.full(len(offsets), queue_id), offsets)
        queues[queue_id] = [offsets[changed.times_of(places, np.full(len(places), now_ms + 1)) > now_ms]]
    later = np.array([place for place, time_ms in changed.moved.items() if time_ms > now_ms], np.int64)
    copies = Copies(topic, parts)
    for queue_id in np.unique(later >> ENTRY_BITS).tolist():
        stream = parts.stream(topic, queue_id)
        if stream is not None:
            entries = later[later >> ENTRY_BITS == queue_id] & MOST_ENTRY
            offsets = offsets_of(entries, parts.next_offset(topic, queue_id))
            first = parts.reader.finder.bounds(stream)[0]
            there = (offsets >= first) | copies.has(queue_id, offsets)  # else it was removed, and the change is left
            queues.setdefault(queue_id, []).append(offsets[there])


def _cancelled(changed: ChangedDelays, topic: str, parts: StoreParts) -> _Queues:
    places = np.fromiter(changed.cancelled, np.int64, len(changed.cancelled))
    queues = places >> ENTRY_BITS
    return {
        queue_id: [offsets_of(places[queues == queue_id] & MOST_ENTRY, parts.next_offset(topic, queue_id))]
        for queue_id in np.unique(queues).tolist()
    }


def _all_counted(found: dict[str, _Queues], parts: StoreParts) -> dict[str, dict[int, Int64s]]:
    named = {topic: _counted(topic, queues, parts) for topic, queues in found.items()}
    return {topic: queues for topic, queues in named.items() if queues}


def _counted(topic: str, queues: _Queues, parts: StoreParts) -> dict[int, Int64s]:
    """Each message once, without those that were trimmed."""
    found = {}
    for queue_id, pieces in queues.items():
        stream = parts.stream(topic, queue_id)
        offsets = np.unique(np.concatenate(pieces))
        offsets = offsets[offsets >= (0 if stream is None else stream.low)]
        if len(offsets):
            found[queue_id] = offsets
    return found
