"""Where the rows of a lane's queues begin, by topic and queue id: one place in memory a queue."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..format.arrays import Int64s
from ..format.hidden import is_hidden
from ..log.lane import Lane
from ..log.streams import Stream

QUEUE = Struct("=qII")  # the first offset of a queue that can be read here, its row, and how many messages follow
QUEUE_BYTES = QUEUE.size
NAME_BYTES = QUEUE_BYTES + 4  # with the stream's number
TOPIC_BYTES = 250  # of a dict, with the pair
SPARE_IDS = 64  # and twice as many ids as a topic has queues; those with larger ids go by their streams
QUEUE_TYPE = np.dtype([("first", np.int64), ("row", np.uint32), ("count", np.uint32)])


class Layout(NamedTuple):
    """The places of a lane's queues in one array, topic after topic, by queue id.

    Attributes:
        streams: how many the lane had, the hidden ones as well.
        topics: the first place of a topic, and the one after its last.
        numbers, places: (n,) of each queue that has a place, the number of its stream and the place.
        size: how many places there are.
    """

    streams: int
    topics: dict[str, tuple[int, int]]
    numbers: Int64s
    places: Int64s
    size: int

    @property
    def size_bytes(self) -> int:
        """Memory of this and of the rows by name."""
        return NAME_BYTES * self.size + TOPIC_BYTES * len(self.topics) + self.numbers.nbytes + self.places.nbytes

    @classmethod
    def of(cls, streams: Sequence[Stream]) -> Layout:
        """Of a lane's streams, by number."""
        streams = list(streams)  # others may be defined meanwhile
        known: dict[str, int] = {}
        which = np.array([known.setdefault(stream.topic, len(known)) for stream in streams], np.int64)
        ids = np.array([stream.queue_id for stream in streams], np.int64)
        counts, largest = np.bincount(which, minlength=len(known)), np.full(len(known), -1, np.int64)
        np.maximum.at(largest, which, ids)
        sizes = np.minimum(largest + 1, 2 * counts + SPARE_IDS)
        sizes[[at for topic, at in known.items() if is_hidden(topic)]] = 0
        ends = sizes.cumsum()
        begins = ends - sizes
        numbers = np.flatnonzero(ids < sizes[which])
        topics = dict(zip(known, zip(begins.tolist(), ends.tolist(), strict=True), strict=True))
        places = begins[which[numbers]] + ids[numbers]
        return cls(len(which), topics, numbers, places, int(sizes.sum()))


class NamedRows(NamedTuple):
    """The rows of a table that can be read, by topic and queue id; valid until a stream is trimmed.

    Attributes:
        shown: how often the lane's lows had moved (`Trims.shown`) before they were looked at.
        topics, queues: the layout's topics; a QUEUE a place of the layout.
        numbers: of each place the number of its stream.
        layout, table_index: what it is made of.
    """

    shown: int
    topics: dict[str, tuple[int, int]]
    queues: memoryview
    numbers: npt.NDArray[np.uint32]
    layout: Layout
    table_index: Int64s

    @classmethod
    def of(cls, lane: Lane, layout: Layout, index: Int64s) -> NamedRows:
        """`index` is the table's, by number of the stream."""
        shown = lane.lows.shown  # first: a trim that comes in between is seen later
        lows = lane.lows.column(lane.streams)
        known = layout.numbers < len(index) // 2 - 1
        numbers, places = layout.numbers[known], layout.places[known]
        begins, ends = index[2 * numbers], index[2 * numbers + 2]
        firsts, counts = begins - index[2 * numbers + 1], ends - begins
        if lows is not None:
            gone = (lows[numbers] - firsts).clip(0, counts)
            firsts, begins, counts = firsts + gone, begins + gone, counts - gone
        queues = np.zeros(layout.size, QUEUE_TYPE)
        for column, values in (("first", firsts), ("row", begins), ("count", counts)):
            queues[column][places] = values
        by_place = np.zeros(layout.size, np.uint32)
        by_place[places] = numbers
        whole = memoryview(queues.view(np.uint8).data).toreadonly()
        return cls(shown, layout.topics, whole, by_place, layout, index)

    @property
    def size_bytes(self) -> int:
        """Memory of the columns."""
        return self.layout.size_bytes

    def renewed(self, lane: Lane) -> NamedRows:
        """With the lows as they are now."""
        return self.of(lane, self.layout, self.table_index)

    def number(self, place: int) -> int:
        """Of the stream of a queue that has a place."""
        return int(self.numbers[place])
