"""Users with secrets: calls are signed as RocketMQ 5 clients sign them, and others are refused.

The header is `authorization: MQv2-HMAC-SHA1 Credential=USER, SignedHeaders=x-mq-date-time, Signature=HEX`, where HEX is
HMAC-SHA1 over the header `x-mq-date-time` with the user's secret. It proves who calls, and protects nothing else of the
call: use TLS where others can listen.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import grpc

from .calls import Around, Call, Proceed, Refusal

METHOD = "MQv2-HMAC-SHA1"
AUTHORIZATION, DATE_TIME = "authorization", "x-mq-date-time"
UNAUTHORIZED = 40100  # RocketMQ's code


def signature(secret: str, date_time: str) -> str:
    """The signature of a call, in lower-case hex."""
    return hmac.new(secret.encode(), date_time.encode(), hashlib.sha1).hexdigest()


def authorization(user: str, secret: str, date_time: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """The two headers with which a client signs a call; `date_time` is such as 20261127T120000Z."""
    signed = f"{METHOD} Credential={user}, SignedHeaders={DATE_TIME}, Signature={signature(secret, date_time)}"
    return (AUTHORIZATION, signed), (DATE_TIME, date_time)


def signed_by(users: Mapping[str, str]) -> Around:
    """The interceptor that lets pass what one of these users has signed: user -> secret.

    Raises ValueError for what is no mapping of texts that are not empty.
    """
    if not isinstance(users, Mapping):
        raise ValueError(f"users is a mapping of names to secrets, not {type(users).__name__}")
    known = dict(users)
    if not all(isinstance(text, str) and text for pair in known.items() for text in pair):
        raise ValueError("users is a mapping of names to secrets, which are texts and not empty")

    async def around(call: Call, proceed: Proceed) -> Any:
        problem = _problem(known, call.metadata)
        if problem:
            raise Refusal(grpc.StatusCode.UNAUTHENTICATED, problem, status=UNAUTHORIZED)
        return await proceed()

    return around


def _problem(users: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """What is wrong with the signature of a call, in the words of RocketMQ's proxy; "" if nothing is."""
    method, _, rest = headers.get(AUTHORIZATION, "").partition(" ")
    date_time = headers.get(DATE_TIME, "")
    problem = ""
    if not method and not rest:
        problem = "authentication header is null"
    elif not date_time:
        problem = "datetime is null"
    elif method != METHOD or not rest:
        problem = "authentication header is incorrect"
    return problem or _problem_of_signature(users, rest, date_time)


def _problem_of_signature(users: Mapping[str, str], signed: str, date_time: str) -> str:
    parts = dict(part.strip().partition("=")[::2] for part in signed.split(","))
    user = parts.get("Credential", "").partition("/")[0]
    if not user:
        return "username cannot be null."
    if user not in users:
        return f"User:{user} is not found."
    given = parts.get("Signature", "").lower()
    if not hmac.compare_digest(given.encode(), signature(users[user], date_time).encode()):
        return "check signature failed."
    return ""
