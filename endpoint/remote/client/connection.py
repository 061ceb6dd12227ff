"""One connection to a server: a gRPC stream, the calls under way on it, and the thread that reads answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import grpc

from stratalog import InvalidMessage, MessageTooLarge, StoreError

from ..columns import Columns, numbers_in
from ..failures import failure_from_json, failure_to_json
from ..frames import (
    MOST_FRAME_BYTES,
    MOST_VALUES,
    BrokenFrame,
    Buffer,
    Frame,
    Incoming,
    Outgoing,
    pack,
    values_of,
)
from ..messages import MOST_ROWS, Given, given_out
from .promises import Settled, Wakes, wake_all

MOST_ROW_BYTES = 1 << 20  # of their bytes, if there are several
MOST_CHARACTER_BYTES = 12  # of JSON
FRAME_BYTES = 4096  # of a frame of one message, beside what its size says
MOST_UNANSWERED_BYTES = 64 << 20  # of messages that were submitted: a thread that submits more waits
MOST_ANSWER_BYTES = 1 << 32
LAST_NUMBER = (1 << 32) - 2
HELLO = LAST_NUMBER + 1
FOR_GOOD = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED)

Convert = Callable[[dict[str, Any], list[memoryview]], Any]
Outcome = tuple[Any, StoreError | None]  # a value, or an error
Streams = Callable[[Iterator[bytes]], Any]  # begins the gRPC stream: an iterator of messages, with `cancel`


class Asked(NamedTuple):
    """A call to send, and what becomes of its answer.

    Attributes:
        header, buffers: its frame.
        settled: what is given the answer.
        convert: makes the answer's value of its frame.
        appends: it appends: `drain` waits for it.
        unwanted: called with the value, if the caller has gone meanwhile.
        tries: how often it may be sent again, if the connection is lost: 0 if nobody knows what came of it.
    """

    header: dict[str, Any]
    buffers: Sequence[Buffer]
    settled: Settled
    convert: Convert
    appends: bool = False
    unwanted: Callable[[Any], None] | None = None
    tries: int = 0


class Submitted:
    """Messages that go out in one frame, each with its ticket. It takes more until it is on its way."""

    __slots__ = ("messages", "settled", "size_bytes", "tries")

    def __init__(self) -> None:
        self.messages: list[Given] = []
        self.settled: list[Settled] = []
        self.size_bytes = 0
        self.tries: list[int] = []

    def has_room(self, size_bytes: int) -> bool:
        """Whether one more may be added, of so many bytes. A large one goes alone."""
        return not self.messages or (len(self.messages) < MOST_ROWS and self.size_bytes + size_bytes <= MOST_ROW_BYTES)


class Lost(Protocol):
    """Is told that a connection has ended."""

    def __call__(self, why: str, *, answered: bool, gave_up: bool, asked: list[Asked | Submitted]) -> None:
        """`asked` is what had no answer. Unless the server had answered at all, nothing of it was sent; with `gave_up`
        it has not answered in time, or refuses for good.
        """


class Connection:
    """Any number of threads may use it.

    Invariants: no call goes out before the server has answered; frames go out in the order of the calls; what was
    asked is settled once, by its answer or by `lost`; after the end nothing is taken any more.
    """

    def __init__(self, streams: Streams, lost: Lost, timeout_s: float) -> None:
        """`timeout_s` is how long the server has for its first answer."""
        self._lock = threading.Lock()
        self._to_send = threading.Condition(self._lock)
        self._has_changed = threading.Condition(self._lock)  # an answer has come, or the end
        self._waiting: list[tuple[int, Asked | Submitted]] = []
        self._pending: dict[int, Asked | Submitted] = {}
        self._gone: set[int] = set()  # calls whose callers have gone
        self._last = 0
        self._held_bytes = 0
        self._ended = False  # nothing is taken any more
        self._why = ""
        self._gave_up = False
        self._lost = lost
        self.answered = threading.Event()
        self._watch = threading.Timer(timeout_s, self._give_up, [timeout_s])
        self._watch.daemon = True
        self._stream = streams(self._requests())
        self._thread = threading.Thread(target=self._read, name="stratalog-connection", daemon=True)
        self._watch.start()
        self._thread.start()

    # -- asking ---------------------------------------------------------------------------------------

    def ask(self, asked: Asked) -> int | None:
        """Send a call; its number, or None if the connection has ended."""
        with self._lock:
            if self._ended:
                return None
            number = self._add(asked)
        return number

    def _add(self, asked: Asked | Submitted) -> int:
        number = self._last % LAST_NUMBER + 1
        while number in self._pending:
            number = number % LAST_NUMBER + 1
        self._last = number
        self._pending[number] = asked
        self._waiting.append((number, asked))
        self._to_send.notify()
        return number

    def submit(self, given: Given, settled: Settled, *, tries: int, waits: bool) -> bool:
        """Send a message; False if the connection has ended. With `waits` it waits while too many are unanswered.

        One that is too large for a frame has its error at once: others of the frame must not suffer by it.
        """
        characters = len(given.topic) + len(given.message_id or "")
        size = len(given.data) + len(given.key or b"") + len(given.properties or b"") + characters
        packed = size + (MOST_CHARACTER_BYTES - 1) * characters
        if packed > MOST_FRAME_BYTES - FRAME_BYTES:
            wakes: Wakes = {}
            most = MOST_FRAME_BYTES - FRAME_BYTES
            error = f"the message has {packed} bytes; over a connection it has at most {most}"
            settled.settle(None, MessageTooLarge(error), wakes)
            wake_all(wakes)
            return True
        with self._lock:
            while waits and self._held_bytes > MOST_UNANSWERED_BYTES and not self._ended:
                self._has_changed.wait()
            if self._ended:
                return False
            last = self._waiting[-1][1] if self._waiting else None
            if not isinstance(last, Submitted) or not last.has_room(size):
                last = Submitted()
                self._add(last)
            last.messages.append(given)
            last.settled.append(settled)
            last.tries.append(tries)
            last.size_bytes += size
            self._held_bytes += size
        return True

    def cancel(self, number: int) -> bool:
        """Its caller has gone; False if its answer is there already. The server ends the call."""
        with self._lock:
            if self._ended or number not in self._pending:
                return False
            self._gone.add(number)
            self._waiting.append((0, Asked({"call": "cancel", "of": number}, (), NOBODY, nothing_of)))
            self._to_send.notify()
        return True

    def drain(self) -> bool:
        """Wait until no append is under way; False if it has ended meanwhile."""
        with self._lock:
            while any(isinstance(one, Submitted) or one.appends for one in self._pending.values()):
                self._has_changed.wait()
            return not self._ended

    @property
    def ended(self) -> bool:
        """Whether nothing is taken any more."""
        return self._ended

    def end(self) -> None:
        """End it; what has no answer has none."""
        with self._lock:
            self._why = self._why or "it was closed"
            self._ended = True
            self._to_send.notify_all()
            self._has_changed.notify_all()
        self._stream.cancel()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _give_up(self, timeout_s: float) -> None:
        if not self.answered.is_set():
            self._gave_up = True
            self._why = f"no answer within {timeout_s:g} s"
            self._stream.cancel()

    # -- gRPC's threads ---------------------------------------------------------------------------------

    def _requests(self) -> Iterator[bytes]:
        """The messages to send, as gRPC asks for them: no call before the server has answered."""
        outgoing = Outgoing(in_turn=False)
        outgoing.add(HELLO, pack({"call": "hello"}))
        yield outgoing.take()
        while True:
            with self._lock:
                while not (self._ended or (self.answered.is_set() and (self._waiting or outgoing))):
                    self._to_send.wait()
                if self._ended:
                    return
                waiting, self._waiting = self._waiting, []
            self._pack(waiting, outgoing)
            del waiting  # it would keep the newest call, with all that this names, until the next one
            if outgoing:
                yield outgoing.take()

    def _pack(self, waiting: Sequence[tuple[int, Asked | Submitted]], outgoing: Outgoing) -> None:
        for number, asked in waiting:
            try:
                header, buffers = _frame_of(asked)
                parts = pack(header, buffers)
                if values_of(parts[0]) > MOST_VALUES:
                    raise ValueError(f"its header has more than {MOST_VALUES} values: make two calls of it")
                if sum(part.nbytes for part in parts) > MOST_FRAME_BYTES:
                    raise ValueError(f"it has more than {MOST_FRAME_BYTES} bytes")
                outgoing.add(number, parts)
            except Exception as error:  # what cannot be packed is this call's fault alone
                self._refuse(number, error)

    def _refuse(self, number: int, error: Exception) -> None:
        wakes: Wakes = {}
        told = {"error": failure_to_json(InvalidMessage(f"the call cannot be sent: {error}"))}
        self._settle(Frame(number, told, [], 0), wakes)
        wake_all(wakes)

    def _read(self) -> None:
        """Take the answers, until the stream ends."""
        incoming = Incoming(MOST_ANSWER_BYTES)
        why = "the server has ended it"
        try:
            for message in self._stream:
                self._take(message, incoming)
                del message
        except grpc.RpcError as error:
            why = _reason_of(error)
            self._gave_up = self._gave_up or getattr(error, "code", lambda: None)() in FOR_GOOD
        except BrokenFrame as error:
            why = f"the server has sent what is no answer: {error}"
            self._stream.cancel()
        except Exception as error:  # whatever it is: all that wait hear of it
            why = f"its answers cannot be taken: {error!r}"
            self._stream.cancel()
        finally:
            self._finish(why)

    def _take(self, message: bytes, incoming: Incoming) -> None:
        """Settle what a message answers. Raises BrokenFrame."""
        wakes: Wakes = {}
        try:
            for frame in incoming.feed(message):
                self._settle(frame, wakes)
        finally:  # good answers before bad ones count
            wake_all(wakes)

    def _settle(self, frame: Frame, wakes: Wakes) -> None:
        with self._lock:
            asked = self._pending.pop(frame.number, None)
            is_gone = frame.number in self._gone
            self._gone.discard(frame.number)
            if isinstance(asked, Submitted):
                self._held_bytes -= asked.size_bytes
            self._has_changed.notify_all()
            if frame.number == HELLO:
                self.answered.set()
                self._watch.cancel()
                self._to_send.notify_all()
        if frame.number == HELLO:
            return
        if isinstance(asked, Submitted):
            for one, (value, error) in zip(asked.settled, _outcomes_of(asked, frame), strict=True):
                one.settle(value, error, wakes)
        elif asked is not None:
            value, error = _outcome_of(asked, frame)
            if is_gone and error is None and asked.unwanted is not None and "cancelled" not in frame.header:
                asked.unwanted(value)
            else:
                asked.settled.settle(value, error, wakes)

    def _finish(self, why: str) -> None:
        self._watch.cancel()
        with self._lock:
            self._ended = True
            asked = list(self._pending.values())
            self._pending.clear()
            self._waiting.clear()
            self._to_send.notify_all()
            self._has_changed.notify_all()
        self._lost(self._why or why, answered=self.answered.is_set(), gave_up=self._gave_up, asked=asked)


class _Nobody:
    """Nobody waits for the answer."""

    def settle(self, value: Any, error: StoreError | None, wakes: Wakes) -> None:
        """See `Settled`."""


NOBODY = _Nobody()


def nothing_of(header: dict[str, Any], buffers: list[memoryview]) -> None:
    """The value of an answer without one."""


def _frame_of(asked: Asked | Submitted) -> Columns:
    if isinstance(asked, Asked):
        return Columns(asked.header, list(asked.buffers))
    header, buffers = given_out(asked.messages)
    return Columns({"call": "submit", **header}, buffers)


def _outcome_of(asked: Asked, frame: Frame) -> Outcome:
    """The value or the error of a call. Whatever a server sends, the call has one of them."""
    try:
        if "error" in frame.header:
            return None, failure_from_json(frame.header["error"])
        if "cancelled" in frame.header:
            return None, StoreError("the call was cancelled")
        return asked.convert(frame.header, frame.buffers), None
    except StoreError as error:
        return None, error
    except Exception as error:
        return None, _unreadable(error)


def _outcomes_of(submitted: Submitted, frame: Frame) -> Sequence[Outcome]:
    """The offset or the error of each message of a frame. Whatever a server sends, each has one of them."""
    count = len(submitted.settled)
    try:
        if "error" in frame.header or not frame.buffers:
            return [(None, failure_from_json(frame.header.get("error", {})))] * count
        errors = {row: failure_from_json(given) for row, given in frame.header.get("errors", ())}
        repeats = set(frame.header.get("repeats", ()))
        offsets = numbers_in(frame.buffers[0]).tolist()
        if len(offsets) != count:
            raise ValueError(f"{len(offsets)} offsets for {count} messages")
    except Exception as error:
        return [(None, _unreadable(error))] * count
    if not errors and not repeats:
        return [((offset, False), None) for offset in offsets]
    return [((offset, row in repeats), errors.get(row)) for row, offset in enumerate(offsets)]


def _unreadable(error: Exception) -> StoreError:
    return StoreError(f"the server's answer cannot be read: {error!r}")


def _reason_of(error: grpc.RpcError) -> str:
    """What gRPC says of the end of a stream, in a line."""
    code = getattr(error, "code", lambda: None)()
    details = getattr(error, "details", lambda: None)()
    return f"{getattr(code, 'name', code)}: {details}"
