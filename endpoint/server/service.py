"""A service as the server sees it, and its calls led through the interceptors.

Every call of every service runs in `Calls`: it counts them, parses requests, keeps the bytes of requests under way
within the limit, passes the interceptors, and makes an answer of every error. So no error ends a handler without one.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any

import grpc

from .calls import Around, Call, Refusal, chained
from .codes import grpc_code_of
from .request_bytes import RequestBytes

log = logging.getLogger("stratalog.endpoint")
ErrorAnswer = Callable[[Call, Exception], Any]
STOPS = "the endpoint stops: call again when it is back"


class Service(grpc.GenericRpcHandler):
    """The methods of one service, by name.

    methods: what `grpc.unary_unary_rpc_method_handler` and its sisters make of `async def` functions.
    error_answer: makes an answer in the service's own words of an error that came out of a method or an interceptor;
        None leaves it to gRPC's codes. For calls that answer with a stream it is the last message of it.
    waits: methods that only wait for something: a stop of the endpoint ends them at once; others have the grace.
    counts: methods that count the bytes of their streams' messages themselves, as they keep some of them.
    """

    def __init__(
        self,
        name: str,
        methods: Mapping[str, grpc.RpcMethodHandler[Any, Any]],
        *,
        error_answer: ErrorAnswer | None = None,
        waits: Collection[str] = (),
        counts: Collection[str] = (),
    ) -> None:
        self.name = name
        self.methods = dict(methods)
        self.error_answer = error_answer
        self.waits = frozenset(waits)
        self.counts = frozenset(counts)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler of a method, None if the service has no such method."""
        service, _, method = handler_call_details.method.lstrip("/").partition("/")
        return self.methods.get(method) if service == self.name else None


