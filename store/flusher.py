"""The threads of a lane: two flushers that take turns, hand over hand.

Each takes a batch, builds it, and stays with its write until it is answered; nothing is handed from thread
to thread. While one's write is with the device, the other builds and writes the next if there is enough.
Building is serialised by one lock, and completion goes in log order by the lane's own rule.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from .errors import StoreError, StoreFull
from .lane import Lane
from .queue import Batch, RequestQueue
from .request import answer_all
from .write import Write

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
        try:
            while not self._ended:
                held = self.lane.tail > self.lane.issued
                came = self.queue.wait(HOLD_S if held else None)
                with self._building:
                    writes = self._next_writes(came)
                self._perform(writes)
        except BaseException as error:  # of the device, or a bug, or no memory: nothing may build on it
            self._fail(error)

    def _next_writes(self, came: bool) -> list[Write]:
        """Take a batch if one came, build it, plan it. The building lock is held."""
        lane, queue = self.lane, self.queue
        if self._ended or lane.poison is not None:
            self._ended = True
            return []
        batch = queue.take()
        if batch.requests:
            self._build(batch)
        self._ended = batch.closing
        follows = came and queue.sizer.active > 1
        return lane.plan(follows=follows, barrier=batch.barrier, active=int(queue.sizer.active))

    def _build(self, batch: Batch) -> None:
        try:
            self.lane.build(batch.requests)
        except StoreFull as error:
            answer_all(batch.requests, error)
            self.queue.release(batch.cost_bytes, sum(request.count for request in batch.requests))
        except BaseException as error:
            # Nobody else knows these requests yet: tell them before the lane is given up.
            self.lane.fail(error, batch.requests)
            raise

    def _perform(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self.queue.write_begins()
            try:
                write.perform()
            finally:
                self.queue.write_ends()
            done = self.lane.complete(write)
            if done.messages or done.cost_bytes:
                self.queue.release(done.cost_bytes, done.messages)
                self._on_durable()

    def _fail(self, error: BaseException) -> None:
        self._ended = True
        self.lane.fail(error)
        assert self.lane.poison is not None
        answer_all(self.queue.refuse(self.lane.poison), self.lane.poison)
        self._on_poison(self.lane.poison)
