"""The record of the calls that clients have made, with what they were answered."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Unpack

import grpc

from ..server.calls import Call, Proceed, Refusal
from ..server.codes import grpc_code_of
from ..wire import Code
from ..wire.fields import PACKAGE
from .selection import Selected, Selection, group_of, topics_of
from .watched import watched

StatusOf = Callable[[Exception], Any]


@dataclass(slots=True, eq=False)
class ClientCall:
    """A call that a client has made.

    Attributes:
        number: 0 for the first call, 1, 2 ..
        service, method, client_id: whose call, as `SendMessage`. Of `stratalog.connect` the call's name.
        request: its message; of `stratalog.connect` a dict; None for a stream of requests.
        code: what it was answered: RocketMQ's, or gRPC's for other services and for calls without an answer. None while
            it is open; of a stream of answers the first one, as soon as it is known.
        text: what the answer says beside the code.
        answers: how many messages were sent; of a call that answers once 1 at its end.
        took_ms: how long it took, by the machine's time; None while it is open.
    """

    number: int
    service: str
    method: str
    client_id: str
    request: Any
    code: Code | grpc.StatusCode | int | None = None
    text: str = ""
    answers: int = 0
    took_ms: float | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that its request names, each once."""
        return topics_of(self.request)

    @property
    def group(self) -> str:
        """The consumer group that its request names, "" for none."""
        return group_of(self.request)

    @property
    def is_open(self) -> bool:
        """Whether it has no end yet."""
        return self.took_ms is None


class CallLog:
    """The newest calls of an endpoint, the oldest first. From any thread.

    It is a sequence of `ClientCall`: `len(endpoint.calls)`, `endpoint.calls[-1]`, `for call in endpoint.calls`.
    """

    def __init__(self, *, most_calls: int = 1000, most_request_bytes: int = 16 << 20) -> None:
        """
        Args:
            most_calls: how many are kept; 0 keeps none, and costs the calls nothing.
            most_request_bytes: of the requests that are kept; before it is more, the oldest calls go.
        """
        self.status_of: StatusOf | None = None  # how the service answers errors; the endpoint sets it
        self._most_calls = most_calls
        self._most_bytes = most_request_bytes
        self._kept: deque[tuple[ClientCall, int]] = deque()
        self._bytes = 0
        self._made = 0
        self._changed = threading.Condition()

    # -- for tests ----------------------------------------------------------------------------------------

    def of(self, **selected: Unpack[Selected]) -> list[ClientCall]:
        """The calls that fit: by method, topic, group, client_id, and where(call)."""
        selection = Selection(**selected)
        return [call for call in self if _fits(selection, call)]

    def clients(self) -> list[str]:
        """The ids of the clients that have called, in the order of their first calls."""
        return list(dict.fromkeys(call.client_id for call in self if call.client_id))

    def wait(self, count: int = 1, *, timeout_s: float = 10.0, **selected: Unpack[Selected]) -> list[ClientCall]:
        """Wait, in a thread, until `count` calls that fit have ended; these. Raises TimeoutError."""
        selection = Selection(**selected)
        found: list[ClientCall] = []

        def has_come() -> bool:
            found[:] = [call for call, _ in self._kept if not call.is_open and _fits(selection, call)]
            return len(found) >= count

        with self._changed:
            if not self._changed.wait_for(has_come, timeout_s):
                raise TimeoutError(f"{len(found)} calls of {count} have come in {timeout_s} s: {selection}")
        return found

    def wait_for_change(self, timeout_s: float) -> None:
        """Wait until some call ends, at most so long."""
        with self._changed:
            self._changed.wait(timeout_s)

    def clear(self) -> None:
        """Forget all calls."""
        with self._changed:
            self._kept.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[ClientCall]:
        with self._changed:
            return iter([call for call, _ in self._kept])

    def __getitem__(self, at: int) -> ClientCall:
        return self._kept[at][0]

    # -- for the endpoint ---------------------------------------------------------------------------------

    async def around(self, call: Call, proceed: Proceed) -> Any:
        """The interceptor."""
        if not self._most_calls:
            return await proceed()
        made, began_s = self._begin(call), time.perf_counter()
        try:
            answer = await proceed()
            if answer is not None:
                made.answers += 1
                _note(made, answer)
            elif made.code is None:
                made.code = grpc.StatusCode.OK
        except asyncio.CancelledError:
            made.code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:
            self._note_error(made, call, error)
            raise
        finally:
            made.took_ms = (time.perf_counter() - began_s) * 1000
            with self._changed:
                self._changed.notify_all()
        return answer

    def _begin(self, call: Call) -> ClientCall:
        request = call.request
        made = ClientCall(self._made, call.service, call.method, call.client_id, request)
        if request is None or call.method == "ReceiveMessage":

            def gate(message: Any) -> None:
                made.answers += 1
                if made.code is None:
                    _note(made, message)

            watched(call).gates.append(gate)
        with self._changed:
            self._made += 1
            self._kept.append((made, call.size_bytes))
            self._bytes += call.size_bytes
            while self._kept and (len(self._kept) > self._most_calls or self._bytes > self._most_bytes):
                self._bytes -= self._kept.popleft()[1]
        return made

    def _note_error(self, made: ClientCall, call: Call, error: Exception) -> None:
        is_rocketmq = _is_rocketmq(call.service)
        if isinstance(error, grpc.aio.AbortError):
            made.code, made.text = _code_of(call.context), str(call.context.details() or "")
        elif is_rocketmq and self.status_of is not None and _is_told(error):
            status = self.status_of(error)
            made.code, made.text = _named(status.code), status.message
        elif isinstance(error, Refusal) and error.status is not None:
            made.code, made.text = _named(error.status), error.text
        elif is_rocketmq:
            made.code, made.text = Code.INTERNAL_SERVER_ERROR, repr(error)
        else:
            made.code, made.text = grpc_code_of(error) if _is_told(error) else (grpc.StatusCode.INTERNAL, repr(error))


def _fits(selection: Selection, call: ClientCall) -> bool:
    fits: Callable[[Any], bool] = selection.fits  # a record has what a call has of what is asked
    return fits(call)


def _is_rocketmq(service: str) -> bool:
    """Whether its answers have a status: `MessagingService` and `Admin`."""
    return service.startswith(f"{PACKAGE}.")


def _is_told(error: Exception) -> bool:
    """Whether an error has a code of its own; others are logged where they are answered."""
    return type(error).__module__.partition(".")[0] == "stratalog"


def _note(made: ClientCall, answer: Any) -> None:
    status = getattr(answer, "status", None)
    if getattr(status, "code", 0):
        assert status is not None
        made.code, made.text = _named(status.code), status.message
    elif not _is_rocketmq(made.service):
        header = getattr(answer, "header", None)
        failed = isinstance(header, dict) and "error" in header
        made.code = grpc.StatusCode.UNKNOWN if failed else grpc.StatusCode.OK


def _named(code: int) -> Code | int:
    try:
        return Code(code)
    except ValueError:
        return code


def _code_of(context: Any) -> grpc.StatusCode:
    number = context.code()
    found = [code for code in grpc.StatusCode if code is number or code.value[0] == number]
    return found[0] if found else grpc.StatusCode.UNKNOWN
