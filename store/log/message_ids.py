"""Message ids on their way to the log: from an append that was the first with them to their durable record.

A request of many messages has its ids in its extras, a `PendingIds` for each topic; one message of a coroutine has a
`PendingId` in their place. A message of `submit` is its own (`IdRequest`): nothing else is made for it. Its flusher
looks whether its id is durable already (`take_repeats`); for all others the call has done so. The frame that they get
into has a record of them: see `frame_ids`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from ..errors import StoreError
from ..format.extras import Extras, ExtrasWithIds
from ..format.layout import MAX_FRAME_MESSAGES
from ..format.message_ids import ID_BYTES, QueueIds
from .queue import RequestQueue
from .request import Barrier, Request
from .streams import Stream
from .ticket import SubmitRequest

if TYPE_CHECKING:
    from .frame_ids import FrameIds

MOST_WITH_IDS = MAX_FRAME_MESSAGES // 2  # messages of a frame: each may have a record of ids beside it
RECORD_COST_BYTES = 64  # of a record beside its ids, at the most, with its columns in the frame


class IdTable(Protocol):
    """What ids on their way need of the table of their topic; `topics.id_window` is one."""

    def find_durable(self, digests: Sequence[bytes], now_ms: int) -> Sequence[int] | None:
        """The offset of each id whose message is durable, and -1 for each other one; None if all are others."""

    def stamp(self, now_ms: int) -> int:
        """The stamp of a frame's record, larger than those of all before: an opening puts the ids in this order, also
        if the clock was set back, and of several lanes.
        """

    def settle(self, ids: FrameIds) -> None:
        """A frame with ids is durable."""

    def fail(self, ids: PendingIds, error: StoreError | None) -> None:
        """Ids did not get to the log; with None, nothing of them was ever queued. Again is fine."""

    def free(self, ids: PendingIds | IdRequest) -> None:
        """Forget those of ids that are on their way with these. Again is fine."""


class IdTarget:
    """Where the ids of one topic go, of messages in one lane: the topic's table, and the stream of their records.

    It is also the extras of each `IdRequest` that has no columns: an id costs what another one does.
    """

    __slots__ = ("stream", "table")
    due_ms = key = properties = None
    ids = ()
    size_bytes = ID_BYTES + RECORD_COST_BYTES

    def __init__(self, table: IdTable, stream: Stream) -> None:
        self.table = table
        self.stream = stream


class PendingIds:
    """The ids of one request that belong to one topic.

    Invariant: it has exactly one outcome: `IdTable.settle`, or `IdTable.fail`.

    Attributes:
        target: of the topic.
        digests, queue_ids: of each id and its message.
        rows: the number of its message in the request.
        size_bytes: what they add to a frame, at the most.
        frame: that has them; None before.
        is_over: they have their outcome.
        error: the outcome: None if they are durable, or if nothing of them was ever queued.
        promise: answered with the outcome; made by the first append that waits for it, under the table's lock.
        queue: that its request is put into; None for the lane's.
    """

    # As long as they are not set.
    frame: FrameIds | None = None
    is_over = False
    error: StoreError | None = None
    promise: IdPromise | None = None
    queue: RequestQueue[Request] | None = None

    def __init__(self, target: IdTarget, digests: Sequence[bytes], queue_ids: QueueIds, rows: Sequence[int]) -> None:
        self.target = target
        self.digests = digests
        self.queue_ids = queue_ids
        self.rows = rows

    @property
    def size_bytes(self) -> int:
        """What they add to a frame, at the most."""
        return ID_BYTES * len(self.digests) + RECORD_COST_BYTES

    def fail(self, error: StoreError | None) -> None:
        """See `IdTable.fail`."""
        self.target.table.fail(self, error)

    def take_back(self, error: BaseException | None) -> None:
        """The append has raised: unless a queue has them, they fail, and others with these ids try by themselves.

        Args:
            error: what was raised. A queue that raises a StoreError has not taken them. After an interrupt, and with
                None, it is searched: a request goes from the queue to a builder, and into a frame, and they are asked
                in this order.

        It may be called again with the same error. Callers do so, as an interrupt may come before anything was done.
        """
        if isinstance(error, StoreError):
            self.fail(None)
            return
        requests = (self.queue or self.target.stream.lane.queue).requests
        is_queued = any(self in request.ids for request in requests)
        if not (is_queued or self.frame is not None):
            self.fail(None)

    def offset_of(self, digest: bytes) -> int | None:
        """The offset of an id's message, once they have their outcome; None if it did not get to the log."""
        return None if self.frame is None or not self.frame.is_durable else self.frame.offset_of(digest)


