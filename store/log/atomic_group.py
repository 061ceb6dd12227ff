"""Messages that are durable all at once or not at all: the request of a transaction within one lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import StoreError
from ..format.extras import Extras
from .request import RowGroup
from .streams import Stream


class AtomicGroup(RowGroup):
    """Messages of any streams of one lane, users' and hidden ones. One frame has all of them, and is ATOMIC.

    Other requests may share the frame: none of it is answered before all of it is durable.

    Attributes:
        row_extras: the optional columns of each message.
        settle: gets the outcome before the caller does. It may be called again.
    """

    __slots__ = ("row_extras", "settle")

    def __init__(
        self,
        streams: list[Stream],
        datas: list[bytes],
        row_extras: Sequence[Extras | None],
        settle: Callable[[StoreError | None], None],
    ) -> None:
        """At least one message. The first one decides whether they may take the reserve: see `Flusher`."""
        sizes = list(map(len, datas))
        extra_bytes = sum([extras.size_bytes for extras in row_extras if extras is not None])
        super().__init__(streams, datas, sizes, sum(sizes) + extra_bytes)
        self.row_extras = row_extras
        self.settle = settle

    def answer(self, error: StoreError | None = None) -> None:
        self.settle(error)
        super().answer(error)
        self.row_extras = ()

    @property
    def is_accepted(self) -> bool:
        """After a `put` that was interrupted: whether the queue has taken it. Then it has its answer, or gets it.

        It goes from the queue to a builder, gets its offsets, and then its answer: they are asked in this order.
        """
        return self.stream.lane.queue.has(self) or len(self.offsets) > 0 or self.done()


def are_atomic(requests: Sequence[object]) -> bool:
    """Whether the frame of some requests must be ATOMIC."""
    return AtomicGroup in set(map(type, requests))