class Calls(grpc.GenericRpcHandler):
    """All services of a server as one handler."""

    def __init__(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        interceptors: Sequence[Around],
        requests: RequestBytes,
    ) -> None:
        self.stopping = asyncio.Event()
        self.counts: Counter[str] = Counter()  # calls by method, since the start
        self.failed = 0  # calls that ended with an error
        self.requests = requests
        self._handlers = list(handlers)
        self._around = chained(interceptors)
        self._known: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self._waiting: set[asyncio.Task[Any]] = set()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler of a method, led through the interceptors; None if no service has it."""
        path = handler_call_details.method
        known = self._known.get(path)
        if known is None:
            for one in self._handlers:
                handler = one.service(handler_call_details)
                if handler is not None:
                    known = self._known[path] = self._led(one, path, handler)
                    break
        return known

    @property
    def request_bytes(self) -> int:
        """Of requests under way."""
        return self.requests.count

    def end_waiting(self) -> None:
        """End the calls that only wait: the endpoint stops."""
        self.stopping.set()
        for task in list(self._waiting):
            task.cancel()

    def _led(
        self, owner: grpc.GenericRpcHandler, path: str, handler: grpc.RpcMethodHandler[Any, Any]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        service, _, method = path.lstrip("/").partition("/")
        led = _LedMethod(self, owner, service, method, handler)
        names: dict[tuple[bool, bool], tuple[Any, Any]] = {
            (False, False): (led.one_to_one, grpc.unary_unary_rpc_method_handler),
            (False, True): (led.one_to_many, grpc.unary_stream_rpc_method_handler),
            (True, False): (led.many_to_one, grpc.stream_unary_rpc_method_handler),
            (True, True): (led.many_to_many, grpc.stream_stream_rpc_method_handler),
        }
        function, make = names[bool(handler.request_streaming), bool(handler.response_streaming)]
        made: grpc.RpcMethodHandler[Any, Any] = make(
            function, request_deserializer=None, response_serializer=handler.response_serializer
        )
        return made


class _LedMethod:
    """One method: the same steps around each of its calls."""

    def __init__(
        self,
        calls: Calls,
        owner: grpc.GenericRpcHandler,
        service: str,
        method: str,
        handler: grpc.RpcMethodHandler[Any, Any],
    ) -> None:
        self._calls = calls
        self._service = service
        self._method = method
        self._parse: Callable[[bytes], Any] = handler.request_deserializer or bytes
        self._error_answer: ErrorAnswer | None = getattr(owner, "error_answer", None)
        self._waits = method in getattr(owner, "waits", ())
        self._counts = method in getattr(owner, "counts", ())
        self._function: Any = (
            handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        )
        self._gives = inspect.isasyncgenfunction(self._function)

    async def one_to_one(self, data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        return await self._answered(data, context, None)

    async def many_to_one(self, data: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        return await self._answered(b"", context, data)

    async def one_to_many(self, data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await self._streamed(data, context, None)

    async def many_to_many(self, data: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await self._streamed(b"", context, data)

    async def _answered(
        self, data: bytes, context: grpc.aio.ServicerContext[Any, Any], many: AsyncIterator[bytes] | None
    ) -> Any:
        call = self._begin(data, context)
        try:
            return await self._passed(call, data, many)
        except Exception as error:
            return await self._told(call, error)
        except asyncio.CancelledError:
            await self._ended(call)
            raise
        finally:
            self._end(call)

    async def _streamed(
        self, data: bytes, context: grpc.aio.ServicerContext[Any, Any], many: AsyncIterator[bytes] | None
    ) -> None:
        call = self._begin(data, context)
        try:
            answers = await self._passed(call, data, many)
            if answers is not None:
                await _write_all(answers, context)
        except Exception as error:
            last = await self._told(call, error)
            if last is not None:
                await context.write(last)
        except asyncio.CancelledError:
            await self._ended(call)
            raise
        finally:
            self._end(call)

    def _begin(self, data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Call:
        calls = self._calls
        calls.counts[self._method] += 1
        call = Call(self._service, self._method, context, calls.stopping, size_bytes=len(data))
        calls.requests.add(call.size_bytes)
        if self._waits:
            task = asyncio.current_task()
            assert task is not None
            calls._waiting.add(task)
            task.add_done_callback(calls._waiting.discard)
        return call

    def _end(self, call: Call) -> None:
        self._calls.requests.remove(call.size_bytes)

    async def _passed(self, call: Call, data: bytes, many: AsyncIterator[bytes] | None) -> Any:
        """The answer, from the handler and all that stands before it."""
        if self._waits and call.stopping.is_set():
            raise Refusal(grpc.StatusCode.UNAVAILABLE, STOPS)
        self._calls.requests.check(len(data))
        if many is None:
            call.request = self._parsed(data)
        else:
            call.requests = self._each_parsed(many)
        around = self._calls._around
        return await (self._handled(call) if around is None else around(call, lambda: self._handled(call)))

    async def _handled(self, call: Call) -> Any:
        asked = call.request if call.requests is None else call.requests
        if self._gives:
            return self._function(asked, call.context)
        return await self._function(asked, call.context)

    def _parsed(self, data: bytes) -> Any:
        try:
            return self._parse(data)
        except Exception as error:
            raise Refusal(
                grpc.StatusCode.INVALID_ARGUMENT, f"the request is no message of {self._service}/{self._method}"
            ) from error

    async def _each_parsed(self, many: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        requests = self._calls.requests
        async for data in many:
            if self._counts:
                yield self._parsed(data)
                continue
            requests.add(len(data))
            try:
                requests.check(len(data))
                yield self._parsed(data)
            finally:
                requests.remove(len(data))

    async def _told(self, call: Call, error: Exception) -> Any:
        """An error as an answer in the service's words, or as a code of gRPC's."""
        if isinstance(error, grpc.aio.AbortError | grpc.aio.UsageError):  # the handler has answered, or nobody listens
            raise error
        self._calls.failed += 1
        if self._error_answer is not None:
            answer = self._error_answer(call, error)
            if answer is not None:
                return answer
        code, text = grpc_code_of(error)
        await call.context.abort(code, text)

    async def _ended(self, call: Call) -> None:
        """A call was cancelled: by its client, who hears nothing more, or by the stop, which says so."""
        if self._waits and call.stopping.is_set() and not call.context.cancelled():
            await call.context.abort(grpc.StatusCode.UNAVAILABLE, STOPS)


async def _write_all(answers: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """Write a stream of answers; it is closed at once if the client goes, and not when its memory is collected."""
    try:
        async for answer in answers:
            await context.write(answer)
    finally:
        close = getattr(answers, "aclose", None)
        if close is not None:
            await close()
