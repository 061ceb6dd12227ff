"""With users, a call passes if one of them has signed it."""

from __future__ import annotations

import grpc
import pytest

from stratalog.endpoint.server.users import authorization, signed_by

from .echoes import ask, client_of, refused, run, served

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
NOW = "20261127T120000Z"
SIGNED = dict(authorization("ak", "sk", NOW))
BAD: dict[str, list[dict[str, str]]] = {
    "authentication header is null": [{}],
    "datetime is null": [{"authorization": SIGNED["authorization"]}],
    "authentication header is incorrect": [
        {**SIGNED, "authorization": text} for text in ("MQv2-HMAC-SHA1", "Basic abc")
    ],
    "username cannot be null.": [
        {**SIGNED, "authorization": f"MQv2-HMAC-SHA1 {text}"} for text in ("Signature=00", "Credential=,", ",=,=")
    ],
    "User:other is not found.": [dict(authorization("other", "sk", NOW))],
    "check signature failed.": [
        dict(authorization("ak", "other", NOW)),
        {**SIGNED, "x-mq-date-time": "20261127T120001Z"},
        {**SIGNED, "authorization": "MQv2-HMAC-SHA1 Credential=ak"},
        {**SIGNED, "authorization": "MQv2-HMAC-SHA1 Credential=ak, Signature=~not hex"},
    ],
}


def test_the_signature_is_that_of_official_clients() -> None:
    assert SIGNED["authorization"] == (
        "MQv2-HMAC-SHA1 Credential=ak, SignedHeaders=x-mq-date-time, Signature=1133b77eb93c0d20e217cc70b4fa537e4343c37d"
    )


def test_a_signed_call_passes_in_either_case_of_hex() -> None:
    async def test() -> None:
        async with served(interceptors=[signed_by({"ak": "sk"})]) as server, client_of(server) as channel:
            for hexes in (str, str.upper):
                head, _, hex_of = SIGNED["authorization"].rpartition("=")
                headers = [("authorization", f"{head}={hexes(hex_of)}"), ("x-mq-date-time", NOW)]
                assert await ask(channel, "Echo", b"in", metadata=headers) == b"in"

    run(test)


@pytest.mark.parametrize("text", BAD)
def test_a_call_that_is_not_signed_rightly_is_refused(text: str) -> None:
    async def test() -> None:
        async with served(interceptors=[signed_by({"ak": "sk"})]) as server, client_of(server) as channel:
            for headers in BAD[text]:
                wrong = list(headers.items())
                assert await refused(ask(channel, "Echo", metadata=wrong)) == (UNAUTHENTICATED, text)
                stream = channel.unary_stream("/test.Echoes/Count")(b"3", metadata=wrong)
                assert await refused(stream.read()) == (UNAUTHENTICATED, text)
            assert await ask(channel, "Echo", b"in", metadata=list(SIGNED.items())) == b"in"

    run(test)
