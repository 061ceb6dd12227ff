"""Signed calls: who may use the endpoint, if users are configured.

A client signs the time that it says with its secret: `authorization: MQv2-HMAC-SHA1 Credential=<access key>,
SignedHeaders=x-mq-date-time, Signature=<hex of HMAC-SHA1>`. Clients write the hex in either case, and Python's signs
with empty keys if it has none.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Final

import grpc

from ..server.calls import Call, Proceed, Refusal
from ..wire import Code

_SIGNED: Final = re.compile(r"MQv2-HMAC-SHA1\s+Credential=([^,/\s]*)[^,]*,.*\bSignature=([0-9a-fA-F]+)\s*")


class Signatures:
    """The interceptor that lets signed calls pass, of every service at the port."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """`users`: the secret of each access key."""
        self._users = {name: secret.encode() for name, secret in users.items()}

    async def around(self, call: Call, proceed: Proceed) -> Any:
        """Refuse a call whose signature is missing or wrong."""
        headers = call.metadata
        signed = _SIGNED.fullmatch(headers.get("authorization", ""))
        if signed is None:
            raise Refusal(
                grpc.StatusCode.UNAUTHENTICATED, "the call is not signed: give the client its credentials",
                status=Code.UNAUTHORIZED,
            )  # fmt: skip
        name, signature = signed.groups()
        secret = self._users.get(name)
        if secret is None:
            raise _forbidden(f"Username is not matched, accessKey={name}")
        wanted = hmac.new(secret, headers.get("x-mq-date-time", "").encode(), hashlib.sha1).hexdigest()
        if not hmac.compare_digest(signature.lower(), wanted):
            raise _forbidden(f"Check signature failed for accessKey={name}")
        return await proceed()


def _forbidden(text: str) -> Refusal:
    return Refusal(grpc.StatusCode.PERMISSION_DENIED, text, status=Code.FORBIDDEN)
