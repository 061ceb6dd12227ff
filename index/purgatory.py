"""Operations that wait, watched by keys, in lists that are purged by an estimate.

Source: Apache Kafka's request purgatory. A completed operation leaves the timer at once, but stays in the lists of its
keys until such a list is looked through. The number of completed operations in the lists is estimated as

    operations that were watched since the last purge, and those that were pending then   -   those pending now

The lists are purged once that is more than `purge_interval` and more than the pending operations. So a purge costs each
operation a constant, and a list that is long because many operations wait is not searched in vain.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from typing import Protocol

from .errors import TimersClosed, report
from .locks import let_pass, tell_after_fork
from .operation import DelayedOperation
from .timing_wheel import TimingWheel

PURGE_INTERVAL = 1000


class Timers(Protocol):
    """The source of time-outs: a `TimerThread`; or a bare `TimingWheel`, whose caller calls what `advance` returns."""

    @property
    def wheel(self) -> TimingWheel:
        """The wheel that operations are put into."""

    def deadline_after(self, delay_ms: int) -> int:
        """The wheel's time, in ms, after `delay_ms`. Raises TimersClosed."""


class Purgatory:
    """Holds operations until they are completed by `check_and_complete`, by `force_complete` or by their time-out.

    All methods may be called from any thread, and from an operation's own methods. One lock, the wheel's, guards
    the lists, the counts, the state of operations and their time-outs; no method of an operation runs under it. A
    request takes it three times: when it is watched, when its time-out is set, and at its end.

    Attributes:
        timer: of the time-outs; the caller owns and closes it.
        purge_interval: completed operations that may stay in the lists, while fewer than this are pending.
        purges: how often the lists were purged.
    """

    def __init__(self, timer: Timers, purge_interval: int = PURGE_INTERVAL) -> None:
        self.timer = timer
        self.purge_interval = purge_interval
        self.purges = 0
        self._wheel = timer.wheel
        self._lock = self._wheel.lock
        self._deadline_after = timer.deadline_after
        self._lists: dict[Hashable, list[DelayedOperation]] = {}
        self._pending = 0
        self._estimate = 0  # of the operations in the lists, pending and completed
        self._purging = False
        self._why_closed = ""
        tell_after_fork(self)

    @property
    def pending(self) -> int:
        """The number of operations that are not completed."""
        return self._pending

    @property
    def watched(self) -> int:
        """Entries in the lists of all keys, with those of completed operations that were not purged yet."""
        with self._lock:
            return sum(map(len, self._lists.values()))

    @property
    def estimate(self) -> int:
        """The estimated number of operations in the lists: at least as many as are pending."""
        return self._estimate

    @property
    def key_count(self) -> int:
        """The number of keys that have a list."""
        return len(self._lists)

    def watched_keys(self) -> list[Hashable]:
        """The keys that have a list now."""
        return list(self._lists)

    def __contains__(self, key: Hashable) -> bool:
        """Whether an operation is watched under the key."""
        return key in self._lists

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Complete the operation if its condition holds, else watch it under these keys, until its time-out.

        True if it is completed when this returns. Give an operation to one purgatory, once. Raises ValueError
        without a key, TimersClosed after `close`, and the errors of `try_complete`; then the operation is over, and
        none of its methods is called.
        """
        keys = tuple(keys)
        if not keys:
            raise ValueError("an operation is watched under at least one key, or nothing but time completes it")
        if not operation.enter(self):
            return True
        try:
            if operation.try_complete():
                operation.force_complete()
                return True
            self._watch(operation, keys)
            # Once more: nobody has told it of changes between the first check and the watch.
            if operation.try_complete():
                operation.force_complete()
                return True
            again = self._settle(operation)
        except BaseException:  # also an interrupt: nobody watches the operation any more
            self._leave(operation)
            raise
        if again:
            operation.attempt(self._lock)
        return operation.is_completed

    def _watch(self, operation: DelayedOperation, keys: tuple[Hashable, ...]) -> None:
        lists, lock = self._lists, self._lock
        if lock.locked():
            let_pass(lock)
        with lock:
            if self._why_closed:
                raise TimersClosed(self._why_closed)
            if operation.is_completed:  # by a thread that does not wait for its purgatory
                return
            for key in keys:
                try:
                    lists[key].append(operation)
                except KeyError:
                    lists[key] = [operation]
            self._estimate += 1
            self._pending += 1
            operation.is_counted = True  # no call in between: an interrupt finds both or none

    def _settle(self, operation: DelayedOperation) -> bool:
        """End the first checks and set the time-out; True if another check was asked for meanwhile."""
        deadline_ms, is_first, lock = self._deadline_after(operation.timeout_ms), False, self._lock
        if operation.until_ms is not None:
            deadline_ms = min(deadline_ms, operation.until_ms)
        if lock.locked():
            let_pass(lock)
        with lock:
            again, operation.again, operation.trying = operation.again, False, 0
            if not operation.is_completed:
                operation.payload = operation
                is_first = self._wheel.put(operation, deadline_ms)
        if is_first:
            self._wheel.tell_earlier()
        return again

    def _leave(self, operation: DelayedOperation) -> None:
        """The operation is over, and none of its methods is called."""
        self.end(operation)
        self._wheel.tell_earlier()  # the error may have kept that back, and others may rely on it

    def check_and_complete(self, key: Hashable, *, one_a_group: bool = False) -> int:
        """A key has changed: complete its operations whose condition holds. Returns how many it completed.

        It goes in the order in which they were added. An operation whose `try_complete` raises stays watched; the error
        is logged. With `one_a_group`, one operation of each group is asked for all.
        """
        if key not in self._lists:  # an operation that is watched from now on checks its condition after this
            return 0
        with self._lock:
            watched = list(self._lists.get(key, ()))
        completed, gone, asked = 0, False, set[object]()
        for operation in watched:
            if operation.group in asked:
                continue
            try:
                if not operation.is_completed:
                    completed += operation.attempt(self._lock)
                    if one_a_group and operation.group is not None:
                        asked.add(operation.group)
            except Exception as error:  # a user's own code; the other operations are tried all the same
                report(f"try_complete of {type(operation).__name__} has raised", error)
            gone |= operation.is_completed
        if gone:
            self._purge_list(key)
        return completed

    def _purge_list(self, key: Hashable) -> None:
        """Remove completed operations from one list."""
        with self._lock:
            watched = self._lists.get(key)
            if watched is not None:
                kept = [operation for operation in watched if not operation.is_completed]
                if kept:
                    self._lists[key] = kept
                else:
                    del self._lists[key]
        del watched  # outside of the lock: the end of an operation may run the program's code

    def end(self, operation: DelayedOperation) -> bool:
        """Complete an operation of this purgatory, without `on_complete`; True if this call did."""
        lock = self._lock
        if lock.locked():
            let_pass(lock)
        with lock:
            if operation.is_completed:
                return False
            if self._wheel.take_out(operation):
                operation.payload = None  # else its time has come, and `advance` is about to read it
            operation.is_completed = True
            operation.purgatory = None
            if not operation.is_counted:
                return True
            operation.is_counted = False
            self._pending = pending = self._pending - 1
            completed = self._estimate - pending
            is_due = completed > pending and (completed > self.purge_interval or not pending)
            is_due, self._purging = is_due and not self._purging, self._purging or is_due
        if is_due:
            try:
                self.purge()
            finally:
                self._purging = False
        return True

    def purge(self) -> None:
        """Remove completed operations from all lists: called when the estimate says so, and when the last one ends."""
        with self._lock:
            self.purges += 1
            self._estimate = self._pending  # first: operations that are watched from here on count again
            keys = list(self._lists)
        for key in keys:
            self._purge_list(key)

    def expire_all(self) -> int:
        """Expire all pending operations, as if their time were up. Returns their number."""
        with self._lock:
            waiting = {id(one): one for watched in self._lists.values() for one in watched}
        ended = 0
        for operation in waiting.values():
            ended += not operation.is_completed
            operation()
        self.purge()
        return ended

    def close(self) -> int:
        """Take no more operations, and expire the pending ones, so that none waits forever. Returns their number. A
        second call does no harm."""
        with self._lock:
            self._why_closed = self._why_closed or "the purgatory was closed"
        return self.expire_all()

    def after_fork(self) -> None:
        """In a child process: the operations are the parent's."""
        self._lock = threading.Lock()
        self._why_closed = "the purgatory was made before a fork; make one in the process that uses it"
        self._lists, self._pending, self._estimate, self._purging = {}, 0, 0, False
