"""The thread of a store's rounds of transactions as steps: see `stratalog.store.log.rounds`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stratalog.store import MessageStore
from stratalog.store.format.layout import align_up
from stratalog.store.log.atomic_group import AtomicGroup
from stratalog.store.log.flusher import Flusher
from stratalog.store.log.write import Write

from .engine import flushers_of
from .ledger import Built, Ledger


class SteppedRounds:
    """The rounds of one store. What a round builds is noted before a byte of it is written."""

    def __init__(self, store: MessageStore, ledger: Ledger, clock_ms: Callable[[], int]) -> None:
        self._rounds = store._running.rounds
        self._ledger = ledger
        self._clock_ms = clock_ms
        self._flushers = flushers_of(store)
        self._built: list[Built] = []
        self.running = False
        for flusher in self._flushers if self._rounds is not None else ():
            self._watch(flusher)

    def _watch(self, flusher: Flusher) -> None:
        lane: Any = flusher.lane
        build_joint, perform = lane.build_joint, flusher.perform

        def noted_joint(requests: Sequence[AtomicGroup], flags: int, joint: bytes) -> None:
            self._note(lane)
            build_joint(requests, flags, joint)
            base = lane.segment.base
            place = lane.segment.sequence, align_up(lane.tail - base)
            for request in requests:
                queues = [(stream.topic, stream.queue_id) for stream in request.streams]
                messages = list(zip(queues, request.datas, strict=True))
                self._built.append(Built(lane.index, request, messages, *place))

        def noted(writes: Sequence[Write], **how: Any) -> None:
            self._note_built()
            self._note(lane)
            perform(writes, **how)

        lane.build_joint = noted_joint
        vars(flusher).update(perform=noted)

    def _note_built(self) -> None:
        built, self._built = self._built, []
        if built:
            self._ledger.note_joint(built, self._clock_ms())

    def _note(self, lane: Any) -> None:
        sequence, base = (lane.segment.sequence, lane.segment.base or 0) if lane.segment is not None else (0, 0)
        self._ledger.note_built(lane.index, sequence, align_up(lane.tail - base), self._clock_ms())
        self._ledger.note_answers(lane.index)

    def drain(self) -> None:
        """Take all that waits; the store closes."""
        assert self._rounds is not None
        while self.step() and not self._rounds.ended:
            pass

    def step(self) -> bool:
        """Take what waits in one round; False if there was nothing."""
        if self._rounds is None or self.running:
            return False
        self.running = True
        try:
            return self._rounds.step()
        finally:
            self.running = False
            self._note_built()
            for flusher in self._flushers:
                self._note(flusher.lane)
