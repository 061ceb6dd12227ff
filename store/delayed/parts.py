"""The parts of a store that a topic's index works with; and the positions of messages in the index.

In a position the ledger is the queue id, the entry the low 32 bits of the offset: the name that users have for the
message. It needs no search in the log, and stays valid when a message is copied. The entry and the queue's next offset
give the offset. So the index is right as long as fewer than 2**32 messages of the same queue follow one that is still
delayed.
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
        reader: without caches, as each message is read once.
        keeps: False if acknowledged messages may be lost (durability "os"): then the next opening does not use the
            index's files.
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
        """The folder of a topic's index. Its name has a fixed length, as a topic may be longer than a file name."""
        return self.path / DELAYED_FOLDER / f"{checksum64(topic.encode()):016x}"

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The next offset of a queue, with messages that are not durable yet."""
        stream = self.streams.get(topic, queue_id)
        if stream is None or stream.number < 0:
            return 0
        given = stream.lane.offsets[stream.number]
        return given if given >= 0 else self.reader.finder.bounds(stream)[1]  # a reader of another process's store

    def stream(self, topic: str, queue_id: int) -> Stream | None:
        """The stream of a queue, if it ever had a message."""
        stream = self.streams.get(topic, queue_id)
        return None if stream is None or stream.number < 0 else stream

    def queues_in(self, topic: str, lane: Lane) -> list[Stream]:
        """The streams of a topic in a lane."""
        return [stream for stream in list(self.streams.topics.get(topic, {}).values()) if stream.lane is lane]


def places_of(queue_ids: Number, offsets: Number) -> Number:
    """(n,) a number for each message, which sorts by queue and offset."""
    return queue_ids << ENTRY_BITS | (offsets & MOST_ENTRY)


def offsets_of(entries: Int64s, next_offset: int | Int64s) -> Int64s:
    """(n,) the offsets of messages of one queue whose next offset is `next_offset`; or each of its own queue, (n,)."""
    last = np.maximum(np.asarray(next_offset, np.int64) - 1, 0)
    found: Int64s = last - ((last - entries) & MOST_ENTRY)
    return found


def are_among(places: Int64s, known: BitMap64) -> Bools:
    """(n,) which places are in a set."""
    found = are_in(places, known) if known else None
    return np.zeros(len(places), np.bool_) if found is None else found


class Subscribers(Protocol):
    """The questions of an index to the subscriptions of its store."""

    def topics(self) -> set[str]:
        """The topics that have a subscription."""

    def unacknowledged(self, topic: str, queue_id: int, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which offsets, which ascend, lack an acknowledgement of some subscription of a topic."""


__all__ = ["ENTRY_BITS", "MOST_ENTRY", "StoreParts", "Subscribers", "are_among", "offsets_of", "places_of"]
