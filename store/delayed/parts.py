"""What the index of a topic needs of its store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..device.clock import Clock
from ..device.disk import Disk
from ..format.layout import checksum64
from ..log.hidden_streams import HiddenStreams
from ..log.lane import Lane
from ..log.streams import Stream, StreamMap
from ..read.reader import Reader

DELAYED_FOLDER = "delayed"


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
