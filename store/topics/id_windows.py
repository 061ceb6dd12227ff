"""The message ids of all topics of a store: read from the log, forgotten, and kept when retention comes to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import compress
from weakref import WeakValueDictionary

import numpy as np

from ..device.clock import Clock
from ..errors import StoreCorrupt, StoreError, StoreUnreadable, StoreUnusable
from ..format.arrays import Int64s
from ..format.hidden import HIDDEN_MARK, IDS_KIND, hidden_parts, hidden_topic
from ..format.layout import MAX_FRAME_MESSAGES
from ..format.message_ids import KEPT, STAMP_BITS, SeenIds, pack_kept
from ..format.records import StreamLow
from ..log.hidden_streams import HiddenNames, HiddenStreams
from ..log.lane import Lane
from ..log.message_ids import MOST_WITH_IDS, IdTarget
from ..log.queue import RequestQueue
from ..log.request import Barrier, Request
from ..log.streams import Change, Stream, lane_of
from ..log.trims import trim_requests
from ..read.reader import Reader
from ..segment.sealed import SealedSegment
from .id_window import IdWindow
from .settings import MOST_IDS, MOST_MS, TopicSettings
from .table import TopicTable

READ_RECORDS = 4096
READ_BYTES = 4 << 20
IDS_TOPICS = f"{HIDDEN_MARK}{IDS_KIND}{HIDDEN_MARK}"  # so the topics of their streams begin
RECORD_BYTES = 64 << 10  # of ids that are kept, at the most
LOOK_S = 1.0
FEW_RECORDS = 1024  # so many old ones are left where they are


class IdWindows:
    """The tables of ids, a topic each. Any number of threads may use it.

    A table is read at the first append with an id since the opening; what lies in the log: see `format.message_ids`.

    Invariant: there is one table a topic. What is on its way is in no other place. So a table that was dropped is used
    again as long as some thread or request has it.

    Attributes:
        loaded: the tables that were read, by topic, but those that were dropped since.
    """

    def __init__(
        self, hidden: HiddenStreams, configured: TopicTable, reader: Callable[[], Reader], clock: Clock,
        queues: Callable[[], Sequence[RequestQueue[Request]]], check_open: Callable[[], None],
    ) -> None:  # fmt: skip
        """`reader` gives the store's reader, which is another one once the store has its caches."""
        self._hidden = hidden
        self._configured = configured
        self._reader = reader
        self._clock = clock
        self._queues = queues
        self._check_open = check_open
        self._names = HiddenNames(hidden, IDS_KIND, may_write=True)
        self.loaded: dict[str, IdWindow] = {}
        self._dropped: WeakValueDictionary[str, IdWindow] = WeakValueDictionary()  # an append may have one still
        self._look_at_s = 0.0
        self._topics: set[str] = set()  # whose table was ever read
        self._lock = threading.RLock()  # a finalizer may append while its thread reads a table

    def of(self, topic: str) -> IdWindow:
        """The table of a topic, whose name was checked. Raises StoreCorrupt, StoreUnreadable, StoreUnusable."""
        window = self.loaded.get(topic)
        if window is None:
            with self._lock:
                window = self._there(topic)
                if window is None:
                    window = self._load(topic)
                    self._topics.add(topic)  # a frame has a record of ids for each at the most, and for each message
                    for queue in self._queues():
                        queue.has_ids = True
                        queue.frame_messages = max(MOST_WITH_IDS, MAX_FRAME_MESSAGES - len(self._topics))
                    self.loaded[topic] = window
        return window

    def _there(self, topic: str) -> IdWindow | None:
        """The table of a topic, also one that was dropped and that an append has still. `_lock` is held."""
        return self.loaded.get(topic) or self._dropped.get(topic)

    def look(self) -> None:
        """Have idle topics forget what is too old, and drop tables without ids: at most once a second, by the upkeep.

        One comparison a table, as long as nothing is too old. A dropped table is read again when it is asked for.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_S
        now_ms = self._clock.wall_ms()
        for topic, window in dict(self.loaded).items():
            window.expire(now_ms)
            if window.has_old_records:
                self.trim_old(window)
            if window.is_empty:
                with self._lock:
                    if window.is_empty:
                        self._dropped[topic] = window  # first: an append that has it may be about to use it
                        self.loaded.pop(topic, None)

    def target(self, topic: str, window: IdWindow, lane: Lane) -> IdTarget:
        """Where the ids of a topic go whose messages are in a lane; the stream is made at first use."""
        found = window.targets.get(lane)
        if found is None:
            self._names.add((topic, str(lane.index)))
            mine = IdTarget(window, self._hidden.find_or_make(_name(topic, lane), lane))
            found = window.targets.setdefault(lane, mine)
        return found

    def lane_of(self, topic: str, queue_id: int) -> Lane:
        """The lane of a queue, used or not."""
        return self._hidden.lanes[lane_of(topic, queue_id, len(self._hidden.lanes))]

    def forget_before(self, topic: str, settings: TopicSettings) -> None:
        """The topic is about to get these settings: if its window gets larger, what has left it leaves the log.

        Else an id would be forgotten or known again by whether its table is in memory. It writes the ids that count
        again, as retention does; in a record some may count and others not. Raises as `of` and an append do.
        """
        streams = self._known_streams(topic)
        old = self._configured.settings(topic) if streams else settings
        if settings.id_window_ms <= old.id_window_ms and settings.id_window_count <= old.id_window_count:
            return
        window = self.of(topic)
        for stream in streams:
            end = self._bounds(stream)[1]
            barrier = Barrier()  # a record can be read shortly before the table has its ids as durable
            stream.lane.queue.put(barrier)
            barrier.result()
            self._keep(window, stream, stream.low, end, pass_damage=False)
            if end > stream.low:
                self._hidden.trim(stream, end)

    def resize(self, topic: str) -> None:
        """The topic has other settings. Raises as `TopicTable.settings` does.

        They are read here: of two threads that change them at once, the last one here finds the newest.
        """
        with self._lock:
            window = self._there(topic)
            if window is not None:
                settings = self._configured.settings(topic)
                window.resize(settings.id_window_ms, settings.id_window_count)

    # -- what the log has -------------------------------------------------------------------------------

    def _load(self, topic: str, *, pass_damage: bool = False) -> IdWindow:
        self._check_open()
        try:
            settings = self._configured.settings(topic)
        except (StoreCorrupt, StoreUnusable):
            if not pass_damage:
                raise
            settings = TopicSettings(id_window_ms=MOST_MS, id_window_count=MOST_IDS)  # it may be as large as that
        window = IdWindow(settings.id_window_ms, settings.id_window_count)
        now_ms = self._clock.wall_ms()
        found: list[SeenIds] = []
        firsts: list[tuple[Stream, int, int]] = []
        for stream in self._known_streams(topic):
            limits = now_ms - settings.id_window_ms, settings.id_window_count
            records, first, end = self._newest(stream, *limits, pass_damage=pass_damage)
            found += records
            firsts.append((stream, first, end))
        if found:
            _fill(window, found, now_ms - settings.id_window_ms)
        for stream, first, end in firsts:
            if first - stream.low >= FEW_RECORDS:
                self._trim_soon(stream, first)
            window.mark(stream, end)
        return window

    def _known_streams(self, topic: str) -> list[Stream]:
        found = [self._hidden.find(_name(topic, lane)) for lane in self._hidden.lanes]
        return [stream for stream in found if stream is not None]

    def _newest(
        self, stream: Stream, after_ms: int, most: int, *, pass_damage: bool
    ) -> tuple[list[SeenIds], int, int]:  # fmt: skip
        """The records of a stream that may count, in log order; where they begin, and the stream's end."""
        found: list[SeenIds] = []
        first, end = self._bounds(stream, is_whole=not pass_damage)
        count, begin = 0, end
        while begin > first and count < most:
            begin, stop = max(first, begin - READ_RECORDS), begin
            chunk = list(self._records(stream, begin, stop, pass_damage=pass_damage))
            found = chunk + found
            seen = [one for one in chunk if one.kind != KEPT]
            count += sum(len(one.digests) for one in seen)
            if seen and max(int(one.times_ms.max()) for one in seen if len(one.digests)) <= after_ms:
                break
        return found, begin, end

    def _bounds(self, stream: Stream, *, is_whole: bool = False) -> tuple[int, int]:
        finder = self._reader().finder
        try:
            return finder.whole_bounds(stream) if is_whole else finder.bounds(stream)
        except OSError as error:
            raise _unreadable(error) from error

    def _records(self, stream: Stream, at: int, stop: int, *, pass_damage: bool) -> Iterator[SeenIds]:
        """The records in a range of offsets. Those that a repair gave up are passed over. Raises StoreCorrupt."""
        most = stop - at
        while at < stop:
            try:
                batch = self._reader().read_batch(stream, at, min(most, stop - at), READ_BYTES)
            except OSError as error:
                raise _unreadable(error) from error
            except StoreCorrupt:
                if not pass_damage:
                    raise
                at += most == 1
                most = 1  # one by one from here on: so all others are found
                continue
            if not len(batch) or int(batch.offsets[0]) >= stop:
                return
            for offset, data in zip(batch.offsets.tolist(), batch.payloads(), strict=True):
                if offset < stop:
                    ids = SeenIds.unpack(data)
                    if ids is not None:  # else a later version has written it
                        yield ids
            at = int(batch.offsets[-1]) + 1

    # -- what goes --------------------------------------------------------------------------------------

    def trim_old(self, window: IdWindow) -> None:
        """Have records that have left the window trimmed. It does not wait; what fails is tried with the next ones."""
        for stream, offset in window.old_records():
            self._trim_soon(stream, offset)

    def _trim_soon(self, stream: Stream, offset: int) -> None:
        lane = stream.lane
        with suppress(StoreError):
            for request in trim_requests(lane.lows, [(stream, StreamLow(offset))], READ_BYTES):
                lane.queue.put(request, wait=False)

    def changes_of(self, topic: str) -> tuple[list[Change], int | None]:
        """The trims that forget all ids of a topic that are durable, and what `forget` takes.

        An id that is here is in a frame with its message: what the caller finds of the topic's messages after this has
        that one, too. Those on their way stay.
        """
        with self._lock:
            window = self._there(topic)
        settled = None if window is None else window.settled
        ends = [(stream, self._bounds(stream)[1]) for stream in self._known_streams(topic)]
        return [(stream, StreamLow(end)) for stream, end in ends if end > stream.low], settled

    def forget(self, topic: str, settled: int | None) -> None:
        """The trims are durable."""
        with self._lock:
            window = self._there(topic)
            if window is not None:
                window.forget(window.settled if settled is None else settled)

    def may_go(self, lane: Lane, oldest: SealedSegment) -> bool:
        """Whether retention may remove a segment. The ids in it that still count are written again first.

        Those of a damaged record go with it: retention does not stop at damage. Where settings cannot be read, all ids
        still count.
        """
        for stream in self._streams_in(lane, oldest):
            begin, count = oldest.first_of(stream.number)
            end = begin + count
            if count and end > stream.low:
                parts = hidden_parts(stream.topic)
                assert parts is not None
                try:
                    window = self.of(parts.names[0])
                except (StoreCorrupt, StoreUnusable):  # for retention alone: an append still hears of it
                    window = self._load(parts.names[0], pass_damage=True)
                self._keep(window, stream, max(begin, stream.low), end, pass_damage=True)
                self._hidden.trim(stream, end)
                if end > stream.low:
                    return False
        return True

    def _streams_in(self, lane: Lane, sealed: SealedSegment) -> list[Stream]:
        """The streams of ids that have a record in a segment; all of the lane's, if the segment is damaged."""
        try:
            footer = sealed.footer
        except StoreCorrupt:
            named = [self._hidden.find(hidden_topic(IDS_KIND, *names)) for names in self._names]
            return [one for one in named if one is not None and one.lane is lane and one.number >= 0]
        there = [lane.streams[number] for number in footer.numbers[footer.counts > 0].tolist()]
        return [one for one in there if one.topic.startswith(IDS_TOPICS)]

    def _keep(self, window: IdWindow, stream: Stream, begin: int, end: int, *, pass_damage: bool) -> None:
        """Write the ids of some records again that are still in the window."""
        window.expire(self._clock.wall_ms())
        digests: list[bytes] = []
        queue_ids: list[int] = []
        offsets: list[int] = []
        stamps: list[int] = []
        for ids in self._records(stream, begin, end, pass_damage=pass_damage):
            known = window.has_each(ids.digests, ids.queue_ids, ids.offsets)
            digests.extend(compress(ids.digests, known))
            for kept, column in zip((queue_ids, offsets, stamps), ids[2:], strict=True):
                kept.extend(compress(column.tolist(), known))
        if digests:
            self._hidden.append(stream, pack_kept(digests, queue_ids, offsets, np.array(stamps), RECORD_BYTES))

    def after_fork(self, error: StoreError) -> None:
        """In a forked child: lost threads may hold the locks, and nobody else answers what is on its way."""
        self._lock = threading.RLock()
        for window in {*self.loaded.values(), *self._dropped.values()}:
            window.after_fork(error)


def _name(topic: str, lane: Lane) -> str:
    return hidden_topic(IDS_KIND, topic, str(lane.index))


def _fill(window: IdWindow, found: Sequence[SeenIds], after_ms: int) -> None:
    """Put records into an empty table: those of each stream in log order, KEPT ones wherever they lie."""
    stamps = np.concatenate([one.stamps for one in found])
    times: Int64s = stamps >> STAMP_BITS
    order: Int64s = stamps.argsort(kind="stable")
    order = order[times[order] > after_ms]
    digests = [digest for one in found for digest in one.digests]
    newest = {digests[at]: rank for rank, at in enumerate(order.tolist())}  # of an id that is there twice, the newest
    kept = order[sorted(newest.values())]
    queue_ids = np.concatenate([one.queue_ids for one in found])[kept]
    offsets = np.concatenate([one.offsets for one in found])[kept]
    packed = b"".join([digests[at] for at in kept.tolist()])
    window.load(packed, queue_ids, offsets, times[kept].tolist(), int(stamps.max()))


def _unreadable(error: OSError) -> StoreUnreadable:
    return StoreUnreadable(f"the message ids of a topic could not be read: {error}. Nothing is stored; try again.")
