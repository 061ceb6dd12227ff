"""The part of a store that removes messages of queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from ..errors import OffsetOutOfRange, StoreUnreadable
from ..format.records import StreamLow
from ..log.lane import Lane
from ..log.streams import Change, Stream, check_name
from ..log.trims import TrimRequest, trim_requests
from ..log.upkeep import Upkeep
from ..read.caches import Caches
from ..read.finder import Finder
from ..read.waiting import ANY_QUEUE, WaitingReaders
from ..topics.id_windows import IdWindows
from ..topics.table import TopicTable
from .checks import check_counts
from .shared import Shared


class TrimChanges:
    """The part that `TrimCalls` passes its calls on to. Each change is a record in the log, see `format.records`."""

    def __init__(
        self, shared: Shared, configured: TopicTable, windows: IdWindows, caches: Caches, upkeep: Upkeep,
        waiting: WaitingReaders,
    ) -> None:  # fmt: skip
        self._windows = windows
        self._configured = configured
        self._shared = shared
        self._streams = shared.streams
        self._caches = caches
        self._upkeep = upkeep
        self._waiting = waiting
        self._finder = Finder()

    def check_writes(self) -> None:
        """Raises StoreReadOnly where the store is only read."""

    def trim(self, topic: str, queue_id: int, before_offset: int) -> int:
        """Remove the messages of a queue below an offset; the queue's first offset then."""
        self._shared.check_open()
        name = check_name(topic, queue_id)
        (low,) = check_counts(before_offset=before_offset)
        stream = self._streams.get(*name)
        first, next_offset = self._bounds(stream) if stream is not None else (0, 0)
        if low > next_offset:
            raise OffsetOutOfRange(*name, low, first, next_offset)
        if stream is None or low <= stream.low:
            return first  # what retention has removed may live on: as a copy, or read ahead by a subscription
        self._write([(stream, StreamLow(low))])
        return self._bounds(stream)[0]

    def trim_streams(self, lows: Sequence[tuple[Stream, int]], before_shown: Callable[[], object]) -> None:
        """Remove the messages of streams below offsets, which they have, together. `before_shown` is called when that
        is durable, and no reader or consumer of this process has seen it yet.
        """
        self._write([(stream, StreamLow(low)) for stream, low in lows if low > stream.low], before_shown)

    def trim_stream(self, stream: Stream, before_offset: int) -> None:
        """Remove the messages of a stream below an offset, which it has."""
        if before_offset > self._bounds(stream)[0]:
            self._write([(stream, StreamLow(before_offset))])

    def delete_topic(self, topic: str) -> bool:
        """Remove all messages, settings and ids of a topic; False if it has no messages and no settings."""
        self._shared.check_open()
        name, _ = check_name(topic, 0)
        of_ids, settled = self._windows.changes_of(name)  # first
        changes = self.changes_of(name)
        self._write([*changes, *of_ids])
        self._windows.forget(name, settled)
        is_gone = self._configured.forget(name) or bool(changes)
        self._windows.resize(name)
        return is_gone

    def changes_of(self, topic: str) -> list[Change]:
        """The changes that delete a topic: one for each of its listed queues."""
        changes: list[Change] = []
        for stream in list(self._streams.topics.get(topic, {}).values()):
            next_offset = self._bounds(stream)[1]
            if next_offset > stream.hidden:
                changes.append((stream, StreamLow(next_offset, next_offset)))
        return changes

    def _bounds(self, stream: Stream) -> tuple[int, int]:
        try:
            return self._finder.bounds(stream)
        except OSError as error:
            raise StoreUnreadable(f"{self._shared.path}: a read was refused: {error}. Nothing was removed.") from error

    def _write(self, changes: list[Change], before_shown: Callable[[], object] | None = None) -> None:
        """Write the records, those of each lane together; return when they are durable."""
        requests = self.requests_of(changes, shows=before_shown is None)
        for request in requests:
            request.stream.lane.queue.put(request)
        for request in requests:
            request.result()
        if before_shown is not None:
            try:
                before_shown()
            finally:
                for request in requests:
                    request.show()
        for stream, low in changes:
            self._caches.forget_trimmed(stream.lane, stream.number, low.low)
        if changes:
            self._waiting.look_at(
                [(stream.topic, queue_id) for stream, _ in changes for queue_id in (stream.queue_id, ANY_QUEUE)]
            )
            self._upkeep.wake()  # whole segments may be free

    def requests_of(self, changes: list[Change], *, shows: bool = True) -> list[TrimRequest]:
        """The records, those of each lane together. `shows`: see `TrimRequest`."""
        by_lane: defaultdict[Lane, list[Change]] = defaultdict(list)
        for change in changes:
            by_lane[change[0].lane].append(change)
        limit = self._shared.frame_bytes
        return [
            request for lane, mine in by_lane.items() for request in trim_requests(lane.lows, mine, limit, shows=shows)
        ]
