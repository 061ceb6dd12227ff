"""Rounds: transactions whose messages lie in several lanes become durable and visible in all of these at once.

One round is under way at a time. Its lanes stand still, in the order of their index, from before its frames are built
until all of them are forced. So after a crash only the newest round can be there in part, and its parts are the last
frames of their lanes. Each part says where all of them lie: `format.joint`. `segment.round_parts` has what follows for
a log that ends with one.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from ..device.background import Background, NoThread
from ..errors import StoreError, StoreFull, copy_of
from ..format.extras import Extras, ExtrasWithIds
from ..format.frame import column_bytes_bound
from ..format.joint import MOST_JOINT_BYTES, JointPlace, pack_joint
from ..segment.footer_room import share_of_frame
from .at_once import AtOnce
from .atomic_group import AtomicGroup
from .attach_together import attach_together
from .flusher import Flusher
from .message_ids import PendingIds, ids_of
from .queue import Batch, RequestQueue
from .request import Request, answer_all
from .reserve import may_use_reserve
from .sizer import cost_bytes
from .streams import NOT_DEFINED, Stream
from .together import Change


class JointGroup(AtomicGroup):
    """The request of a transaction over several lanes. It goes to the queue of the rounds, and never to a lane's.

    Its answer comes when all of it is durable and shown in all of its lanes, or nothing ever will be.
    """

    __slots__ = ("_parts", "_queue")

    def __init__(
        self, queue: RequestQueue[Request], streams: list[Stream], datas: list[bytes],
        row_extras: Sequence[Extras | None], settle: Callable[[StoreError | None], None],
    ) -> None:  # fmt: skip
        super().__init__(streams, datas, row_extras, settle)
        self._queue = queue
        self._parts: dict[int, JointPart] = {}

    @property
    def queue(self) -> RequestQueue[Request]:
        return self._queue

    def cut(self) -> dict[int, JointPart]:
        """Its part in each lane, by the lane's index: the same ones each time, as nothing is built of a round that
        found no space.
        """
        if not self._parts:
            cut: dict[int, list[int]] = defaultdict(list)
            for row, stream in enumerate(self.streams):
                cut[stream.lane.index].append(row)
            self._parts = {lane: JointPart(rows, self._of(lane, rows)) for lane, rows in cut.items()}
        return self._parts

    def _of(self, lane: int, rows: Sequence[int]) -> AtomicGroup:
        extras = [self.row_extras[row] for row in rows] if self.row_extras else []
        part = AtomicGroup([self.streams[row] for row in rows], [self.datas[row] for row in rows], extras, _not_told)
        ids = [one for one in ids_of(self) if one.target.stream.lane.index == lane]
        if ids:
            place = {row: at for at, row in enumerate(rows)}
            for one in ids:
                one.rows = [place[row] for row in one.rows]
            part.extras = ExtrasWithIds.of(None, ids)
        return part


def atomic_group(
    rounds: RequestQueue[Request] | None, streams: list[Stream], datas: list[bytes],
    extras: Sequence[Extras | None], settle: Callable[[StoreError | None], None], ids: Sequence[PendingIds],
) -> AtomicGroup:  # fmt: skip
    """The request of a transaction: a lane's, or one for `rounds` if its streams are in several lanes."""
    if rounds is None or len({stream.lane for stream in streams}) == 1:
        request = AtomicGroup(streams, datas, extras, settle)
    else:
        request = JointGroup(rounds, streams, datas, extras, settle)
        for one in ids:  # before it is put
            one.queue = rounds
    if ids:
        request.extras = ExtrasWithIds.of(None, ids)
    return request


class JointPart(NamedTuple):
    """The messages of one transaction in one lane: which of its rows they are, and their request there."""

    rows: list[int]
    request: AtomicGroup


def _not_told(error: StoreError | None) -> None:
    """The whole is told when all parts have their outcome."""


