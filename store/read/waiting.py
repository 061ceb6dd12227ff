"""Reads that wait for messages: operations watched by their queue (R38).

The write that brings what is missing completes such a read, or its time-out does. All reads of a store, of threads and
of coroutines, wait in one purgatory, with one timer thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias, cast

from ...index import DelayedOperation, Purgatory, TimersClosed, TimerThread, TimingWheel
from ..device.background import Background
from ..device.clock import Clock
from ..log.lane import Lane
from ..log.streams import Stream, StreamMap
from ..log.write import VisibleEntries
from .finder import open_end
from .loop_bells import LoopBells, set_all
from .topic_news import TopicListeners

Name: TypeAlias = "tuple[str, int]"  # (topic, queue)
Sealed: TypeAlias = "tuple[int, int, int] | None"  # `SealedSegments.span`: a wait holds no segment
_MANY = 1 << 30
ANY_QUEUE = -1  # as the queue of a name: a message of any queue of the topic
LONGEST_WAIT_MS = int(threading.TIMEOUT_MAX) * 500  # half of what a lock can wait for, which is centuries
END_S = 10.0
GRACE_S = 1.0  # a thread's own time-out is later than the timers' by so much; it should never be needed
NAP_S = 0.02  # between two looks where there are no timers


class Missing(NamedTuple):
    """The messages that a read still waits for, from `offset` on.

    Attributes:
        messages, size_bytes: both must have come; 0 or less: it has enough of that.
        room_bytes: when so many bytes have come the read is full, whatever else is missing.
        sealed: the lane's sealed segments before the read looked; None where the queue was unknown.
        begin: the read's offset. If it is trimmed meanwhile the read is over.
    """

    offset: int
    messages: int
    size_bytes: int
    room_bytes: int
    sealed: Sealed
    begin: int

    @property
    def is_nothing(self) -> bool:
        """True if nothing is missing."""
        return self.room_bytes <= 0 or (self.messages <= 0 and self.size_bytes <= 0)


Condition: TypeAlias = "Missing | Callable[[], bool]"  # the messages that have to come; or a call that says so


class WaitingRead(DelayedOperation):
    """One sleep of a read. `ring` wakes it; the read then looks for itself. Of a `group` one is asked for all.

    Invariant: an operation never says that nothing has come where something may have. Where memory does not tell, the
    read is woken to find out.
    """

    __slots__ = ("_condition", "_readers", "group", "name")

    def __init__(
        self, readers: WaitingReaders, name: Name, condition: Condition, deadline_ms: int, group: object = None
    ) -> None:
        super().__init__(LONGEST_WAIT_MS)
        self.until_ms = deadline_ms
        self.name = name
        self.group = group
        self._readers = readers
        self._condition = condition

    def try_complete(self) -> bool:
        """Whether the messages have come. The thread that made them durable calls it: it never reads the device."""
        condition = self._condition
        return self._has_come(condition) if isinstance(condition, Missing) else condition()

    def _has_come(self, missing: Missing) -> bool:
        stream = self._readers.streams.get(*self.name)
        if stream is None or stream.number < 0:
            return False
        following = open_end(stream)
        is_trimmed = stream.low > missing.begin
        if following is None:  # sealed segments alone have it, and their footers may be on the device
            return sealed_of(stream) != missing.sealed or is_trimmed
        if following <= missing.offset or is_trimmed:
            return is_trimmed
        if missing.messages <= 1 and missing.size_bytes <= 0:
            return True
        came = size_between(stream, missing.offset, following)
        if came is None:
            return True
        self._condition = missing = missing._replace(
            offset=following, messages=missing.messages - (following - missing.offset),
            size_bytes=missing.size_bytes - came, room_bytes=missing.room_bytes - came,
        )  # fmt: skip
        return missing.is_nothing


class ThreadRead(WaitingRead):
    """A thread's: it sleeps on `bell`."""

    __slots__ = ("bell",)
    bell: threading.Lock

    def on_complete(self) -> None:
        self.bell.release()


class CoroutineRead(WaitingRead):
    """A coroutine's: it awaits `rung`, a future of its loop. `is_left`: by its coroutine, which is awake."""

    __slots__ = ("is_left", "rung")
    is_left: bool
    rung: asyncio.Future[None]

    def on_complete(self) -> None:
        if not self.is_left and not self._readers.bells.ring(self.rung):
            self._readers.forget(self)


