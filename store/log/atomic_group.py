"""Messages that are durable all at once or not at all: the request of a transaction within one lane."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import StoreError, copy_of
from ..format.extras import Extras
from .request import Request, RowGroup, Sleeper, fail_ids, pass_on
from .streams import Stream

NO_OFFSETS = np.empty(0, np.int64)  # of a request that is in no frame yet


class AtomicGroup(RowGroup):
    """Messages of any streams of one lane, users' and hidden ones. One frame has all of them, and is ATOMIC.

    Other requests may share the frame: none of it is answered before all of it is durable.

    Attributes:
        row_extras: the optional columns of each message; empty if none has any.
        settle: gets the outcome before the caller does, if it is not None. It may be called again.
        lock, chain, abandoned: of a thread that sleeps until the answer, see `BlockingRequest`.
    """

    __slots__ = ("abandoned", "chain", "is_chained", "lock", "row_extras", "settle")
    lock: threading.Lock

    def __init__(
        self,
        streams: list[Stream],
        datas: list[bytes],
        row_extras: Sequence[Extras | None],
        settle: Callable[[StoreError | None], None] | None,
    ) -> None:
        """At least one message. The first one decides whether they may take the reserve: see `Flusher`."""
        # All slots are set here: through the classes above it takes four calls.
        self.stream, self.data, self.extras, self.offset = streams[0], b"", None, -1
        self._done, self._error, self._waiters = False, None, None
        self.count, self.offsets = len(streams), NO_OFFSETS
        self.streams, self.datas = streams, datas
        self.sizes = sizes = list(map(len, datas))
        self.size_bytes = sum(sizes)
        if row_extras:
            self.size_bytes += sum([extras.size_bytes for extras in row_extras if extras is not None])
        self.row_extras = row_extras
        self.settle = settle
        self.is_chained = self.abandoned = False
        self.chain: list[Sleeper] | None = None

    def put_and_sleep(self) -> None:
        """Hand it over, and return when it is durable. Raises as an append does."""
        self.lock = threading.Lock()
        self.lock.acquire()
        self.is_chained = True
        try:
            self.queue.put(self)
            self.lock.acquire()  # until the answer
            if self.chain:
                pass_on(self.chain)
        except BaseException:  # passed on; an interrupted thread leaves the chain
            self.abandoned = True
            if self.chain is not None:
                pass_on(self.chain)
            raise
        if self._error is not None:
            raise copy_of(self._error)

    def answer(self, error: StoreError | None = None) -> None:
        self._error = error  # first: whatever settling raises, a thread that is woken along the chain hears of it
        settle = self.settle
        if settle is not None:
            settle(error)
        if error is not None:
            fail_ids([self], error)
        self.streams, self.datas, self.sizes, self.row_extras = [], [], [], ()  # the ring has it all now
        self.settle = None  # what settles it may have it: no cycle is left
        Request.answer(self, error)  # written out so far: through the class between them it takes a call more

    @property
    def is_accepted(self) -> bool:
        """After a `put` that was interrupted: whether the queue has taken it. Then it has its answer, or gets it.

        It goes from the queue to a builder, gets its offsets, and then its answer: they are asked in this order.
        """
        return self in self.queue.requests or len(self.offsets) > 0 or self.done()


def are_atomic(requests: Sequence[Request]) -> bool:
    """Whether the frame of some requests must be ATOMIC."""
    return AtomicGroup in set(map(type, requests))
