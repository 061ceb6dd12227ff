"""The calls that remove messages of queues."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from ..config import StoreConfig
from ..device.clock import Clock
from ..errors import OffsetOutOfRange, StoreUnreadable
from ..format.records import Low
from ..log.lane import Lane
from ..log.streams import Stream, check_name
from ..log.trims import Change, TrimRequest, trim_requests
from ..log.upkeep import Upkeep
from ..read.caches import Caches
from ..read.finder import Finder
from .base import OpenStore
from .checks import check_counts


class Trimming(OpenStore):
    """The calls that remove messages for good. What is to stay away is a record in the log, see `format.records`."""

    _caches: Caches
    _upkeep: Upkeep

    def __init__(self, path: Path, config: StoreConfig, clock: Clock) -> None:
        super().__init__(path, config, clock)
        self._finder = Finder()

    def trim(self, topic: str, queue_id: int, before_offset: int) -> int:
        """Remove the messages of a queue that lie before an offset; return the queue's first offset then.

        It returns when this is as durable as an append is. A read that begins later gives none of these messages;
        one that is under way may. Offsets go on where they were. At or below the queue's first offset there is nothing
        to do; for a queue that was never used the result is 0.

        The caches use the messages' memory again. Their space on the disk is freed with the segment that they are in:
        once all of it is trimmed, and all segments before it. The newest sealed segment of a lane stays.

        Args:
            before_offset: the first offset that stays; at most the queue's next offset, which removes all messages.

        Raises:
            OffsetOutOfRange: `before_offset` is after the queue's next offset. Nothing was removed.
            InvalidTopic, InvalidMessage: the topic, the queue id or the offset is not valid.
            PublishBufferFull, StoreFull, StoreClosed, StoreUnreadable: nothing was removed.
            StorePoisoned: a write or force failed; the messages may or may not be there at the next opening.
        """
        self._check_open()
        name = check_name(topic, queue_id)
        (low,) = check_counts(before_offset=before_offset)
        stream = self._streams.get(*name)
        first, next_offset = self._bounds(stream) if stream is not None else (0, 0)
        if low > next_offset:
            raise OffsetOutOfRange(*name, low, first, next_offset)
        if stream is None or low <= first:
            return first
        self._write([(stream, Low(low))])
        return self._bounds(stream)[0]

    def delete_topic(self, topic: str) -> bool:
        """Remove all messages of a topic; return False if there is no such topic, and so nothing to do.

        Each queue of the topic is trimmed to its next offset, see `trim`. `topics()` and `queues()` leave the topic out
        until one of its queues has a new message, whose offset is the next one: an offset is given once. Messages that
        become durable during the call may stay. If the process dies during the call, the messages of some queues may be
        gone, and those of others not. An append without a queue id still chooses among the queues that the topic had.

        Raises:
            InvalidTopic: the topic is not valid.
            PublishBufferFull, StoreFull, StorePoisoned, StoreClosed: some queues may be removed; call it again.
            StoreUnreadable: the system refused a read. Nothing was removed.
        """
        self._check_open()
        name, _ = check_name(topic, 0)
        changes = self._changes_of(name)
        self._write(changes)
        return bool(changes)

    def _changes_of(self, topic: str) -> list[Change]:
        """What deleting a topic changes: its queues that are listed."""
        changes: list[Change] = []
        for stream in list(self._streams.topics.get(topic, {}).values()):
            next_offset = self._bounds(stream)[1]
            if next_offset > stream.hidden:
                changes.append((stream, Low(next_offset, next_offset)))
        return changes

    def _bounds(self, stream: Stream) -> tuple[int, int]:
        try:
            return self._finder.bounds(stream)
        except OSError as error:
            raise StoreUnreadable(f"{self.path}: a read was refused: {error}. Nothing was removed.") from error

    def _write(self, changes: list[Change]) -> None:
        """Write the records, those of each lane together; return when they are durable."""
        requests = self._requests(changes)
        for request in requests:
            request.stream.queue.put(request)
        for request in requests:
            request.result()
        for stream, low in changes:
            self._caches.forget_trimmed(stream.lane, stream.number, low.low)
        if changes:
            self._upkeep.look()  # whole segments may be free

    def _requests(self, changes: list[Change]) -> list[TrimRequest]:
        """The records, those of each lane together."""
        by_lane: defaultdict[Lane, list[Change]] = defaultdict(list)
        for change in changes:
            by_lane[change[0].lane].append(change)
        limit = self.config.max_frame_bytes
        return [request for lane, mine in by_lane.items() for request in trim_requests(lane.trims, mine, limit)]