class RoundPart:
    """The part of a round in one lane: a `LanePart`."""

    def __init__(self, flusher: Flusher, requests: Sequence[AtomicGroup], joint: Callable[[], bytes]) -> None:
        """`joint` gives the column, once all lanes have made room."""
        self.flusher = flusher
        self.requests = requests
        self._joint = joint
        self._once = AtOnce(flusher)

    def prepare(self) -> None:
        """Do nothing: all is in memory."""

    def standing_still(self) -> AbstractContextManager[object]:
        return self.flusher.building

    def make(self) -> None:
        """Have room for the frame, and all before it forced: then nothing but damage can hide it from a recovery.

        Records alone may take the reserve.
        """
        lane = self.flusher.lane
        self._or_fail(self.flusher.take_queued)
        self._force()  # first: it pads, and takes room
        ids = [one for request in self.requests for one in ids_of(request)]
        streams = [stream for request in self.requests for stream in request.streams]
        streams += [one.target.stream for one in ids]  # of their records
        extras = [row for request in self.requests for row in request.row_extras if row is not None]
        topics = [stream.topic for stream in set(streams) if stream.number == NOT_DEFINED]
        size = sum([sum(request.sizes) for request in self.requests]) + sum([one.size_bytes for one in ids])
        most = column_bytes_bound(len(streams), extras, topics) + size + MOST_JOINT_BYTES

        def share() -> int:
            return share_of_frame(len(streams), topics)

        try:
            self._once.make_room_of(most, share)
        except StoreFull:
            reserve = lane.for_records
            if reserve is None or not all([may_use_reserve(stream.topic) for stream in streams]):
                raise
            self._once.make_room_of(most, share, reserve.left_by(streams[0].topic))
        self._force()  # the end of a segment, and the beginning of the next one

    def _force(self) -> None:
        """Force all that was built. The next frame begins with a block: the footer of a recovery that cuts it, which
        begins there as well, leaves nothing of its head.
        """
        lane = self.flusher.lane
        lane.fill_block()
        if lane.under_way.forced < lane.tail:
            self._or_fail(partial(self.flusher.write_out, barrier=lane.config.durability == "os"))

    def _or_fail(self, step: Callable[[], None]) -> None:
        """Take a step that writes. Raises OSError, StorePoisoned: this lane is poisoned, or another one."""
        lane, queue = self.flusher.lane, self.flusher.queue
        try:
            step()
        except BaseException as error:
            self.flusher.fail(error)
            raise
        poison = lane.poison or queue.refusal
        if poison is not None:
            raise copy_of(poison)

    @property
    def place(self) -> JointPlace:
        """Where its frame will begin."""
        lane = self.flusher.lane
        assert lane.segment is not None and lane.segment.base is not None, "there is room"
        return JointPlace(lane.index, lane.segment.sequence, lane.tail - lane.segment.base)

    def build(self) -> None:
        place = self.place
        self._once.build_frame(self.requests, self._joint())
        assert self.place[:2] == place[:2], "the frame is where the other parts say that it is"

    def write(self) -> None:
        self._once.write()

    @property
    def changes(self) -> Sequence[Change]:
        return self._once.changes

    def tell(self) -> None:
        self._once.release()


class Rounds:
    """The thread that takes transactions over several lanes, those that wait together in one round.

    `start` has a thread do it; a simulation calls `step`.

    Invariants:
        * a request that was taken out of the queue is answered, whatever is raised;
        * nothing of a round is answered before all lanes have forced it and show it;
        * after a round has failed, its lanes are poisoned, and with them the store: no other round begins.
    """

    def __init__(
        self, flushers: Sequence[Flusher], queue: RequestQueue[Request], shown: Callable[[], Change],
        telling: Callable[[], AbstractContextManager[object]],
    ) -> None:  # fmt: skip
        """`flushers` are those of all lanes; `shown` and `telling` as for `attach_together`."""
        self.queue = queue
        self.rounds = 0  # how many there were
        self._flushers = flushers
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
        """Take some in one round; if there is no space for all of them, each by itself."""
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
        cuts = [one.cut() for one in given]
        joint: list[bytes] = []

        def column() -> bytes:
            if not joint:  # the first part is built next, and no lane goes on
                joint.append(pack_joint([part.place for part in parts]))
            return joint[0]

        parts = [
            RoundPart(self._flushers[lane], [cut[lane].request for cut in cuts if lane in cut], column)
            for lane in sorted({lane for cut in cuts for lane in cut})
        ]
        attach_together(parts, self._shown, self._telling, self._crew.do_all)
        self.rounds += 1
        for one, cut in zip(given, cuts, strict=True):
            one.offsets = np.empty(one.count, np.int64)
            for part in cut.values():
                one.offsets[part.rows] = part.request.offsets
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


class Crew:
    """Threads that make some calls side by side: a force takes its time in each lane, and not one after the other."""

    def __init__(self) -> None:
        self._hands: list[tuple[Background, SimpleQueue[Callable[[], None] | None]]] = []

    def do_all(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make all calls; when it returns, all have ended. Raises the first error of one of them."""
        over, failed = threading.Semaphore(0), list[BaseException]()

        def one(call: Callable[[], None]) -> None:
            try:
                call()
            except BaseException as error:
                failed.append(error)
            finally:
                over.release()

        hands = self._have(len(calls) - 1)
        for (_, queue), call in zip(hands, calls, strict=False):
            queue.put(partial(one, call))
        for call in calls[len(hands) :]:
            one(call)
        for _ in calls:
            over.acquire()
        if failed:
            raise failed[0]

    def _have(self, count: int) -> list[tuple[Background, SimpleQueue[Callable[[], None] | None]]]:
        """So many threads, or fewer if no more can be started."""
        with suppress(NoThread):
            while len(self._hands) < count:
                calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
                thread = Background(partial(_work, calls))
                thread.start()
                self._hands.append((thread, calls))
        return self._hands[:count]

    def close(self) -> None:
        """End the threads. It may be called again."""
        for thread, calls in self._hands:
            calls.put(None)
            thread.join()


def _work(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
