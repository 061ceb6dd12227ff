"""What the index of a topic needs of its store; and positions of messages as the index has them.

In a position the ledger is the queue id, the entry the low 32 bits of the offset. So it is what users call the message.
It needs no search in the log, and it stays the same when a message is copied forward. An offset is told again from its
entry and the queue's next offset: so the index is right as long as fewer than 2**32 messages of the same queue follow
one that is still delayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ...index.trackers.bitmaps import are_in
from ...index.trackers.places import ENTRY_BITS, MOST_ENTRY
from ..device.clock import Clock
from ..device.disk import Disk
from ..format.arrays import Bools, Int64s
from ..format.layout import checksum64
from ..log.hidden_streams import HiddenStreams
from ..log.lane import Lane
from ..log.streams import Stream, StreamMap
from ..read.reader import Reader

DELAYED_FOLDER = "delayed"
Number = TypeVar("Number", int, Int64s)


class StoreParts(NamedTuple):
    """Parts of one store.

    Attributes:
        reader: without caches: what it reads is read once.
        keeps: False where acknowledged messages may be lost (durability "os"): what an index has on disk is then not
            taken over by the next opening.
    """

    disk: Disk
    path: Path
    clock: Clock
    streams: StreamMap
    lanes: Sequence[Lane]
    hidden: HiddenStreams
    reader: Reader
    keeps: bool

    def folder_of(self, topic: str) -> Path:
        """Of a topic's index. A name of a fixed length, since a topic may be longer than a file's name."""
        return self.path / DELAYED_FOLDER / f"{checksum64(topic.encode()):016x}"

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Where a queue goes on, messages counted that are not durable yet."""
        stream = self.streams.get(topic, queue_id)
        if stream is None or stream.number < 0:
            return 0
        given = stream.lane.offsets[stream.number]
        return given if given >= 0 else self.reader.finder.bounds(stream)[1]  # who follows a writer knows no more

    def stream(self, topic: str, queue_id: int) -> Stream | None:
        """A queue's stream, if it ever had a message."""
        stream = self.streams.get(topic, queue_id)
        return None if stream is None or stream.number < 0 else stream

    def queues_in(self, topic: str, lane: Lane) -> list[Stream]:
        """The streams of a topic that a lane has."""
        return [stream for stream in list(self.streams.topics.get(topic, {}).values()) if stream.lane is lane]


def places_of(queue_ids: Number, offsets: Number) -> Number:
    """(n,) one number a message, by which they are in order of queue and offset."""
    return queue_ids << ENTRY_BITS | (offsets & MOST_ENTRY)


def offsets_of(entries: Int64s, next_offset: int | Int64s) -> Int64s:
    """(n,) the offsets of messages of one queue, which goes on at `next_offset`; or of a queue each (n,)."""
    last = np.maximum(np.asarray(next_offset, np.int64) - 1, 0)
    found: Int64s = last - ((last - entries) & MOST_ENTRY)
    return found


def are_among(places: Int64s, known: BitMap64) -> Bools:
    """(n,) which places a set has."""
    found = are_in(places, known) if known else None
    return np.zeros(len(places), np.bool_) if found is None else found


class Subscribers(Protocol):
    """What the subscriptions of a store tell of themselves."""

    def topics(self) -> set[str]:
        """Those that have a subscription."""

    def unacknowledged(self, topic: str, queue_id: int, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) for which offsets, which ascend, some subscription of a topic has no acknowledgement."""


__all__ = ["ENTRY_BITS", "MOST_ENTRY", "StoreParts", "Subscribers", "are_among", "offsets_of", "places_of"]
