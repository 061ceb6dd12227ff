"""The gRPC server of an endpoint: services behind one port, for plaintext and TLS."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from typing import Any, Literal

import grpc

from ..errors import CertificateUnusable, EndpointClosed
from .calls import Around
from .certificate import Certificate
from .front import Front, listening_socket
from .limits import Limits
from .request_bytes import RequestBytes
from .service import Calls

STOP_S = 1.0  # beyond the grace: how long gRPC has to end calls whose connections are gone

Tls = Certificate | Literal["self-signed"] | None


class GrpcServer:
    """Services on one port of one event loop.

    handlers: the services, `Service` objects or gRPC's generic handlers with `async def` methods.
    host, port: where it listens; port 0 is any free one.
    tls: a `Certificate`; "self-signed": one that is made when the first client wants TLS; None: TLS is refused.
        Plaintext is always taken.
    limits: see `Limits`.
    interceptors: what every call passes, the first one outermost: see `calls`.
    requests: the count of bytes that services of the server may share; None: one of its own.
    """

    def __init__(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: Tls = "self-signed",
        limits: Limits | None = None,
        interceptors: Sequence[Around] = (),
        requests: RequestBytes | None = None,
    ) -> None:
        """Raises ValueError for another `tls`."""
        if not (tls is None or tls == "self-signed" or isinstance(tls, Certificate)):
            raise ValueError(f"tls is 'self-signed', a Certificate or None, not {tls!r}")
        self.host = host
        self.port = port
        self.limits = limits or Limits()
        self.calls = Calls(handlers, interceptors, requests or RequestBytes(self.limits.request_bytes))
        self.front: Front | None = None
        self._tls = tls
        self._certificate: asyncio.Task[Certificate] | None = None
        self._tls_name: asyncio.Task[str] | None = None
        self._plain_name = ""
        self._servers: list[grpc.aio.Server] = []
        self._stopped: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """`host:port`, an IPv6 host in brackets; the port that it has, once it is started."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return 0 if self.front is None else self.front.connections

    async def start(self) -> None:
        """Listen. When it returns, clients can connect.

        Raises AddressInUse, AddressUnusable; CertificateUnusable for a certificate of the user's that TLS cannot use;
        EndpointClosed after `stop`.
        """
        if self._stopped is not None:
            raise EndpointClosed("the endpoint was stopped: start another one")
        listening = listening_socket(self.host, self.port)
        try:
            self._plain_name = await self._serve(None)
            if isinstance(self._tls, Certificate):
                await self._tls_backend()
        except BaseException:
            listening.close()
            await self.stop(0)
            raise
        self.port = listening.getsockname()[1]
        self.front = Front(listening, self.limits, self._plain_backend, self._tls_backend)

    async def certificate(self) -> Certificate | None:
        """The certificate of TLS, made now if it was not yet; None without TLS. Raises CertificateUnusable."""
        if self._tls is None or isinstance(self._tls, Certificate):
            return self._tls
        if self._certificate is None or _has_failed(self._certificate):
            self._certificate = asyncio.create_task(asyncio.to_thread(Certificate.self_signed, self.host))
        return await asyncio.shield(self._certificate)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Listen no more, end the calls that only wait, give the others `grace_s` seconds, then hang up.

        It returns after about `grace_s` and a second at the latest, whatever clients do. A second call waits for the
        first one.
        """
        if self._stopped is None:
            self._stopped = asyncio.create_task(self._stop(grace_s))
        await asyncio.shield(self._stopped)

    async def kill(self) -> None:
        """End as if the process was killed: connections are reset, calls get no answer and are cancelled."""
        if self.front is not None:
            self.front.close(reset=True)
        await self.stop(0)

    async def _stop(self, grace_s: float) -> None:
        if self.front is not None:
            self.front.stop_listening()
        self.calls.end_waiting()
        stops = [asyncio.create_task(server.stop(grace_s)) for server in self._servers]
        if stops and grace_s > 0:
            await asyncio.wait(stops, timeout=grace_s)
        if self.front is not None:
            self.front.close()
        if stops:
            await asyncio.wait(stops, timeout=STOP_S)
        for task in stops:
            task.cancel()

    async def _serve(self, certificate: Certificate | None) -> str:
        """Another gRPC server; the name of its Unix socket."""
        server = grpc.aio.server(
            handlers=[self.calls], options=self.limits.options(), maximum_concurrent_rpcs=self.limits.calls
        )
        name = f"stratalog-{os.getpid()}-{secrets.token_hex(8)}"
        if certificate is None:
            server.add_insecure_port(f"unix-abstract:{name}")
        else:
            pair = (certificate.key_pem, certificate.certificate_pem)
            try:
                server.add_secure_port(f"unix-abstract:{name}", grpc.ssl_server_credentials([pair]))
            except RuntimeError as error:
                raise CertificateUnusable("the certificate or its key cannot be used for TLS; both are PEM") from error
        await server.start()
        if self._stopped is not None:  # it knows nothing of this one
            await server.stop(None)
            raise EndpointClosed("the endpoint was stopped: start another one")
        self._servers.append(server)
        return name

    async def _plain_backend(self) -> str | None:
        return self._plain_name

    async def _tls_backend(self) -> str | None:
        if self._tls is None:
            return None
        if self._tls_name is None or _has_failed(self._tls_name):
            self._tls_name = asyncio.create_task(self._serve_tls())
            self._tls_name.add_done_callback(_has_failed)  # its client may be gone: nobody asks for the error
        return await asyncio.shield(self._tls_name)

    async def _serve_tls(self) -> str:
        return await self._serve(await self.certificate())


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
