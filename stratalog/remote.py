"""The call that connects to a store of another process. The rest is loaded when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .endpoint.remote.client.store import RemoteStore


def connect(
    address: str, *, tls: bool | str | Path = False, access_key: str | None = None, secret_key: str | None = None,
    timeout_s: float = 10.0,
) -> RemoteStore:  # fmt: skip
    """Connect to a store that another process serves, by a `RocketMQEndpoint` or `stratalog serve`.

    The object that it returns has the calls of `MessageStore`, with their arguments, results and errors; close it, or
    use it with `with`. It needs the extra `rocketmq`: `pip install 'stratalog[rocketmq]'`.

    Args:
        address: `host:port`.
        tls: False for plaintext; True for TLS with a certificate that this machine trusts; or the path of a PEM file
            with the certificate to trust.
        access_key, secret_key: who this is, if the server has users.
        timeout_s: how long the server has to answer, now and whenever the connection is made again.

    Raises:
        ConnectionLost (of `stratalog.endpoint`): there is no answer in time, or the server refuses.
        InvalidConfig: an argument is wrong.
        ImportError: the extra is missing.
    """
    from .endpoint.remote.client.connect import connected  # noqa: PLC0415  # gRPC is loaded here

    return connected(address, tls=tls, access_key=access_key, secret_key=secret_key, timeout_s=timeout_s)
