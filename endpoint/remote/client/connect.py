"""Connecting to a store that another process serves."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from stratalog import InvalidConfig

from ...server.users import authorization
from .link import Link
from .store import RemoteStore

OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each `connect`
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 300),
    ("grpc.keepalive_time_ms", 30_000),  # a server that is gone without a word is noticed
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)


def connected(
    address: str, *, tls: bool | str | Path = False, access_key: str | None = None, secret_key: str | None = None,
    timeout_s: float = 10.0,
) -> RemoteStore:  # fmt: skip
    """See `stratalog.connect`."""
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not host or not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 1 << 16):
        raise InvalidConfig(f"an address is host:port, not {address!r}")
    for key in (access_key, secret_key):
        if key is not None and not isinstance(key, str):
            raise InvalidConfig(f"access_key and secret_key are str or None, not {type(key).__name__}")
    if not isinstance(timeout_s, int | float) or not 0 < timeout_s <= threading.TIMEOUT_MAX:
        raise InvalidConfig(f"timeout_s is a number of seconds above 0, not {timeout_s!r}")
    if (access_key is None) != (secret_key is None):
        raise InvalidConfig("access_key and secret_key belong together: give both, or none of them")
    client_id = f"{socket.gethostname()}@{os.getpid()}@{uuid.uuid4().hex[:12]}"

    def metadata() -> Sequence[tuple[str, str]]:
        found = [("x-mq-client-id", client_id), ("x-mq-language", "PYTHON"), ("x-mq-protocol", "stratalog.v1")]
        if access_key is None or secret_key is None:
            return found
        return [*found, *authorization(access_key, secret_key, datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"))]

    link = Link(address, _channel(address, tls), metadata, timeout_s)
    try:
        link.wait_until_answered()
    except BaseException:
        link.drop()
        raise
    return RemoteStore(link)


def _channel(address: str, tls: bool | str | Path) -> Any:
    if tls is False:
        return grpc.insecure_channel(address, options=OPTIONS)
    roots = None if tls is True else Path(tls).read_bytes()
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(roots), options=OPTIONS)
