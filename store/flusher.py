"""The threads of a lane: two flushers that take turns, hand over hand.

One builds the next frame while the other's write is with the device; neither hands anything to another
thread. Building is serialised by one lock, and completion goes in log order by the lane's own rule.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from .errors import StoreError, StoreFull
from .lane import Lane, Write
from .queue import Batch, RequestQueue, cost_bytes
from .request import Ticket, answer_all

HOLD_S = 0.0005


class Flusher:
    """Drives a lane until its queue is closed and empty.

    `on_poison` is called with the lane's error when a write or force has failed, `on_durable` whenever
    messages became durable.
    """

    def __init__(
        self,
        lane: Lane,
        queue: RequestQueue,
        threads: int,
        on_poison: Callable[[StoreError], None],
        on_durable: Callable[[], None],
    ) -> None:
        self.lane = lane
        self.queue = queue
        self._on_poison = on_poison
        self._on_durable = on_durable
        self._building = threading.Lock()
        self._ended = False
        self._threads = [
            threading.Thread(target=self._run, name=f"stratalog-lane-{lane.index}-{i}", daemon=True)
            for i in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for the threads; the queue must be closed."""
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._building:
                if self._ended:
                    return
                try:
                    writes = self._next_writes()
                except BaseException as error:  # a bug or no memory: nothing may be built on top of it
                    self._fail(error)
                    return
            try:
                self._perform(writes)
            except BaseException as error:
                self._fail(error)
                return

    def _next_writes(self) -> list[Write]:
        """Take a batch, build it, plan it. The building lock is held."""
        lane, queue = self.lane, self.queue
        held = lane.tail > lane.issued
        batch = queue.take(HOLD_S if held else None)
        if batch.requests:
            self._build(batch.requests)
        self._ended = batch.closing
        if lane.poison is not None:
            return []
        writes = lane.plan(follows=self._follows(batch), barrier=batch.barrier)
        for _ in writes:
            queue.write_begins()
        return writes

    def _follows(self, batch: Batch) -> bool:
        return not batch.idle and self.queue.sizer.active > 1

    def _build(self, requests: Sequence[Ticket]) -> None:
        try:
            self.lane.build(requests)
        except StoreFull as error:
            answer_all(requests, error)
            self._release(requests)

    def _perform(self, writes: Sequence[Write]) -> None:
        for write in writes:
            write.perform()
            self.queue.write_ends()
            answered = self.lane.complete(write)
            if answered:
                self._release(answered)
                self._on_durable()

    def _release(self, requests: Sequence[Ticket]) -> None:
        self.queue.release(sum(map(cost_bytes, requests)), sum(request.count for request in requests))

    def _fail(self, error: BaseException) -> None:
        self.lane.fail(error)
        assert self.lane.poison is not None
        answer_all(self.queue.refuse(self.lane.poison), self.lane.poison)
        self._ended = True
        self._on_poison(self.lane.poison)
