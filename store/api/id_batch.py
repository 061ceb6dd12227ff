"""A batch of messages of which some have ids: what the topics have seen is left out, and answered beside the rest."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, cast

import numpy as np

from ..errors import InvalidMessage, TopicFull
from ..format.arrays import Int64s
from ..format.extras import ExtrasWithIds
from ..format.message_ids import ID_BYTES, MAX_ID_BYTES, digest_of
from ..log.frame_ids import queue_ids_of
from ..log.lane import Lane
from ..log.message_ids import MOST_WITH_IDS, RECORD_COST_BYTES, OnTheWay, PendingIds
from ..log.request import Request, RowGroup, call_in_loop, cut
from ..log.streams import Stream
from ..topics.id_window import IdWindow
from ..topics.id_windows import IdWindows
from .appender import Appender
from .batches import LOST_S, BatchPart
from .checks import Payload, check_id
from .shared import Shared


class _Repeat(NamedTuple):
    """A row whose id another append has, or has had: nothing of it is stored."""

    row: int
    digest: bytes
    window: IdWindow
    found: OnTheWay | int


class IdBatch:
    """One call with many messages. It checks all of them when it is made, and then stores them in rounds.

    A round hands over the rows whose ids nobody has, and then waits for the others'. A row whose id was given back, as
    another append found no room in the publish buffer, is in the next round.

    Invariant: it never waits for another append before its own groups are in the queue, so no two wait for each other.
    """

    def __init__(
        self, shared: Shared, appender: Appender, windows: IdWindows, messages: Iterable[tuple[str, int, Payload]],
        message_ids: Iterable[str | None],
    ) -> None:  # fmt: skip
        shared.check_open()
        self._shared = shared
        self._windows = windows
        messages = list(messages) if not isinstance(messages, str | bytes | bytearray | memoryview) else messages
        self._digests = digests_of(message_ids, len(messages))
        self._streams, self._datas, self._sizes = self._accept(appender, messages)
        self._all_have_ids = all(self._digests)  # no digest is empty
        self._topics = self._topics_with_ids()
        self._is_uniform = len(self._topics) == 1 and self._all_have_ids  # as most batches are
        self._same = self._found_twice()
        self.offsets: Int64s = np.empty(len(self._streams), np.int64)
        self._groups: list[tuple[Sequence[int], RowGroup]] = []
        self._repeats: list[_Repeat] = []
        self._made: list[PendingIds] = []  # all that may be on their way

    def _accept(
        self, appender: Appender, messages: Iterable[tuple[str, int, Payload]]
    ) -> tuple[list[Stream], list[bytes], list[int]]:  # fmt: skip
        """Check the messages: (streams, datas, sizes). A full topic takes repeats, as nothing of them is stored."""
        try:
            return appender.accept_batch(messages)
        except TopicFull:
            checked = appender.check_batch(messages)
        names = [(topic, queue_id) for topic, queue_id, _ in checked]
        datas = [data for _, _, data in checked]
        now_ms = self._shared.clock.wall_ms()
        stored = []
        for name, digest in zip(names, self._digests, strict=True):
            if digest is not None:
                window = self._windows.of(name[0])
                window.expire(now_ms)
            if digest is None or window.find(digest) is None:
                stored.append(name)
        appender.find_or_make(stored)
        return appender.make(names), datas, list(map(len, datas))

    def _topics_with_ids(self) -> set[str]:
        if self._all_have_ids:
            return {stream.topic for stream in {*self._streams}}
        pairs = zip(self._streams, self._digests, strict=True)
        return {stream.topic for stream, digest in pairs if digest is not None}

    def _found_twice(self) -> dict[int, int]:
        """The rows with the topic and the id of an earlier row, and that row."""
        if self._is_uniform and len({*self._digests}) == len(self._digests):
            return {}
        first_of: dict[tuple[str, bytes], int] = {}
        found = {}
        for row, (stream, digest) in enumerate(zip(self._streams, self._digests, strict=True)):
            if digest is not None:
                first = first_of.setdefault((stream.topic, digest), row)
                if first != row:
                    found[row] = first
        return found

    def _rows(self) -> Sequence[int]:
        """The rows of the first round."""
        rows = range(len(self._streams))
        return [row for row in rows if row not in self._same] if self._same else rows

    def append(self) -> Int64s:
        """Store the rows; the offsets when all are durable. Raises as `append_batch` does."""
        rows = self._rows()
        while rows:
            self._hand_over(rows)
            for _, group in self._groups:
                group.result()
            for repeat in self._repeats:
                self._wait_for(repeat)
            rows = self._take_in()
        return self.offsets

    def append_async(self) -> asyncio.Future[Int64s]:
        """Hand the first round over; a task of the running loop does the rest."""
        loop = asyncio.get_running_loop()
        handed = self._hand_over_async(self._rows())
        task = loop.create_task(self._finish_async(handed))
        if handed is not None:
            task.add_done_callback(partial(_cancel_too, handed))
        return task

    async def _finish_async(self, handed: asyncio.Future[Int64s] | None) -> Int64s:
        while True:
            if handed is not None:
                await handed
            for repeat in self._repeats:
                await self._await(repeat)
            rows = self._take_in()
            if not rows:
                return self.offsets
            handed = self._hand_over_async(rows)

    # -- what is stored -----------------------------------------------------------------------------------

    def _plan(self, rows: Sequence[int]) -> None:
        """Sort rows into groups to be handed over, whose ids are on their way now, and repeats."""
        self._groups, self._repeats, self._made = [], [], []
        now_ms = self._shared.clock.wall_ms()
        for topic in self._topics:
            window = self._windows.of(topic)
            window.expire(now_ms)
        for mine in self._by_lane(rows):
            self._plan_lane(mine)

    def _by_lane(self, rows: Sequence[int]) -> list[Sequence[int]]:
        if len(self._shared.lanes) == 1:
            return [rows]
        by_lane: dict[Lane, list[int]] = {}
        for row in rows:
            by_lane.setdefault(self._streams[row].lane, []).append(row)
        return list(by_lane.values())

    def _plan_lane(self, rows: Sequence[int]) -> None:
        columns = self._columns_of(rows)
        limit = self._shared.frame_bytes
        room = (ID_BYTES + RECORD_COST_BYTES) * min(len(rows), MOST_WITH_IDS)
        first = 0
        for group in cut(*columns, max(limit - room, limit // 2), MOST_WITH_IDS):
            self._plan_group(rows[first : first + group.count], group)
            first += group.count

    def _columns_of(self, rows: Sequence[int]) -> tuple[list[Stream], list[bytes], list[int]]:
        if len(rows) == len(self._streams):
            return self._streams, self._datas, self._sizes
        streams, datas, sizes = self._streams, self._datas, self._sizes
        return [streams[row] for row in rows], [datas[row] for row in rows], [sizes[row] for row in rows]

    def _plan_group(self, rows: Sequence[int], group: RowGroup) -> None:
        by_topic: dict[str, Sequence[int]] = {}
        if self._is_uniform:
            by_topic[group.stream.topic] = range(len(rows))
        else:
            found = defaultdict[str, list[int]](list)
            for at, row in enumerate(rows):
                if self._digests[row] is not None:
                    found[self._streams[row].topic].append(at)
            by_topic.update(found)
        left_out: set[int] = set()
        ids = [self._admit(topic, rows, places, left_out) for topic, places in by_topic.items()]
        if left_out:
            kept = [at for at in range(len(rows)) if at not in left_out]
            rows = [rows[at] for at in kept]
            moved = dict(zip(kept, range(len(kept)), strict=True))
            for one in ids:
                one.rows = [moved[at] for at in one.rows]
            streams, datas, sizes = self._columns_of(rows)
            group = RowGroup(streams, datas, sizes, sum(sizes)) if rows else group
        ids = [one for one in ids if one.digests]
        if rows:
            group.extras = ExtrasWithIds.of(None, ids) if ids else None
            self._groups.append((rows, group))

    def _admit(self, topic: str, rows: Sequence[int], places: Sequence[int], left_out: set[int]) -> PendingIds:
        """Let the ids of one topic in, at these places of a group. Those that are known become repeats."""
        window = self._windows.of(topic)
        target = self._windows.target(topic, window, self._streams[rows[places[0]]].lane)
        if isinstance(rows, range) and isinstance(places, range):  # all of them
            digests, streams = self._digests, self._streams
            if len(rows) < len(digests):
                digests, streams = digests[rows.start : rows.stop], streams[rows.start : rows.stop]
        else:
            digests = [self._digests[rows[at]] for at in places]
            streams = [self._streams[rows[at]] for at in places]
        ids = PendingIds(target, cast("list[bytes]", digests), queue_ids_of(streams), places)
        self._made.append(ids)
        if window.admit_all(ids):
            return ids
        admitted: list[bytes] = []
        admitted_queues, admitted_places = list[int](), list[int]()
        ids = PendingIds(target, admitted, admitted_queues, admitted_places)
        self._made.append(ids)
        for digest, stream, at in zip(cast("list[bytes]", digests), streams, places, strict=True):
            admitted.append(digest)  # first: an interrupt finds all that is admitted
            admitted_queues.append(stream.queue_id)
            admitted_places.append(at)
            found = window.admit(digest, ids)
            if found is not None:
                for column in (admitted, admitted_queues, admitted_places):
                    column.pop()
                left_out.add(at)
                self._repeats.append(_Repeat(rows[at], digest, window, found))
        return ids

    def _hand_over(self, rows: Sequence[int]) -> None:
        """Plan a round and put its groups into their queues."""
        try:
            self._plan(rows)
            for _, group in self._groups:
                group.stream.lane.queue.put(group)
            self._trim_old()
        except BaseException as error:
            try:
                self._take_back(error)
            finally:
                self._take_back(error)
            raise

    def _hand_over_async(self, rows: Sequence[int]) -> asyncio.Future[Int64s] | None:
        try:
            self._plan(rows)
            groups = [group for _, group in self._groups]
            handed = self._shared.batches.put([BatchPart(None, groups)]) if groups else None
            self._trim_old()
        except BaseException as error:
            try:
                self._take_back(error)
            finally:
                self._take_back(error)
            raise
        return handed

    def _trim_old(self) -> None:
        """Trim records that nothing needs: after the groups were put, so that they share a frame with these."""
        for topic in self._topics:
            window = self._windows.loaded.get(topic)
            if window is not None and window.has_old_records:
                self._windows.trim_old(window)

    def _take_back(self, error: BaseException) -> None:
        for ids in self._made:
            ids.take_back(error if len(self._groups) <= 1 else None)  # else an earlier group may have been put

    # -- what is answered ---------------------------------------------------------------------------------

    def _wait_for(self, repeat: _Repeat) -> None:
        """Wait until the other append has its outcome; raises its error."""
        if not isinstance(repeat.found, int):
            promise = repeat.window.promise_of(repeat.found)
            if promise is not None:
                promise.result()

    async def _await(self, repeat: _Repeat) -> None:
        promise = repeat.window.promise_of(repeat.found) if not isinstance(repeat.found, int) else None
        if promise is not None:
            await answer_of(promise)
            promise.result()

    def _take_in(self) -> list[int]:
        """Note the offsets of a round whose appends are over. Returns the rows that need another one."""
        again = []
        for rows, group in self._groups:
            self.offsets[slice(rows.start, rows.stop) if isinstance(rows, range) else rows] = group.offsets
        for repeat in self._repeats:
            offset = repeat.found if isinstance(repeat.found, int) else repeat.found.offset_of(repeat.digest)
            if offset is None:
                again.append(repeat.row)
            else:
                self.offsets[repeat.row] = offset
        if not again and self._same:
            self.offsets[list(self._same)] = self.offsets[list(self._same.values())]
        return again


def _cancel_too(handed: asyncio.Future[Int64s], task: asyncio.Task[Int64s]) -> None:
    if task.cancelled():  # perhaps before its first step: then it waits for nothing yet
        handed.cancel()


async def answer_of(promise: Request) -> None:
    """Wait until a promise has its answer. A loop may lose the call that says so: see `AsyncBatches`."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()
    promise.then(partial(call_in_loop, loop, partial(_tell, told)))
    while not promise.done():
        await asyncio.wait([told], timeout=LOST_S)


def _tell(told: asyncio.Future[None]) -> None:
    if not told.done():  # else its task was cancelled
        told.set_result(None)


def digests_of(message_ids: object, count: int) -> list[bytes | None]:
    """The digests of a column of ids, None for none. Raises InvalidMessage."""
    if isinstance(message_ids, str | bytes) or not isinstance(message_ids, Iterable):
        raise InvalidMessage(f"message_ids is a sequence of str and None, not {type(message_ids).__name__}")
    given = list(message_ids)
    if len(given) != count:
        raise InvalidMessage(f"message_ids has one for each of the {count} messages, not {len(given)}")
    try:
        texts = list(map(str.encode, given))  # a subclass of str as well: its text is what counts
    except (TypeError, UnicodeEncodeError):
        texts = []
    sizes = {*map(len, texts)}
    if sizes and 0 not in sizes and max(sizes) <= MAX_ID_BYTES:
        return list(map(digest_of, texts))
    return [None if one is None else _digest_in(row, one) for row, one in enumerate(given)]


def _digest_in(row: int, message_id: object) -> bytes:
    try:
        return digest_of(check_id(message_id))
    except InvalidMessage as error:
        raise error.in_row(row) from None
