"""The copies of one topic: messages that live on after their segments, under their old names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import OffsetOutOfRange, StoreCorrupt
from ..format.arrays import Bools, Indexes, Int64s
from ..format.copies import CopyHead
from ..format.delays import COPIES
from ..format.extras import Extras
from ..format.hidden import hidden_topic
from ..log.streams import Stream
from ..log.ticket import SubmitRequest
from ..read.message import Message, packed_properties
from .parts import StoreParts, places_of

_NONE = np.empty(0, np.int64)
READ_MESSAGES = 1024
READ_BYTES = 16 << 20
COPY_BYTES = 100  # of a copy on disk, beside its data, about


class Copies:
    """Knows where each copy lies. Not safe for threads, except `append`.

    It stores only the copies: which of them are needed follows from acknowledgements, cancellations and trims.

    Invariant: no copy is of a message that was trimmed before the last `drop_trimmed`; `_load` ends with that.

    Attributes:
        places: (n,) of the messages that have a copy, ascending.
        at: (n,) the offset of each one's newest copy in the stream.
        times_ms: (n,) their own times of delivery.
        sizes: (n,) bytes on disk, about.
        damaged: copies that could not be read at the opening, and are passed over; each consumer hears of it once.
        damage: the error of the first of them, or of an oldest segment that may have others; None: there are none.
        next_at: copies from this offset of the stream on are not known yet.
    """

    def __init__(self, topic: str, parts: StoreParts) -> None:
        self._name = topic
        self._parts = parts
        self.places = self.at = self.times_ms = self.sizes = _NONE
        self.next_at = 0
        self.damaged = 0
        self.damage: StoreCorrupt | None = None
        self._damaged_at = -1  # the offset in the stream of the first of them that is known
        self._left = self._left_at = _NONE  # forgotten places, and their copies' offsets in the stream
        self._load()

    def __len__(self) -> int:
        return len(self.places)

    @property
    def stream(self) -> Stream | None:
        """The hidden stream, if there ever was a copy."""
        return self._parts.hidden.find(hidden_topic(COPIES, self._name))

    @property
    def size_bytes(self) -> int:
        """The bytes of all copies on disk, about."""
        return int(self.sizes.sum())

    def _load(self) -> None:
        stream, reader = self.stream, self._parts.reader
        if stream is None:
            return
        at, end = reader.finder.bounds(stream)
        try:
            reader.finder.whole_bounds(stream)
        except StoreCorrupt as error:
            self.damage, self._damaged_at = error, stream.low
        while at < end:
            try:
                messages = reader.read(stream, at, READ_MESSAGES, READ_BYTES)
            except StoreCorrupt as error:  # one damaged copy: the others can still be read
                if self.damage is None:
                    self.damage, self._damaged_at = error, at
                self.damaged += 1
                at += 1
                continue
            self.add(messages)
            at = messages[-1].offset + 1 if messages else end
        self.drop_trimmed()

    def add(self, copies: Sequence[Message]) -> None:
        """Add copies, given as messages of the stream."""
        rows = []
        for copy in copies:
            head = CopyHead.unpack(copy.key)
            if head is not None:
                place = places_of(head.queue_id, head.offset)
                rows.append((place, copy.offset, copy.deliver_at_ms or 0, len(copy.data) + COPY_BYTES))
        self.take_in(np.array(rows, np.int64).reshape(-1, 4))

    def take_in(self, rows: Int64s) -> None:
        """Add copies that are durable: rows of `append`. Later ones replace earlier ones."""
        if not len(rows):
            return
        self.next_at = max(self.next_at, int(rows[:, 1].max()) + 1)
        columns = zip((self.places, self.at, self.times_ms, self.sizes), rows.T, strict=True)
        places, at, times, sizes = [np.concatenate(pair) for pair in columns]
        order = np.lexsort((at, places))
        newest = order[np.append(places[order][1:] != places[order][:-1], True)]
        self.places, self.at, self.times_ms, self.sizes = places[newest], at[newest], times[newest], sizes[newest]

    def append(self, messages: Sequence[Message]) -> Int64s:
        """Write copies of messages, durably. Returns rows (n, 4) for `take_in`. Raises as an append does."""
        stream = self._parts.hidden.find_or_make(hidden_topic(COPIES, self._name))
        requests = []
        for message in messages:
            head = CopyHead(message.queue_id, message.offset, message.timestamp_ms, message.key)
            extras = Extras(message.deliver_at_ms, head.pack(), packed_properties(message.properties))
            request = SubmitRequest(stream, message.data, len(message.data), extras)
            stream.lane.queue.put(request)
            requests.append(request)
        offsets = [request.result() for request in requests]
        rows = [
            (places_of(one.queue_id, one.offset), at, one.deliver_at_ms or 0, len(one.data) + COPY_BYTES)
            for one, at in zip(messages, offsets, strict=True)
        ]
        return np.array(rows, np.int64).reshape(-1, 4)

    def end_of_unwanted(self) -> int:
        """From which offset of the stream on a copy may be wanted. A damaged one may: its file may be put back."""
        low = int(self.at.min()) if len(self) else self.next_at
        return low if self.damage is None else min(low, self._damaged_at)

    def where(self, queue_id: int, offset: int) -> int | None:
        """The offset of a message's newest copy in the stream; None if it has none."""
        place = places_of(queue_id, offset)
        row = int(self.places.searchsorted(place))
        return int(self.at[row]) if row < len(self.places) and self.places[row] == place else None

    def read(self, queue_id: int, offset: int, at: int) -> Message | None:
        """The message, from its copy at this offset of the stream. It needs no lock. Raises StoreCorrupt, OSError."""
        stream = self.stream
        if stream is None:
            return None
        try:
            found = self._parts.reader.read(stream, at, 1, 1)
        except OffsetOutOfRange:  # nobody wanted it any more, and it went with its segment
            return None
        head = CopyHead.unpack(found[0].key) if found else None
        if head is None or (head.queue_id, head.offset) != (queue_id, offset):
            return None
        copy = found[0]
        return Message(
            self._name, queue_id, offset, copy.data, head.timestamp_ms, copy.deliver_at_ms, head.key, copy.properties
        )

    def has(self, queue_id: int, offsets: Int64s) -> Bools:
        """(n,) which messages of a queue have a copy."""
        return np.isin(places_of(np.full(len(offsets), queue_id), offsets), self.places)

    def may_have(self, queue_id: int, offsets: Int64s) -> Bools:
        """(n,) of which messages the next opening may find a copy: forgotten ones may still lie in the log.

        Their changes must not be forgotten before the copies are removed.
        """
        self._forget_left()
        places = places_of(np.full(len(offsets), queue_id), offsets)
        return np.isin(places, self.places) | np.isin(places, self._left)

    def are_in_log(self) -> Bools:
        """(n,) which copies the log still has: an unwanted one may have gone with its segment."""
        return self.at >= self._first_at()

    def _first_at(self) -> int:
        stream = self.stream
        return 0 if stream is None else self._parts.reader.finder.bounds(stream)[0]

    def _forget_left(self) -> None:
        if len(self._left):
            there = self._left_at >= self._first_at()
            self._left, self._left_at = self._left[there], self._left_at[there]

    def of_queues(self) -> list[tuple[int, Indexes, Int64s]]:
        """For each queue its id, its rows, and the offsets of its messages."""
        return list(self._parts.by_queue(self._name, self.places))

    def drop_trimmed(self) -> None:
        """Forget the copies of messages that were trimmed."""
        kept = np.ones(len(self.places), np.bool_)
        for queue_id, rows, offsets in self.of_queues():
            kept[rows] = offsets >= self._parts.low(self._name, queue_id)
        if not kept.all():
            self.keep(kept)

    def keep(self, kept: Bools) -> None:
        """Forget all copies but these (n,)."""
        left = np.concatenate([self._left, self.places[~kept]]), np.concatenate([self._left_at, self.at[~kept]])
        rest = self.places[kept], self.at[kept], self.times_ms[kept], self.sizes[kept]
        self._left, self._left_at = left  # no call from here on: an interrupt finds all done, or nothing
        self.places, self.at, self.times_ms, self.sizes = rest
        self._forget_left()
