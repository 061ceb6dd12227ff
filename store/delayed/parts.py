"""The parts of a store that a topic's index works with, its files among them; and the places of messages in the index.

In a place the ledger is the queue id, the entry the low 32 bits of the offset: the name that users have for the
message. It needs no search in the log, and stays valid when a message is copied. The entry and the queue's next offset
give the offset. So the index is right as long as fewer than 2**32 messages of the same queue follow one that is still
delayed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from pyroaring import BitMap64

from ...index.trackers.places import ENTRY_BITS, MOST_ENTRY, are_in
from ..device.clock import Clock
from ..device.disk import Disk
from ..device.log_file import LogFile
from ..format.arrays import Bools, Indexes, Int64s
from ..format.hidden import hidden_parts
from ..format.layout import checksum64
from ..log.hidden_streams import HiddenStreams
from ..log.lane import Lane
from ..log.streams import Stream, StreamMap
from ..read.reader import Reader

__all__ = [
    "DELAYED_FOLDER", "ENTRY_BITS", "MOST_ENTRY", "DiskFiles", "StoreParts", "Subscribers", "are_among",
    "offsets_of", "places_of", "topic_of",
]  # fmt: skip

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

    def low(self, topic: str, queue_id: int) -> int:
        """The messages of a queue before this offset were trimmed; 0 if it never had a message."""
        stream = self.stream(topic, queue_id)
        return 0 if stream is None else stream.low

    def by_queue(self, topic: str, places: Int64s) -> Iterator[tuple[int, Indexes, Int64s]]:
        """For each queue of some messages its id, its rows among `places`, and their offsets."""
        queues = places >> ENTRY_BITS
        order = np.argsort(queues, kind="stable")
        known, begins = np.unique(queues[order], return_index=True)
        for queue_id, rows in zip(known.tolist(), np.split(order, begins[1:]), strict=False):
            yield queue_id, rows, offsets_of(places[rows] & MOST_ENTRY, self.next_offset(topic, queue_id))

    def files_of(self, topic: str) -> DiskFiles:
        """The files of a topic's index."""
        return DiskFiles(self.disk, self.folder_of(topic))

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


def topic_of(stream: Stream) -> str:
    """The topic that a hidden stream belongs to; "" if it is no stream of a topic."""
    parts = hidden_parts(stream.topic)
    return parts.names[0] if parts is not None and parts.names else ""


def are_among(places: Int64s, known: BitMap64) -> Bools:
    """(n,) which places are in a set."""
    found = are_in(places, known) if known else None
    return np.zeros(len(places), np.bool_) if found is None else found


class Subscribers(Protocol):
    """The questions of an index to the subscriptions of its store."""

    def topics(self) -> set[str]:
        """The topics that have a subscription."""

    def unacknowledged(self, topic: str, queue_id: int, offsets: Int64s, *, without: bool = False) -> Bools:
        """(n,) which offsets, which ascend, lack an acknowledgement of some subscription of a topic; `without` one, all
        or none.
        """

    def acknowledged(self, topic: str, queue_id: int, begin: int, end: int) -> list[int]:
        """For each subscription of a topic, how many of the messages begin .. end - 1 it has acknowledged."""

    def save_used_up(self, topic: str, queue_id: int, begin: int, end: int) -> bool:
        """Before copies of some of the messages begin .. end - 1 are forgotten: those that a subscription has used up
        go to its dead letters. False: ask again. Raises StoreError if nothing may be forgotten any more.
        """


class DiskFiles:
    """The files of one folder. Makes the folder durably if it does not exist; opens a file for each read of it.

    It implements `Files` of `index.trackers`, which has the contract of each call.
    """

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self._writers: dict[str, tuple[LogFile, int]] = {}  # by name, with the end of the file
        disk.make_folder(folder)

    def names(self) -> list[str]:
        """The names of all files."""
        return self._disk.list(self._folder)

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Append to a file, which the first call makes."""
        known = self._writers.get(name)
        file, end = known or (self._disk.open(self._folder / name, create=True), 0)
        self._writers[name] = file, end
        file.write([data], end)
        self._writers[name] = file, end + len(data)

    def flush(self, name: str) -> None:
        """Make the bytes written so far durable."""
        self._writers[name][0].force()

    def force(self, name: str) -> None:
        """Make a file durable. It is not written to after that."""
        file, _ = self._writers.pop(name)
        try:
            file.force()
        finally:
            file.close()

    def force_folder(self) -> None:
        """Make the names durable."""
        self._disk.force_folder(self._folder)

    def rename(self, name: str, to: str) -> None:
        """Rename a file in one step; a file of the new name is replaced."""
        self._disk.rename(self._folder / name, self._folder / to)

    def remove(self, name: str) -> None:
        """Remove a file. No error if it does not exist."""
        self._let_go(name)
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(self._folder / name)

    def read(self, name: str, at: int, size: int) -> bytes:
        """`size` bytes from `at` on, or fewer at the file's end."""
        file = self._disk.open(self._folder / name)
        try:
            return file.read(at, size)
        finally:
            file.close()

    def size(self, name: str) -> int:
        """The size in bytes."""
        file = self._disk.open(self._folder / name)
        try:
            return file.size()
        finally:
            file.close()

    def _let_go(self, name: str) -> None:
        known = self._writers.pop(name, None)
        if known is not None:
            known[0].close()

    def close(self) -> None:
        """Close the files that are open."""
        for name in list(self._writers):
            self._let_go(name)

    def clear(self) -> None:
        """Remove all files; the folder stays."""
        self.close()
        for name in self.names():
            self.remove(name)
        self.force_folder()
