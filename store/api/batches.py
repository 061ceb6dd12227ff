"""A batch on its way: cut into groups of a frame's size, those of each lane by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..device.sleepers import Cancels, Sleepers
from ..format.arrays import Int64s
from ..log.lane import Lane
from ..log.request import Group, call_in_loop, cut
from ..log.streams import Stream

LOST_S = 0.5  # how often a loop looks whether it has lost the answer of a batch


class BatchPart(NamedTuple):
    """The part of a batch for one lane: the numbers of its rows (None: all rows), and the rows in groups."""

    rows: list[int] | npt.NDArray[np.intp] | None
    groups: Sequence[Group]


def cut_by_lane(
    lanes: Sequence[Lane], streams: list[Stream], datas: list[bytes], sizes: list[int], limit_bytes: int
) -> list[BatchPart]:
    """The messages of a batch, in groups; of one lane each."""
    if len(lanes) == 1:
        return [BatchPart(None, cut(streams, datas, sizes, limit_bytes))]
    parts = []
    for lane in lanes:
        rows = [index for index, stream in enumerate(streams) if stream.lane is lane]
        if rows:
            columns = [streams[i] for i in rows], [datas[i] for i in rows], [sizes[i] for i in rows]
            parts.append(BatchPart(rows, cut(*columns, limit_bytes)))
    return parts


def offsets_of(parts: list[BatchPart]) -> Int64s:
    """The offsets of a batch's rows, once all of its groups are answered; raises the first error."""
    for part in parts:
        for group in part.groups:
            group.result()
    columns = [_joined(part.groups) for part in parts]
    if not parts:
        return np.empty(0, np.int64)
    if parts[0].rows is None:
        return columns[0]
    offsets = np.empty(sum(map(len, columns)), np.int64)
    for part, column in zip(parts, columns, strict=True):
        offsets[part.rows] = column
    return offsets


def _joined(groups: Sequence[Group]) -> Int64s:
    return groups[0].offsets if len(groups) == 1 else np.concatenate([group.offsets for group in groups])


class AsyncBatch:
    """A batch whose coroutine awaits `future`. All but `put` runs in its loop.

    Invariant: the future is done once every group has its answer, and not before; so nothing of a batch that failed is
    still on its way.

    Attributes:
        listed: the batches of its loop that have no answer yet, if it is one of them: it leaves them with its answer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: list[BatchPart]) -> None:
        self.future: asyncio.Future[Int64s] = loop.create_future()
        self.listed: dict[AsyncBatch, None] = {}
        self._loop = loop
        self._parts = parts
        self._lined: list[Group] = []  # at the cap, as far as is known
        self._timer: Cancels | None = None
        self._left = sum(len(part.groups) for part in parts)

    def put(self, call_later: Callable[[Callable[[], object]], Cancels]) -> None:
        """Hand the groups over. Raises StorePoisoned or StoreClosed; some may then be on their way.

        `call_later` calls something when the time in line is over.
        """
        for part in self._parts:
            for group in part.groups:
                if not group.queue.put(group, wait=False):
                    self._lined.append(group)
                group.then(self._tell)
        if self._lined:
            self._timer = call_later(partial(self._look_at_line, call_later))
            self.future.add_done_callback(lambda future: self._leave_line())
        if not self._left:
            self.future.set_result(np.empty(0, np.int64))

    def _tell(self) -> None:
        call_in_loop(self._loop, self._one_answered)

    def _one_answered(self) -> None:
        self._left -= 1
        if not self._left:
            self._resolve()

    def _resolve(self) -> None:
        """Every group has its answer. Again is fine."""
        if not self.future.done():  # else its task was cancelled
            groups = [group for part in self._parts for group in part.groups]
            failed = next((error for group in groups if (error := group.exception())), None)
            if failed is not None:
                self.future.set_exception(failed)
            else:
                self.future.set_result(offsets_of(self._parts))
        self.listed.pop(self, None)

    def look(self) -> None:
        """Set the future if every group has its answer, whether or not the loop has made the calls that say so."""
        if all([group.done() for part in self._parts for group in part.groups]):
            self._resolve()

    def _look_at_line(self, call_later: Callable[[Callable[[], object]], Cancels]) -> None:
        """Wait again if some groups came in since the last look: a large batch may take longer than the time-out."""
        waiting = [group for group in self._lined if group.queue.is_in_line(group)]
        if len(waiting) < len(self._lined):
            self._lined = waiting
            self._timer = call_later(partial(self._look_at_line, call_later))
        else:
            self._give_up()

    def _give_up(self) -> None:
        """Fail the groups that have waited too long for space in the publish buffer."""
        for group in reversed(self._lined):  # the last one first, or each would let in the ones after it
            error = group.queue.withdraw(group)
            if error is not None:
                group.answer(error)

    def _leave_line(self) -> None:
        """Called when the batch has its outcome: a cancelled one leaves the line for space."""
        if self._timer is not None:
            self._timer.cancel()
        if self.future.cancelled():
            for group in reversed(self._lined):
                error = group.queue.withdraw(group)
                if error is not None:
                    group.answer(error)


class AsyncBatches:
    """The batches of the coroutines of one store.

    asyncio takes a call off its list before it makes it, and one that an interrupt ends is not made again. If it was to
    set the future of a batch, the coroutine would wait for ever. So each loop looks at its batches every `LOST_S`, by
    one timer a loop, as long as there are any.
    """

    def __init__(self, sleepers: Sleepers, timeout_ms: int) -> None:
        """`timeout_ms`: how long groups may wait in line."""
        self._call_later = sleepers.call_later
        self._timeout_ms = timeout_ms
        self._watches: dict[asyncio.AbstractEventLoop, _Watch] = {}

    def put(self, parts: list[BatchPart]) -> asyncio.Future[Int64s]:
        """Hand groups over for a coroutine; return a Future of their offsets. Raises as `AsyncBatch.put` does."""
        loop = asyncio.get_running_loop()
        batch = AsyncBatch(loop, parts)
        batch.put(partial(self._call_later, loop, self._timeout_ms))
        watch = self._watches.get(loop)
        if watch is None or watch.late_s < loop.time():
            watch = self._begin(loop)
        batch.listed = watch.batches
        if not batch.future.done():
            batch.listed[batch] = None
        return batch.future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> _Watch:
        """Have a loop look from now on: it does not yet, or has lost the look itself."""
        watch = self._watches.get(loop)
        if watch is None:
            for known in [known for known in list(self._watches) if known.is_closed()]:
                self._watches.pop(known, None)
            watch = _Watch()
        self._look_later(loop, watch)
        self._watches[loop] = watch
        return watch

    def _look_later(self, loop: asyncio.AbstractEventLoop, watch: _Watch) -> None:
        if watch.timer is not None:
            watch.timer.cancel()  # one that is late may still come
        watch.timer = loop.call_later(LOST_S, self._look, loop, watch)
        watch.late_s = loop.time() + 2 * LOST_S

    def _look(self, loop: asyncio.AbstractEventLoop, watch: _Watch) -> None:
        if not watch.batches:
            self._watches.pop(loop, None)
            return
        self._look_later(loop, watch)  # first: an interrupt of this look does not end the later ones
        for batch in list(watch.batches):
            batch.look()


class _Watch:
    """The batches of one loop that have no answer yet, and its next look at them: after `late_s` it is lost."""

    __slots__ = ("batches", "late_s", "timer")

    def __init__(self) -> None:
        self.batches: dict[AsyncBatch, None] = {}
        self.late_s = 0.0
        self.timer: asyncio.TimerHandle | None = None
