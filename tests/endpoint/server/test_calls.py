"""Every call passes one place, whatever its kind, and every error becomes a code."""

from __future__ import annotations

import logging
from typing import Any

import grpc
import pytest

import stratalog
from stratalog import StaleReceipt, StoreError, StoreFull, StorePoisoned
from stratalog.endpoint.server.calls import Call, Proceed, Refusal
from stratalog.endpoint.server.codes import CODES
from stratalog.endpoint.server.limits import Limits

from .echoes import Echoes, ask, client_of, refused, run, served


def test_each_kind_of_call_passes_the_interceptors_from_outside_inward() -> None:
    seen: list[tuple[str, str, str, bytes | None]] = []

    async def outer(call: Call, proceed: Proceed) -> Any:
        seen.append(("outer", call.method, call.client_id, call.request))
        return await proceed()

    async def inner(call: Call, proceed: Proceed) -> Any:
        seen.append(("inner", call.method, call.client_id, call.request))
        return await proceed()

    async def test() -> None:
        async with served(interceptors=[outer, inner]) as server, client_of(server) as channel:
            assert await ask(channel, "Echo", b"a", metadata=[("x-mq-client-id", "me")]) == b"a"
            for method in ("Count", "Written"):
                answers = channel.unary_stream(f"/test.Echoes/{method}")(b"3")
                assert [one async for one in answers] == [b"0", b"1", b"2"]
            assert await channel.stream_unary("/test.Echoes/Joined")(iter([b"a", b"b"])) == b"a b"
            chat = channel.stream_stream("/test.Echoes/Chat")(iter([b"a", b"b"]))
            assert [one async for one in chat] == [b"a", b"b"]
            assert server.calls.counts == dict.fromkeys(("Echo", "Count", "Written", "Joined", "Chat"), 1)
        assert seen[:2] == [("outer", "Echo", "me", b"a"), ("inner", "Echo", "me", b"a")]
        assert [method for _, method, _, _ in seen[2:]] == [
            name for name in ("Count", "Written", "Joined", "Chat") for _ in range(2)
        ]

    run(test)


def test_an_interceptor_changes_request_and_answer() -> None:
    async def around(call: Call, proceed: Proceed) -> Any:
        if call.requests is None:
            call.request += b"!"
            answer = await proceed()
            return answer + b"?" if isinstance(answer, bytes) else answer
        requests = call.requests
        call.requests = (one + b"!" async for one in requests)
        return await proceed()

    async def test() -> None:
        async with served(interceptors=[around]) as server, client_of(server) as channel:
            assert await ask(channel, "Echo", b"a") == b"a!?"
            assert await channel.stream_unary("/test.Echoes/Joined")(iter([b"a", b"b"])) == b"a! b!"

    run(test)


def test_a_refusal_has_its_code_and_the_handler_is_not_called() -> None:
    async def around(call: Call, proceed: Proceed) -> Any:
        raise Refusal(grpc.StatusCode.PERMISSION_DENIED, "not you")

    async def test() -> None:
        async with served(interceptors=[around]) as server, client_of(server) as channel:
            for make in (channel.unary_unary, channel.stream_unary):
                asked: Any = b"" if make == channel.unary_unary else iter([b""])
                assert await refused(make("/test.Echoes/Echo")(asked)) == (grpc.StatusCode.PERMISSION_DENIED, "not you")
            stream = channel.unary_stream("/test.Echoes/Count")(b"3")
            assert await refused(stream.read()) == (grpc.StatusCode.PERMISSION_DENIED, "not you")
            assert server.calls.failed == 3

    run(test)


@pytest.mark.parametrize("error", [StoreFull("full"), StorePoisoned("poisoned"), StaleReceipt("stale", receipts=(1,))])
def test_an_error_of_the_store_has_its_code_and_its_text(error: StoreError) -> None:
    async def test() -> None:
        echoes = Echoes()
        echoes.error = error
        async with served(echoes) as server, client_of(server) as channel:
            assert await refused(ask(channel, "Fail")) == (CODES[type(error)], str(error))
            stream = channel.unary_stream("/test.Echoes/FailLate")(b"")
            assert await stream.read() == b"first"
            assert await refused(stream.read()) == (CODES[type(error)], str(error))

    run(test)


