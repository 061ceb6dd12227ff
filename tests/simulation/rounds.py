"""The thread of a store's rounds of transactions as steps: see `stratalog.store.log.rounds`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

from stratalog.store import MessageStore
from stratalog.store.format.layout import align_up
from stratalog.store.log.atomic_group import AtomicGroup
from stratalog.store.log.flusher import Flusher
from stratalog.store.log.joint_group import JointGroup
from stratalog.store.log.write import Write

from .engine import flushers_of
from .ledger import Built, Ledger


class SteppedRounds:
    """The rounds of one store. What a round builds is noted before a byte of it is written."""

    def __init__(self, store: MessageStore, ledger: Ledger, clock_ms: Callable[[], int]) -> None:
        self._running = store._running
        self._ledger = ledger
        self._clock_ms = clock_ms
        self._flushers = flushers_of(store)
        self._built: list[Built] = []
        self._to_build = 0  # frames' requests of the round under way
        self.running = False
        for flusher in self._flushers:
            self._watch(flusher)

    @property
    def is_there(self) -> bool:
        """Whether the store has rounds: with one lane it has from its first large transaction on."""
        return self._running.rounds is not None

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

    def _round(
        self, take: Callable[[Sequence[JointGroup]], None], frame_bytes: int, given: Sequence[JointGroup]
    ) -> None:
        self._to_build = sum(len(frames) for one in given for frames in one.cut(frame_bytes).values())
        take(given)

    def _note_built(self) -> None:
        built, self._built = self._built, []
        self._to_build -= len(built)
        if built:
            self._ledger.note_joint(built, self._clock_ms(), are_all=not self._to_build)

    def _note(self, lane: Any) -> None:
        sequence, base = (lane.segment.sequence, lane.segment.base or 0) if lane.segment is not None else (0, 0)
        self._ledger.note_built(lane.index, sequence, align_up(lane.tail - base), self._clock_ms())
        self._ledger.note_answers(lane.index)

    def drain(self) -> None:
        """Take all that waits; the store closes."""
        rounds = self._running.rounds
        while self.step() and rounds is not None and not rounds.ended:
            pass

    def step(self) -> bool:
        """Take what waits in one round; False if there was nothing."""
        rounds = self._running.rounds
        if rounds is None or self.running:
            return False
        self.running = True
        try:
            with mock.patch.object(rounds, "_round", partial(self._round, rounds._round, rounds._frame_bytes)):
                return rounds.step()
        finally:
            self.running = False
            self._note_built()
            for flusher in self._flushers:
                self._note(flusher.lane)