class PendingId(PendingIds):
    """The id of a request with one message. It is also the request's extras, if the message has no column of them."""

    due_ms = key = properties = None
    rows = (0,)
    size_bytes = ID_BYTES + RECORD_COST_BYTES

    def __init__(self, target: IdTarget, digest: bytes, queue_id: int) -> None:
        self.target = target
        self.digest = digest
        self.queue_id = queue_id

    @property
    def digests(self) -> Sequence[bytes]:  # type: ignore[override]  # read only: nobody sets it
        """That of the one id."""
        return (self.digest,)

    @property
    def queue_ids(self) -> Sequence[int]:  # type: ignore[override]  # as above
        """That of the one message."""
        return (self.queue_id,)

    @property
    def ids(self) -> Sequence[PendingIds]:
        """Those of the request."""
        return (self,)

    def beside(self, extras: Extras | None) -> Extras:
        """The extras of a request with this id and these columns."""
        # It has the attributes of `Extras`.
        return self if extras is None else ExtrasWithIds.of(extras, (self,))  # type: ignore[return-value]


class IdRequest(SubmitRequest):
    """One message of `submit` with an id. It is also what its topic's table has of the id until it is durable.

    An append with the same id waits for this one's answer. If nothing of it was ever queued, as its thread found no
    room in the publish buffer, nobody has its ticket, and it is answered without an offset.
    """

    __slots__ = ("_is_repeat", "digest", "target")
    rows = (0,)

    def __init__(self, stream: Stream, data: bytes, extras: Extras | None, target: IdTarget, digest: bytes) -> None:
        # Written out, as each message comes here: a call saved shows.
        self.stream = stream
        self.data = data
        self.size_bytes = len(data)
        # A target has the attributes of `Extras`.
        self.extras = target if extras is None else ExtrasWithIds.of(extras, (self,))  # type: ignore[assignment]
        self.offset = -1
        self._done = False
        self._error = None
        self._waiters = None
        self._is_repeat = False
        self.target = target
        self.digest = digest

    @property
    def is_repeat(self) -> bool:
        return self._is_repeat

    def be_repeat(self, offset: int) -> None:
        """The topic has the id already, with this offset: nothing is stored, and the answer is the next step."""
        self.target.table.free(self)
        self.offset, self._is_repeat = offset, True

    @property
    def ids(self) -> Sequence[IdRequest]:
        """Itself: see `Request.ids`."""
        return (self,)

    @property
    def digests(self) -> Sequence[bytes]:
        """That of the one id."""
        return (self.digest,)

    @property
    def queue_ids(self) -> Sequence[int]:
        """That of the one message."""
        return (self.stream.queue_id,)

    def fail(self, error: StoreError | None) -> None:
        """Have the id free again: see `IdTable.free`. Whoever waits for it hears the request's answer."""
        self.target.table.free(self)  # first: whoever waits looks at the table
        if error is None and self.offset < 0 and self._error is None:
            self.answer()  # perhaps again: an interrupt may have left somebody who waits

    def take_back(self, error: BaseException) -> None:
        """The append has raised: see `PendingIds.take_back`."""
        is_in = not isinstance(error, StoreError) and (
            self in self.stream.lane.queue.requests or self.offset >= 0 or self._error is not None
        )
        if not is_in:
            self.fail(None)

    def offset_of(self, _: bytes) -> int | None:
        """The offset of the message; None if it did not get to the log, or has no answer yet."""
        return self.offset if self._done and self._error is None and self.offset >= 0 else None

    def follow(self, call: Callable[[], object]) -> None:
        """As `then`, and also in a forked child."""
        self.then(_Following(call))

    def forget_waiters(self) -> None:
        calls = [one for one in self._waiters or () if isinstance(one, list)]
        self._waiters = [one for one in calls if one and isinstance(one[0], _Following)]


class _Following(partial[object]):
    """The call of an append with the same id."""


class IdPromise(Barrier):
    """Answered when ids have their outcome. Two threads may answer it, with one outcome: each waiter hears it once."""

    __slots__ = ()

    def follow(self, call: Callable[[], object]) -> None:
        """As `then`."""
        self.then(call)

    def answer(self, error: StoreError | None = None) -> None:
        with suppress(RuntimeError):  # the lock of a thread that the other one has woken
            super().answer(error)


OnTheWay = PendingIds | IdRequest


def ids_of(request: Request) -> Sequence[OnTheWay]:
    """The message ids that a request has on their way, by topic."""
    return cast("Sequence[OnTheWay]", request.ids)
