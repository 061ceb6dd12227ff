"""The new messages of a topic for one subscription: queue by queue, each in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

import numpy as np

from ..errors import OffsetOutOfRange, StoreError
from ..filters.given import PlainFilter
from ..filters.message_filter import MessageFilter
from ..format.arrays import Bools, Int64s
from ..format.blobs import ExtraColumns
from ..read.message import MessageBatch
from .cursor import AckedOffsets
from .delays import LaterMessages, SubscriptionDelays
from .delivery import taken
from .expiring import Expiring
from .news import FEW_QUEUES, ReadyQueues, TopicLanes
from .read_ahead import ChunksAhead, ReadChunk
from .state import State

AHEAD_MESSAGES = 256  # read at once: a call that takes one message leaves the others for those that follow
AHEAD_BYTES = 256 << 10
HELD_BYTES = 8 << 20  # read ahead; beyond it only the messages asked for are read
LOOKS_BETWEEN = 8  # quick looks between two long ones, at least ..
LOOKS_S = 0.002  # .. and so much time; ..
MOST_LOOKS = 256  # .. at the most
FRESH_QUEUES = 4  # a quick look reads in so many at the most
FEW_MESSAGES = 64  # calls for so few are worth reading ahead in all queues
SKIPPED_MESSAGES = 4096  # delayed messages of a queue passed over at once ..
SKIPPED_TOGETHER = 1 << 18  # .. and of all queues together
MOST_CHUNKS = 64  # read by one call that finds nothing wanted; then others have a turn
NO_BYTES = -1  # no message has to fit


class Scanner:
    """Reads on after the acknowledged messages. One thread at a time.

    Invariants:
        * each offset of a queue below its read position was given out, was left out for later, is acknowledged, or
          waits in the queue's chunk;
        * messages that a filter leaves out, that have expired, and offsets that a repair gave up, are acknowledged.

    Attributes:
        is_unfinished: the newest `take` of all queues has stopped with queues left to read.
        is_cut: the newest `take` of one queue has stopped before its end.
        reached: the highest read positions by queue id: messages below may have been given out.
    """

    def __init__(self, state: State, delays: SubscriptionDelays, expiring: Expiring) -> None:
        """`delays` says which messages with a delivery time come later, `expiring` which ones are too old."""
        self._state = state
        self._parts = state.parts
        self._topic = state.topic
        self._delays = delays
        self._expiring = expiring
        self.reached: dict[int, int] = {}
        self._filter: PlainFilter | None = None
        self._wanted: MessageFilter | None = None  # of `_filter`
        self.restart()

    def restart(self) -> None:
        """Read on after the acknowledged messages, by the current settings. Nothing of before counts, but `reached`:
        an acknowledgement that fails from here on brings back a message below it.
        """
        parts, topic = self._parts, self._topic
        self._follow_settings()
        self._read_at: dict[int, int] = {}
        self._ahead, self._lanes = ChunksAhead(parts.streams, topic), TopicLanes(parts.streams, topic)
        self._ready = ReadyQueues(parts.streams, parts.news, topic)
        self._looks, self._looked_s = 0, 0.0  # quick ones, since the long one; and when that was
        self._chunks_left = 0  # chunks that the call may still read
        self._max_bytes = NO_BYTES  # of the call: with so much room its first message always fits
        self._empty_at: object = None  # `newest` when there was nothing new
        self._is_held_back = False  # the call has left new messages of a line unread: copies of older ones come first
        self.is_unfinished = self.is_cut = False

    def _follow_settings(self) -> None:
        settings = self._state.cursor.settings
        wanted = None if settings is None else settings.filter
        if wanted != self._filter:
            self._wanted = None if wanted is None else MessageFilter(wanted)
            self._filter = wanted

    def position(self, queue_id: int) -> int:
        """The offset at which a queue is read on."""
        return self._read_at.get(queue_id, 0)

    def is_past(self, queue_id: int, offset: int) -> bool:
        """Whether no message before an offset is still to be read, or was read ahead."""
        chunk = self._ahead.chunks.get(queue_id)
        return self.position(queue_id) >= offset and (chunk is None or chunk.first_offset >= offset)

    def are_wanted(self, batch: MessageBatch) -> Bools:
        """(n,) which messages pass the filter."""
        if self._wanted is None:
            return np.ones(len(batch), np.bool_)
        return self._wanted.mask(None if batch.extras is None else ExtraColumns.of(batch.extras), len(batch))

    def has_ahead(self, queues: Int64s, offsets: Int64s) -> Bools:
        """(n,) which places the scanner has ahead of it: it will read them, or has read them and not given them out."""
        known = queues.tolist()
        ahead: Bools = offsets >= np.array([self._read_at.get(queue_id, 0) for queue_id in known], np.int64)
        bounds = self._parts.reads.queue_bounds  # messages before the first one live on only as copies
        for queue_id in np.unique(queues[ahead]).tolist():
            ahead &= (queues != queue_id) | (offsets >= bounds(self._topic, queue_id)[0])
        for queue_id in self._ahead.chunks.keys() & set(known):
            chunk, mine = self._ahead.chunks[queue_id], np.flatnonzero(queues == queue_id)
            ahead[mine] |= np.isin(offsets[mine], chunk.batch.offsets[chunk.begin :])
        return ahead

    def rewind(self, queue_ids: Iterable[int] | None = None) -> None:
        """Read again from the acknowledged messages on, in some queues, or in all by the current settings."""
        if queue_ids is None:
            self._follow_settings()
            self._ready.add_all()
        for queue_id in list(self._read_at) if queue_ids is None else list(queue_ids):
            self._read_at.pop(queue_id, None)
            self._ahead.drop(queue_id)
            self._ready.add([queue_id])
        self._empty_at = None

    def has_copies_ahead(self) -> bool:
        """Whether messages that were read ahead have left the log since, and live on as copies."""
        for queue_id, chunk in self._ahead.chunks.items():
            is_removed = chunk.first_offset < self._parts.reads.queue_bounds(self._topic, queue_id)[0]
            if is_removed and self._delays.are_kept(queue_id, chunk.batch.offsets[chunk.begin :]).any():
                return True
        return False

    @property
    def held_bytes(self) -> int:
        """The memory of messages read ahead."""
        return self._ahead.size_bytes

    def give_back(self) -> None:
        """Drop messages that were read ahead; they are read again later."""
        for queue_id, chunk in list(self._ahead.chunks.items()):
            self._read_at[queue_id] = min(self.position(queue_id), chunk.first_offset)
            self._ready.add([queue_id])
            self._ahead.drop(queue_id)
        self._empty_at = None

    def newest(self) -> object:
        """A value that changes when the topic may have more durable messages. It looks at those that are new to it."""
        return self._ready.newest(self._lanes.all()), self.removed()

    def removed(self) -> object:
        """A value that changes when messages of the topic may have been removed, by a trim or retention."""
        return self._lanes.removed()

    def take_few(self, count: int, *, may_read: bool) -> tuple[ReadChunk, int] | None:
        """`count` messages of one queue that were read ahead: their chunk, and their first row in it.

        None if the first chunk has fewer; and now and then, so that queues without a chunk have their turns. With
        nothing read ahead it may read: a message that has just come need not wait for a long look.
        """
        self._looks += 1
        if not self._ahead.chunks:
            may_read &= self._looks < LOOKS_BETWEEN and not self._delays.is_used  # a long look passes over delayed ones
            if not may_read or not self._read_fresh():
                return None
        elif self._looks >= LOOKS_BETWEEN and self._is_turn_of_others():
            return None
        return self._ahead.take_few(count)

    def _read_fresh(self) -> bool:
        """Read ahead in the first queue that has new messages; False if it is none of those whose turn is next."""
        self._ready.find(self._lanes.all())
        self._chunks_left = 1
        try:
            queues = islice(self._ready.queues, FRESH_QUEUES)
            return any(self._chunk(queue_id, 1, AHEAD_BYTES) is not None for queue_id in queues)
        except StoreError:  # the queue's turn comes in a long look, and raises the error
            return False

    def _is_turn_of_others(self) -> bool:
        """Whether it is time to look into the queues that have no messages read ahead."""
        if len(self._ahead.chunks) >= len(self._parts.streams.topics.get(self._topic, ())):
            return False
        return self._looks >= MOST_LOOKS or self._parts.clock.monotonic_s() - self._looked_s >= LOOKS_S

    def take(
        self, most: int, max_bytes: int, limit_of: Callable[[int], int] | None = None, *, is_first: bool = True,
        reopened: Sequence[int] = (), by_key: bool = False, only: int | None = None,
    ) -> list[MessageBatch]:  # fmt: skip
        """Up to `most` new messages, one batch for each queue, beginning with the queue whose turn it is.

        `limit_of` says how many messages of a queue may be taken. If it is none, the queue waits until it is
        `reopened`; with `by_key` all queues do. With `is_first`, the first message may be larger than `max_bytes`.
        With `only`, those of this queue.
        """
        self._max_bytes, wanted = max_bytes if is_first else NO_BYTES, most
        newest = self.newest()
        self.is_cut = False
        if only is None:
            self.is_unfinished = False
            self._looks, self._looked_s = 0, self._parts.clock.monotonic_s()
        if reopened:
            self._ready.add(reopened)
            self._empty_at = None
        if not self._ahead.chunks and newest == self._empty_at:
            return []
        found: list[MessageBatch] = []
        self._chunks_left, is_all, self._is_held_back = MOST_CHUNKS, is_first and only is None, False
        for queue_id in self._turn(only):
            limit = most if limit_of is None else min(most, limit_of(queue_id))
            if limit <= 0:
                is_all = False
                if self._ready.stop(queue_id, by_key=by_key):
                    break
                continue
            try:
                batches, is_over = self._take_from(queue_id, limit, max_bytes)
            except StoreError:
                if not found:
                    self._ready.served(queue_id, is_over=False)  # the next call begins after this queue, or with it
                    raise
                break
            self._ready.served(queue_id, is_over=is_over)
            found += batches
            most -= sum(map(len, batches))
            max_bytes -= sum(int(batch.lengths.sum()) for batch in batches)
            if self._chunks_left <= 0 or most <= 0 or max_bytes <= 0:
                self.is_cut, is_all = True, False
                break
        self.is_unfinished |= self.is_cut and only is None
        if is_all and not found and not self._is_held_back:
            self._empty_at = newest
        if found and limit_of is None and wanted <= FEW_MESSAGES and only is None:
            self._read_ahead(found[-1].queue_id(0))
        return found

    def _turn(self, only: int | None) -> Iterator[int]:
        """The queues that may have messages to read, as their turn comes; or one of them."""
        if only is None:
            yield from self._ready.turn(self._ready.find(self._lanes.all()), self._skip)
        elif self._parts.streams.get(self._topic, only) is not None:  # else nothing is kept for it
            self._ready.add([only])
            self._skip([only])
            yield only

    def has_left(self, limit_of: Callable[[int], int] | None = None, only: int | None = None) -> bool:
        """Whether another look may find a message; or one of the queue `only`."""
        if only is not None:
            return self._may_have(only, limit_of)
        self._ready.find(self._lanes.all())
        found = any(self._may_have(queue_id, limit_of) for queue_id in self._ready.queues)
        self.is_unfinished &= found
        return found

    def _may_have(self, queue_id: int, limit_of: Callable[[int], int] | None) -> bool:
        at, end = self._next(queue_id)
        is_left = queue_id in self._ahead.chunks or at < end
        return is_left and (limit_of is None or limit_of(queue_id) > 0)

    def _read_ahead(self, newest: int) -> None:
        """Read ahead in all queues, if they are few, so that quick looks find them; the queue `newest` comes last."""
        queues = self._parts.queues(self._topic)
        with suppress(StoreError):  # as in `_read_fresh`
            for queue_id in queues if len(queues) <= FEW_QUEUES else ():
                self._chunk(queue_id, 1, AHEAD_BYTES)
        self._ahead.put_last(newest)

    def _take_from(self, queue_id: int, most: int, max_bytes: int) -> tuple[list[MessageBatch], bool]:
        """The next messages of a queue, and whether there are no more."""
        found: list[MessageBatch] = []
        while most > 0:
            try:
                chunk = self._chunk(queue_id, most, max_bytes)
            except StoreError:
                if not found:
                    raise
                break  # the next chunk goes first
            if chunk is None:
                return found, self._chunks_left > 0 and not self._is_held_back
            is_first = max_bytes == self._max_bytes
            batch = self._ahead.cut(queue_id, chunk, most, max_bytes, is_first=is_first)
            if batch is None:
                break
            found.append(batch)
            most -= len(batch)
            max_bytes -= int(batch.lengths.sum())
        return found, False

    def _chunk(self, queue_id: int, most: int, max_bytes: int) -> ReadChunk | None:
        """The queue's chunk, read if need be; None if the messages that may be read now have no wanted one."""
        chunk = self._ahead.find(queue_id)
        while chunk is None and self._chunks_left > 0:
            batch = self._read(queue_id, most, max_bytes)
            if batch is None:
                break
            self._chunks_left -= 1
            if len(batch):
                chunk = self._ahead.add(queue_id, batch)
        return chunk

    def _skip(self, queues: Sequence[int]) -> None:
        """Pass over delayed messages while they are the next ones of their queues; none of them is read."""
        if self._wanted is not None or not self._delays.is_used:
            return  # with a filter all are read: those it leaves out are acknowledged now
        for _ in range(MOST_CHUNKS):
            ahead = [(queue_id, *self._next(queue_id)) for queue_id in queues if queue_id not in self._ahead.chunks]
            rows = np.array([row for row in ahead if row[1] < row[2]], np.int64).reshape(-1, 3)
            if not len(rows):
                return
            step = min(SKIPPED_MESSAGES, max(1, SKIPPED_TOGETHER // len(rows)))
            begins, ends = rows[:, 1], np.minimum(rows[:, 2], rows[:, 1] + step)
            firsts = self._delays.first_not_pending(rows[:, 0], begins, ends)
            for queue_id, begin, first in zip(rows[:, 0].tolist(), begins.tolist(), firsts.tolist(), strict=True):
                if first > begin:
                    self._move(queue_id, first)
            if not (firsts - begins == step).any():
                return

    def _move(self, queue_id: int, offset: int) -> None:
        self._read_at[queue_id] = offset
        self.reached[queue_id] = max(offset, self.reached.get(queue_id, 0))

    def _next(self, queue_id: int) -> tuple[int, int]:
        """The next offset of a queue to read, and its next offset, with messages that are not durable yet."""
        acked = self._state.cursor.queue(queue_id)
        with self._state.lock:
            at = acked.first_missing(self.position(queue_id))
        return at, self._end(queue_id)

    def _end(self, queue_id: int) -> int:
        stream = self._parts.streams.get(self._topic, queue_id)
        return 0 if stream is None else stream.next_offset

    def _read(self, queue_id: int, most: int, max_bytes: int) -> MessageBatch | None:
        """The wanted ones of a queue's next messages, maybe none of them; None if the queue has no next messages."""
        acked = self._state.cursor.queue(queue_id)
        at, end = self._next(queue_id)
        if end <= at or self._holds_back():
            return None
        if self.held_bytes < HELD_BYTES:
            most, max_bytes = max(most, AHEAD_MESSAGES), max(max_bytes, AHEAD_BYTES)
        batch = None
        while batch is None:
            try:
                batch = self._parts.reads.read_batch(self._topic, queue_id, at, most, max_bytes)
            except OffsetOutOfRange as error:  # and once more, if retention removes segments meanwhile
                if error.first <= at:
                    return None  # acknowledged by position alone, or lost with durability "os"
                self._read_at[queue_id] = at = error.first
                self._delays.recheck_copies = True  # messages before it may live on as copies
                if self._holds_back():
                    return None
        if not len(batch):
            return None
        extras = None if batch.extras is None else ExtraColumns.of(batch.extras)
        left = None if extras is None else self._delays.left(queue_id, batch.offsets, extras.times_ms)
        over = self._expiring.are_over_in(queue_id, batch) if self._expiring.ttl.is_used else None
        with self._state.lock:
            kept = self._kept(queue_id, acked, at, batch, extras, left)
            if over is not None and (kept & over).any():
                self._expiring.leave_out(queue_id, batch.offsets[kept & over])
                kept &= ~over
        self._move(queue_id, int(batch.offsets[-1]) + 1)
        return batch if kept.all() else taken(batch, np.flatnonzero(kept))

    def _holds_back(self) -> bool:
        """Whether new messages have to wait for copies of older ones: where there is an order, and the copies are still
        to be listed.
        """
        if self._state.order is not None and self._delays.has_copies:
            self._is_held_back = True
        return self._is_held_back

    def _kept(
        self, queue_id: int, acked: AckedOffsets, at: int, batch: MessageBatch, extras: ExtraColumns | None,
        left: LaterMessages | None,
    ) -> Bools:  # fmt: skip
        """(n,) which messages go out. The others were acknowledged before, are acknowledged now, or come later."""
        offsets = batch.offsets
        kept = ~acked.are_in(offsets)
        if at < self.reached.get(queue_id, 0):
            kept &= ~np.isin(offsets, self._state.table.offsets_of(queue_id))
        end = int(offsets[-1]) + 1
        if end - at > len(batch):
            for hole in np.flatnonzero(np.diff(offsets, prepend=at - 1) > 1).tolist():
                acked.add_range(int(offsets[hole - 1]) + 1 if hole else at, int(offsets[hole]))
        if self._wanted is not None:
            wanted = self._wanted.mask(extras, len(batch))
            passed = offsets[kept & ~wanted]
            if len(passed):
                self._state.leave_out(queue_id, passed)
                kept &= wanted
        if left is not None:
            self._state.leave_out(queue_id, offsets[kept & left.cancelled])
            kept &= ~(left.waiting | left.cancelled)
        return kept
