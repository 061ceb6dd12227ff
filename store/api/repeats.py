"""Tickets of appends whose message id another append has had before them."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import StoreError
from ..format.extras import Extras
from ..log.listeners import Listeners
from ..log.message_ids import OnTheWay, PendingId
from ..log.request import NO_STREAM
from ..log.streams import Stream
from ..log.ticket import SubmitRequest
from ..topics.id_window import IdWindow

# Makes ids on their way for a message that is about to be stored after all, with its stream. Raises StoreError.
Prepare = Callable[[], tuple[Stream, PendingId]]


class RepeatTicket(SubmitRequest):
    """The ticket of a message whose id the topic knows. It follows the append that had the id first.

    If nothing of that one was ever queued, as its thread found no room in the publish buffer, then this one is the
    first: it goes to the queue, and waits in line there without a limit.
    """

    __slots__ = ("_called_by", "_digest", "_is_repeat", "_prepare", "_window")

    def __init__(
        self, window: IdWindow, digest: bytes, data: bytes, extras: Extras | None, prepare: Prepare,
        listeners: Listeners,
    ) -> None:  # fmt: skip
        super().__init__(NO_STREAM, data, len(data), extras)
        self._called_by = listeners
        self._window = window
        self._digest = digest
        self._prepare = prepare
        self._is_repeat = True

    @property
    def is_repeat(self) -> bool:
        return self._is_repeat

    def follow(self, found: OnTheWay | int) -> None:
        """Get the answer of another append: now, or with its outcome."""
        if isinstance(found, int):
            self._tell(found)
            return
        promise = self._window.promise_of(found)
        if promise is None:
            self._take(found, None)
        else:
            promise.follow(lambda: self._take(found, promise.exception()))

    def _take(self, ids: OnTheWay, error: StoreError | None) -> None:
        """The other append has its outcome. An interrupt of its thread is passed on, once this message is under way."""
        interrupt: BaseException | None = None
        while not self._done:
            try:
                self._take_in(ids, error)
                break
            except Exception:
                raise
            except BaseException as raised:
                interrupt = interrupt or raised
                if not self._is_repeat:
                    break  # a queue has it
        if interrupt is not None:
            raise interrupt

    def _take_in(self, ids: OnTheWay, error: StoreError | None) -> None:
        offset = ids.offset_of(self._digest)
        if offset is not None:
            self._tell(offset)
        elif error is not None:
            self.answer(error)
        else:
            self._append()

    def _tell(self, offset: int) -> None:
        self.offset = offset
        self.answer()

    def _append(self) -> None:
        """Nothing of the other one was ever queued."""
        try:
            stream, ids = self._prepare()
            try:
                found = self._window.admit(self._digest, ids)
                if found is None:
                    self.stream, self.extras = stream, ids.beside(self.extras)
                    self._is_repeat = False
                    stream.lane.queue.put(self, wait=False)
            except BaseException as error:
                try:
                    ids.take_back(error)
                finally:
                    ids.take_back(error)
                    self._is_repeat = ids.is_over
                raise
            if found is not None:
                self.follow(found)
        except StoreError as error:
            self.answer(error)

    def answer(self, error: StoreError | None = None) -> None:
        super().answer(error)
        self._prepare = _is_over  # what it holds is the caller's

    @property
    def _listeners(self) -> Listeners:
        return self._called_by

    def __repr__(self) -> str:
        outcome = "failed" if self._error is not None else f"offset {self.offset}" if self._done else "not durable yet"
        return f"<Ticket of a repeated message id: {outcome}>"


def _is_over() -> tuple[Stream, PendingId]:
    raise AssertionError("it has its answer")
