"""Rounds: transactions over several lanes, or too large for one frame, become durable and visible at once.

One round is under way at a time. Its lanes stand still, in the order of their index, from before its frames are built
until all of them are forced. So after a crash only the newest round can be there in part, and its parts are the last
frames of their lanes. Each part says where all of them lie: `format.joint`. `segment.round_parts` has what follows for
a log that ends with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import chain

import numpy as np

from ..device.background import Background
from ..errors import StoreError, StoreFull
from ..format.joint import pack_joint
from .atomic_group import AtomicGroup
from .attach_together import attach_together
from .crew import Crew
from .flusher import Flusher
from .joint_group import JointFrame, JointGroup
from .queue import Batch, RequestQueue
from .request import Request, answer_all
from .round_part import RoundPart
from .sizer import cost_bytes
from .together import Change


class Rounds:
    """The thread that takes transactions over several lanes, those that wait together in one round; and large ones.

    A large one has a round of its own: no frame has room for another one beside it.

    `start` has a thread do it; a simulation calls `step`.

    Invariants:
        * a request that was taken out of the queue is answered, whatever is raised;
        * nothing of a round is answered before all lanes have forced it and show it;
        * after a round has failed, its lanes are poisoned, and with them the store: no other round begins.
    """

    def __init__(
        self, flushers: Sequence[Flusher], queue: RequestQueue[Request], frame_bytes: int,
        shown: Callable[[], Change], telling: Callable[[], AbstractContextManager[object]],
    ) -> None:  # fmt: skip
        """`flushers` are those of all lanes; `frame_bytes`: the most payloads of a frame, if it has several messages;
        `shown` and `telling` as for `attach_together`.
        """
        self.queue = queue
        self.rounds = 0  # how many there were
        self._flushers = flushers
        self._frame_bytes = frame_bytes
        self._shown, self._telling = shown, telling
        self._crew = Crew()
        self.ended = False
        self._thread = Background(self._run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread; the queue must be closed. It may be called again."""
        self._thread.join()
        self._crew.close()

    def _run(self) -> None:
        try:
            while not self.ended:
                if not self.step():
                    self.queue.wait(None)
        except BaseException as error:  # a bug, or no memory: whoever waits must hear of it
            for flusher in self._flushers:
                flusher.fail(error)
            poison = self._flushers[0].lane.poison
            assert poison is not None
            answer_all(self.queue.refuse(poison), poison)

    def step(self) -> bool:
        """Take what waits in one round; False if nothing was ready."""
        batch: Batch[Request] = self.queue.dequeue()
        self.ended = self.ended or batch.closing
        if not batch.requests:
            return batch.closing
        given = [request for request in batch.requests if isinstance(request, JointGroup)]
        barriers = [request for request in batch.requests if not request.count]
        try:
            self._take(given)
            answer_all(barriers)
            self.queue.release(0, len(barriers))
        except BaseException as error:
            self._fail([*given, *barriers], error)
            raise
        finally:
            self.queue.taken = ()
        return True

    def _take(self, given: Sequence[JointGroup]) -> None:
        """Take some in one round; if there is no space for all of them, or one is large, each by itself."""
        if len(given) > 1 and any(one.is_large for one in given):
            for one in given:
                self._take([one])
            return
        try:
            self._round(given)
        except StoreFull as error:
            if len(given) > 1:
                for one in given:
                    self._take([one])
            else:
                self._answer(given, error)
        except (StoreError, OSError) as error:  # its lanes are poisoned, or were before; or the files are gone
            self._fail(given, error)

    def _round(self, given: Sequence[JointGroup]) -> None:
        if not given:
            return
        cuts = [one.cut(self._frame_bytes) for one in given]
        joint: list[bytes] = []

        def column() -> bytes:
            if not joint:  # the first part is built next, and no lane goes on
                joint.append(pack_joint([part.place for part in parts]))
            return joint[0]

        parts = [
            RoundPart(self._flushers[lane], _frames_of([cut[lane] for cut in cuts if lane in cut]), column)
            for lane in sorted({lane for cut in cuts for lane in cut})
        ]
        attach_together(parts, self._shown, self._telling, self._crew.do_all)
        self.rounds += 1
        for one, cut in zip(given, cuts, strict=True):
            one.offsets = np.empty(one.count, np.int64)
            for frame in chain.from_iterable(cut.values()):
                one.offsets[frame.rows] = frame.request.offsets
        self._answer(given, None)

    def _answer(self, given: Sequence[JointGroup], error: StoreError | None) -> None:
        cost = sum(map(cost_bytes, given))
        try:
            answer_all(given, error)
        finally:
            self.queue.release(cost, len(given))

    def _fail(self, given: Sequence[Request], error: BaseException) -> None:
        """Answer those that have no answer yet: the store is poisoned, at the latest now."""
        poison = next((flusher.lane.poison for flusher in self._flushers if flusher.lane.poison is not None), None)
        if poison is None:
            self._flushers[0].fail(error)
            poison = self._flushers[0].lane.poison
        answer_all([one for one in given if not one.done()], poison)


def _frames_of(frames: Sequence[Sequence[JointFrame]]) -> list[list[AtomicGroup]]:
    """The requests of each frame of a part, from the frames of each transaction: a large one, or one frame of each."""
    if len(frames) == 1:
        return [[frame.request] for frame in frames[0]]
    return [[frame.request for mine in frames for frame in mine]]
