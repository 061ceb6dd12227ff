"""The threads of a lane: two flushers that take turns (one with durability "os").

Each takes a batch, builds it, and stays with its write until it is answered; nothing is handed from thread
to thread. While one's write is with the device, the other builds and writes the next if there is enough.
Building is serialised by one lock, and completion goes in log order by the lane's own rule.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from ..device.background import Background
from ..errors import StoreError, StoreFull
from .frame_ids import take_repeats
from .lane import Lane
from .lane_machine import LaneMachine
from .queue import Batch, RequestQueue
from .request import Request, answer_all
from .reserve import may_use_reserve
from .sizer import cost_bytes
from .write import VisibleEntries, Write, WriteOutcome

NAP_S = 0.0002
HOLD_S = 0.0005  # how long a held-back tail waits for a batch that pushes it out; then it is padded


class Flusher:
    """Drives a lane until its queue is closed and empty.

    `start` has threads do it; a simulation takes the same steps one by one: `next_writes`, `perform`, `fail`.

    `on_poison` is called with the lane's error when a write or force has failed (`Running.poisoned`). `on_durable` is
    called with the entries that readers see from now on, `VisibleEntries`, where there are some (`OpenStore.arrived`).
    """

    def __init__(
        self,
        lane: LaneMachine,
        queue: RequestQueue[Request],
        threads: int,
        on_poison: Callable[[StoreError], None],
        on_durable: Callable[[Lane, Sequence[VisibleEntries]], None],
    ) -> None:
        self.lane = lane
        self.queue = queue
        self._on_poison = on_poison
        self._on_durable = on_durable
        self.building = threading.Lock()
        self.ended = False
        self._threads = [Background(self._run) for _ in range(threads)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for the threads; the queue must be closed. It may be called again."""
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        late = False  # True: no batch came that pushes a held tail out
        try:
            while not self.ended:
                with self.building:
                    writes = self.next_writes(late)
                if writes:
                    late = False
                    self.perform(writes)
                else:
                    held = self.lane.tail > self.lane.issued
                    late = not self.queue.wait(HOLD_S if held else None)
            self._heed_poison()
        except BaseException as error:  # of the device, or a bug, or no memory: nothing may build on it
            self.fail(error)

    def next_writes(self, late: bool) -> list[Write]:
        """Take a batch if one is ready, build it, plan it. `building` is held. `late`: nothing came in HOLD_S."""
        lane, queue = self.lane, self.queue
        self._heed_poison()
        if self.ended:
            return []
        batch = queue.dequeue()
        if batch.requests:
            self._build(batch)
        elif not late and not batch.closing:
            return []
        self.ended = self.ended or batch.closing
        active = queue.sizer.active
        return lane.plan(follows=not late and active > 1, barrier=batch.barrier, active=int(active))

    def _build(self, batch: Batch[Request]) -> None:
        untold = batch.requests
        try:
            if self.queue.has_ids:
                untold = self._answer_repeats(untold)
            try:
                answered = self.lane.build(untold) if untold else 0
            except StoreFull as error:
                # A barrier does not fail with them: what came before it is durable soon, or has its own error.
                messages = [request for request in untold if request.count]
                untold = [request for request in untold if not request.count]
                self._build_records(messages, untold, error)
                answered = self.lane.build(untold) if untold else 0
            if answered:
                self.queue.release(0, answered)
        except BaseException as error:
            # Nobody else knows these requests yet: answer them before the lane is given up.
            self.fail(error, untold)
            raise
        finally:
            self.queue.taken = ()

    def _answer_repeats(self, requests: list[Request]) -> list[Request]:
        """Answer the messages whose ids are durable, with the offsets that these have; the other requests."""
        left, repeats = take_repeats(requests, self.lane.now_ms())
        if repeats:
            cost = sum(map(cost_bytes, repeats))  # before their extras go
            answer_all(repeats)
            self.queue.release(cost, len(repeats))
        return left

    def _build_records(self, messages: Sequence[Request], untold: list[Request], error: StoreFull) -> None:
        """Build each record of the store's own by itself, from the reserve; refuse all other messages with `error`.

        `untold` has the requests that are neither built nor answered, whatever is raised.
        """
        barriers = len(untold)
        untold[:0] = messages
        reserve = self.lane.for_records
        for request in messages:
            topic = request.stream.topic
            why = error
            if reserve is not None and may_use_reserve(topic):
                try:
                    self.lane.build([request], reserve.left_by(topic))
                    del untold[0]
                    continue
                except StoreFull as used_up:
                    why = used_up
            del untold[0]
            self._refuse(request, why)
        assert len(untold) == barriers

    def _refuse(self, request: Request, error: StoreFull) -> None:
        cost = cost_bytes(request)  # before its extras go
        answer_all([request], error)
        self.queue.release(cost, 1)

    def perform(self, writes: Sequence[Write], *, by_builder: bool = True) -> None:
        """Do the writes, and answer what became durable by them. Raises OSError."""
        for write in writes:
            self.queue.write_begins(by_builder=by_builder)
            write.perform()
            done = self.lane.complete(write)
            self.queue.write_ends(done.cost_bytes, done.requests, done.writes, by_builder=by_builder)
            if done.shown:
                self._on_durable(self.lane, done.shown)
        self._heed_poison()

    def write_out(self, *, barrier: bool = False) -> None:
        """Write all that was built, and wait until it is durable or the lane has failed. `building` is held.

        Raises OSError.
        """
        lane = self.lane
        self._await_filled()
        self.perform(lane.plan(follows=False, barrier=barrier), by_builder=False)
        while lane.poison is None and lane.durable < lane.tail:
            time.sleep(NAP_S)  # another flusher's write is with the device, and nothing here tells of its end

    def _await_filled(self) -> None:
        """Wait for a write that is out if it has zeros where the next one begins, see `Write`."""
        while self.lane.under_way.is_filling:
            time.sleep(NAP_S)

    def take_queued(self) -> None:
        """Build and write what is queued now: appends of one thread keep their order. `building` is held.

        It ends early if this lane fails, or the queue refuses because another one has failed. Raises OSError.
        """
        left = self.queue.waiting
        while left > 0 and self.lane.poison is None:
            batch = self.queue.dequeue()
            if batch.requests:
                self._build(batch)
                left -= len(batch.requests)
                self._await_filled()
                self.perform(self.lane.plan(follows=False, barrier=batch.barrier), by_builder=False)
            elif batch.closing:
                break  # it gives nothing any more: the others have their answers
            else:
                time.sleep(NAP_S)  # as many writes are with the device as may be

    def tell(self, done: WriteOutcome) -> None:
        """Account for requests that `AtOnce` has answered, and call `on_durable`."""
        self.queue.release(done.cost_bytes, done.requests)
        if done.shown:
            self._on_durable(self.lane, done.shown)

    def _heed_poison(self) -> None:
        """End if another thread's write failed; the frame that this one was building meanwhile fails as well."""
        if self.lane.poison is not None:
            self.fail(self.lane.poison)

    def fail(self, error: BaseException, building: Sequence[Request] = ()) -> None:
        """A step has raised: poison the lane, tell the store, and then answer all requests that fail by it.

        In this order: once a caller hears that the store is poisoned, no queue takes a message any more.
        """
        self.ended = True
        failed = self.lane.under_way.fail(error, building)
        poison = self.lane.poison
        assert poison is not None
        refused = self.queue.refuse(poison)
        try:
            self._on_poison(poison)
        finally:
            try:
                answer_all(failed, poison)
            finally:  # an answer that raises must not keep the others from being told
                answer_all(refused, poison)