class WaitingReaders:
    """The reads of one store that wait, for queues that need not exist yet.

    Invariants:
        * a read is watched before its last look at what is durable: what comes after that look completes it;
        * reads are completed by threads of the store and by themselves alone. No signal's handler runs there, so none
          is left between its completion and its bell;
        * the thread for time-outs is started with the first read that waits.
    """

    def __init__(self, streams: StreamMap, clock: Clock) -> None:
        self.streams = streams
        self.bells = LoopBells()
        self.listeners = TopicListeners(streams.topics.__contains__)
        self._clock = clock
        self._coroutines: set[CoroutineRead] = set()  # to wake them in a child process
        self._purgatory: Purgatory | None = None
        self._timers: TimerThread | None = None
        self._making = threading.Lock()
        self._closed = False

    def __len__(self) -> int:
        return 0 if self._purgatory is None else self._purgatory.pending

    # -- reads ----------------------------------------------------------------------------------------

    def deadline_after(self, wait_ms: int) -> int:
        """The time of deadlines, in ms, at which a wait of so long that begins now is over; one of 0 ms always is."""
        return math.ceil(self._clock.monotonic_s() * 1000) + wait_ms if wait_ms else 0

    def is_over(self, deadline_ms: int) -> bool:
        """Whether this time has come."""
        return self._clock.monotonic_s() * 1000 >= deadline_ms

    def wait(self, name: Name, condition: Condition, deadline_ms: int, group: object = None) -> None:
        """Sleep until it has come, no longer than to `deadline_ms`, or until something else is to be found out."""
        read = ThreadRead(self, name, condition, deadline_ms, group)
        read.bell = threading.Lock()
        read.bell.acquire()
        try:
            sleep_s = self._watch(read)
            if sleep_s > 0:
                read.bell.acquire(timeout=sleep_s)
        finally:
            read.force_complete()

    def begin(self, name: Name, condition: Condition, deadline_ms: int, group: object = None) -> CoroutineRead:
        """Begin to wait in a coroutine, which awaits `rung` and calls `end` whatever comes. Within its loop.

        Not a coroutine itself: ten thousand of them wait, and each is an object more.
        """
        read = CoroutineRead(self, name, condition, deadline_ms, group)
        read.rung, read.is_left = asyncio.get_running_loop().create_future(), False
        self._coroutines.add(read)
        try:
            sleep_s = self._watch(read)
            if sleep_s <= NAP_S:  # no time-out wakes it
                asyncio.get_running_loop().call_later(sleep_s, set_all, (read.rung,))
        except BaseException:  # passed on; also an interrupt leaves no operation that nobody waits for
            self.end(read)
            raise
        return read

    async def wait_async(self, name: Name, condition: Condition, deadline_ms: int, group: object = None) -> None:
        """As `wait`, for a coroutine."""
        read = self.begin(name, condition, deadline_ms, group)
        try:
            await read.rung
        finally:
            self.end(read)

    def end(self, read: CoroutineRead) -> None:
        """Its coroutine waits no longer."""
        read.is_left = True
        self.forget(read)
        read.force_complete()

    def forget(self, read: CoroutineRead) -> None:
        """Nobody is left whom a fork would have to wake."""
        self._coroutines.discard(read)

    def _watch(self, read: WaitingRead) -> float:
        """How long it may sleep: 0 if it need not wait, at least `GRACE_S` if its deadline will wake it, else less."""
        try:
            patience_s = self._left_s(read)
            purgatory = self._purgatory or self._start()
            is_over = purgatory.try_complete_else_watch(read, (read.name,))
            return 0.0 if is_over else patience_s + GRACE_S
        except RuntimeError:
            # The store was closed, as the read will find. Or there are no timers, as the program ends: look again soon.
            return 0.0 if self._closed else min(NAP_S, self._left_s(read) / 2)

    def _left_s(self, read: WaitingRead) -> float:
        assert read.until_ms is not None, "each has one"
        return max(0.0, read.until_ms / 1000 - self._clock.monotonic_s())

    def _start(self) -> Purgatory:
        """Raises RuntimeError if there can be no thread."""
        if threading.get_ident() == threading.main_thread().ident:
            # In a thread, where no interrupt comes between two of its steps.
            thread = Background(self._make)
            thread.start()
            thread.join()
        else:
            self._make()
        if self._purgatory is None:
            raise TimersClosed("there are no timers")
        return self._purgatory

    def _make(self) -> None:
        with self._making, contextlib.suppress(RuntimeError):
            if self._purgatory is None and not self._closed:
                self._timers = TimerThread(TimingWheel(), self._clock)
                self._purgatory = Purgatory(self._timers)

    def are_waiting(self, name: Name) -> bool:
        """Whether somebody waits for a queue, or has until just now; or listens for the news of its topic."""
        purgatory = self._purgatory
        return (purgatory is not None and name in purgatory) or name[0] in self.listeners

    def at(self, deadline_ms: int, work: Callable[[], object]) -> None:
        """Call `work` at this time, in a thread of the store. Raises RuntimeError where there are no timers."""
        if (self._purgatory or self._start()) and self._timers is not None:
            self._timers.add(deadline_ms, work)

    # -- what the store tells -------------------------------------------------------------------------

    def tell(self, lane: Lane, shown: Sequence[VisibleEntries]) -> None:
        """Readers may see more of a lane now: look at those who wait for a message of these queues.

        A flusher does this after each write, so nothing is looked up unless somebody waits.
        """
        purgatory = self._purgatory
        is_waited_for = purgatory is not None and purgatory.pending > 0
        if not is_waited_for and not self.listeners:
            return
        came = {number for table, begin, end in shown for number in table.few_numbers(begin, end)}
        if self.listeners:
            self.listeners.tell({lane.streams[number].topic for number in came})
        if is_waited_for and purgatory is not None:
            names = self._due(purgatory, lane, came)
            if names:
                self._in_thread(partial(_look_at, purgatory, names, one_a_group=True))

    def look_at(self, names: Sequence[Name], *, one_a_group: bool = False) -> None:
        """Something has become of these queues: their messages were trimmed."""
        if self.listeners:
            self.listeners.look_at({topic for topic, queue_id in names if queue_id == ANY_QUEUE})
        purgatory = self._purgatory
        if purgatory is not None and purgatory.pending:
            self._in_thread(partial(_look_at, purgatory, names, one_a_group=one_a_group))

    def look_at_all(self) -> None:
        """More may be durable than was told."""
        self.listeners.look_at_all()
        purgatory = self._purgatory
        if purgatory is not None and purgatory.pending:
            self.look_at(_names(purgatory))

    def wake_all(self) -> None:
        """Something else has happened that they have to find out."""
        purgatory = self._purgatory
        if purgatory is not None and purgatory.pending:
            self._in_thread(purgatory.expire_all)

    def _due(self, purgatory: Purgatory, lane: Lane, numbers: set[int]) -> list[Name]:
        """The queues that are waited for and have one of these numbers, by whichever are fewer."""
        streams = self.streams
        if purgatory.key_count < len(numbers):
            watched = _names(purgatory)
            found = [(name, streams.get(*name)) for name in watched]
            names = [name for name, one in found if one is not None and one.lane is lane and one.number in numbers]
            if not any(queue_id == ANY_QUEUE for _, queue_id in watched):
                return names
            named = [lane.streams[number] for number in numbers]
        else:
            named = [lane.streams[number] for number in numbers]
            names = [name for stream in named if (name := (stream.topic, stream.queue_id)) in purgatory]
        topics = {stream.topic for stream in named}
        return names + [name for topic in topics if (name := (topic, ANY_QUEUE)) in purgatory]

    def _in_thread(self, work: Callable[[], object]) -> bool:
        """Do it where no signal's handler can run: in this thread, if that is not the main one, or soon in the timers'.

        False if there it cannot be done.
        """
        if threading.get_ident() != threading.main_thread().ident:
            work()
            return True
        try:
            assert self._timers is not None, "it is made before the purgatory"
            self._timers.add_after(0, work)
        except TimersClosed:
            return False
        return True

    # -- the end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wake all for good: nobody waits any more. Again is fine, also after an interrupt."""
        with self._making:
            self._closed = True
        purgatory, timers = self._purgatory, self._timers
        if purgatory is None or timers is None:
            return
        done = threading.Event()
        if not self._in_thread(partial(_end, purgatory, done)) or not done.wait(END_S):
            purgatory.close()  # the program ends, and the timers' thread has ended before
        timers.close()

    def after_fork(self) -> None:
        """In a child process: wake the coroutines, to find out. The threads stayed with the parent."""
        self._making, self._closed = threading.Lock(), True
        self.bells = LoopBells()
        set_all([read.rung for read in list(self._coroutines)])  # here: `call_soon_threadsafe` wakes the parent's loop
        self._purgatory = None


def _names(purgatory: Purgatory) -> list[Name]:
    return cast("list[Name]", purgatory.watched_keys())


def _look_at(purgatory: Purgatory, names: Sequence[Name], *, one_a_group: bool) -> None:
    for name in names:
        purgatory.check_and_complete(name, one_a_group=one_a_group)


def _end(purgatory: Purgatory, done: threading.Event) -> None:
    purgatory.close()
    done.set()


def sealed_of(stream: Stream | None) -> Sealed:
    """The sealed segments of a stream's lane, by which a caller knows whether some are new or gone."""
    return None if stream is None else stream.lane.view.sealed.span


def size_between(stream: Stream, begin: int, end: int) -> int | None:
    """The data bytes of the messages begin .. end - 1; None if they are not all in open segments."""
    size = 0
    for _, table in stream.lane.view.open:
        if begin == end:
            break
        entries = table.find(stream.number, begin, min(end - begin, _MANY))
        size += sum(table.places(entries)[1]) if len(entries) else 0
        begin += len(entries)
    return size if begin == end else None