def test_every_error_of_the_store_has_a_code() -> None:
    errors = [
        one
        for one in (getattr(stratalog, name) for name in stratalog.__all__)
        if isinstance(one, type) and issubclass(one, StoreError)
    ]
    assert len(errors) > 15
    assert [kind for kind in errors if not set(kind.__mro__) & set(CODES)] == [StoreError]


def test_an_error_that_nobody_thought_of_is_internal_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with served() as server, client_of(server) as channel:
            assert await refused(ask(channel, "Fail")) == (grpc.StatusCode.INTERNAL, "KeyError: 'x'")
            assert await ask(channel, "Echo", b"on") == b"on"

    with caplog.at_level(logging.ERROR, "stratalog.endpoint"):
        run(test)
    assert [record.getMessage() for record in caplog.records] == ["a call failed"]


def test_a_service_answers_errors_in_its_own_words() -> None:
    def answer(call: Call, error: Exception) -> bytes:
        return f"{call.method}: {error}".encode()

    async def refuse(call: Call, proceed: Proceed) -> Any:
        if call.request == b"refuse":
            raise Refusal(grpc.StatusCode.PERMISSION_DENIED, "not you")
        return await proceed()

    async def test() -> None:
        async with served(Echoes(answer), interceptors=[refuse]) as server, client_of(server) as channel:
            assert await ask(channel, "Fail") == b"Fail: 'x'"
            assert await ask(channel, "Echo", b"refuse") == b"Echo: not you"
            stream = channel.unary_stream("/test.Echoes/FailLate")(b"")
            assert [one async for one in stream] == [b"first", b"FailLate: 'x'"]

    run(test)


def test_bytes_that_are_no_request_are_refused_and_the_connection_goes_on() -> None:
    async def test() -> None:
        async with served() as server, client_of(server) as channel:
            code, text = await refused(ask(channel, "Number", b"none"))
            assert (
                code == grpc.StatusCode.INVALID_ARGUMENT and text == "the request is no message of test.Echoes/Number"
            )
            assert await ask(channel, "Number", b"07") == b"7"

    run(test)


def test_unknown_methods_and_services_are_unimplemented() -> None:
    async def test() -> None:
        async with served() as server, client_of(server) as channel:
            for path in ("/test.Echoes/Nothing", "/other.Service/Echo", "/x", "/"):
                code, _ = await refused(channel.unary_unary(path)(b""))
                assert code == grpc.StatusCode.UNIMPLEMENTED

    run(test)


def test_requests_beyond_the_bytes_under_way_are_refused_until_others_end() -> None:
    async def test() -> None:
        limits = Limits(request_bytes=1000)
        async with served(limits=limits) as server, client_of(server) as channel:
            large = b"x" * 5000
            assert await ask(channel, "Echo", large) == large  # alone it may be larger
            waiting = channel.unary_unary("/test.Echoes/Hang")(b"x" * 900)
            await ask(channel, "Echo", b"x" * 50)
            code, text = await refused(ask(channel, "Echo", b"x" * 200))
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and "under way" in text
            waiting.cancel()
            while server.calls.request_bytes:
                await ask(channel, "Echo")
            assert await ask(channel, "Echo", large) == large

    run(test)


def test_a_request_over_the_limit_is_refused_and_the_connection_goes_on() -> None:
    async def test() -> None:
        async with served(limits=Limits(message_bytes=1000)) as server, client_of(server) as channel:
            code, text = await refused(ask(channel, "Echo", b"x" * 1001))
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and "1001" in text
            assert await ask(channel, "Echo", b"x" * 1000) == b"x" * 1000

    run(test)
