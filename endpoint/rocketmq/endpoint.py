"""The endpoint as a user has it: a port for RocketMQ 5's clients, on a store that is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..faults import CallLog, FaultTable
from ..remote.server.service import StoreService
from ..server.calls import Around, chained
from ..server.limits import Limits
from ..server.loop_thread import LoopThread
from ..server.server import GrpcServer, Tls
from ..server.users import signed_by
from .admin.service import admin_service
from .options import RocketMQOptions
from .service import MessagingService
from .statuses import status_of

if TYPE_CHECKING:
    import grpc

    from stratalog import MessageStore

GRACE_S = 1.0
T = TypeVar("T")


class RocketMQEndpoint:
    """A port at which the official clients of RocketMQ 5 send and receive messages of a store.

        with MessageStore.open("data") as store, RocketMQEndpoint(store) as endpoint:
            print(endpoint.address)  # a client's endpoints

    `with` runs it on a thread of its own, `async with` on the loop of the program. At the end it closes its
    connections, and the store stays open: close it after the endpoint.

    Attributes:
        options, store: what it was given.
        faults: what tests let go wrong with calls; empty at first.
        calls: the newest calls of clients, with what they were answered.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: Tls = "self-signed",
        limits: Limits | None = None,
        users: Mapping[str, str] | None = None,
        services: Sequence[grpc.GenericRpcHandler] = (),
        interceptors: Sequence[Around] = (),
        grace_s: float = GRACE_S,
        faults: FaultTable | None = None,
        calls: CallLog | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            store: the program may use it, too: topics and subscriptions are the same.
            host, port: where it listens; port 0 is any free one, see `address`.
            tls: plaintext and TLS are taken at the one port. "self-signed": by a certificate that is made when the
                first client wants TLS; a `Certificate`; None: no TLS.
            limits: of connections and sizes, see `Limits`.
            users: name (access key) -> secret. With it, calls that none of these users has signed are refused.
            services: more services at the same port.
            interceptors: what every call passes, see `stratalog.endpoint.server.calls`.
            grace_s: how many seconds a stop waits for calls under way.
            faults, calls: those of an earlier endpoint, to go on with; None: new ones.
            options: the fields of `RocketMQOptions`, as `fifo_groups=["orders"]`.

        Raises: TypeError, ValueError for an option that there is not, or that has a wrong value.
        """
        self.options = RocketMQOptions(**options)
        self.store = store
        self.faults = FaultTable() if faults is None else faults
        self.calls = CallLog() if calls is None else calls
        self.calls.status_of = status_of
        self._grace_s = grace_s
        self._services = tuple(services)
        self._interceptors = (self.calls.around, self.faults.around, *interceptors)
        signed = [] if users is None else [signed_by(users)]
        passed = (self.calls.around, *signed, self.faults.around, *interceptors)
        self._make_server = partial(GrpcServer, host=host, port=port, tls=tls, limits=limits, interceptors=passed)
        self._server: GrpcServer | None = None
        self._service: MessagingService | None = None
        self._remote: StoreService | None = None
        self._thread: LoopThread | None = None

    @property
    def address(self) -> str:
        """`host:port`, as clients take it. Raises RuntimeError before the start."""
        return self.server.address

    @property
    def server(self) -> GrpcServer:
        """The gRPC server: its connections, and counts of its calls. Raises RuntimeError before the start."""
        if self._server is None:
            raise RuntimeError("the endpoint is not started: use it in a `with` or an `async with` block")
        return self._server

    def certificate_pem(self) -> bytes:
        """The certificate of TLS, for clients that check it. Only for `with`; coroutines await `server.certificate()`.

        Raises: CertificateUnusable; RuntimeError before the start, and without TLS.
        """
        certificate = None if self._thread is None else self._thread.run(self.server.certificate())
        if certificate is None:
            raise RuntimeError("there is no certificate: the endpoint is not started by `with`, or has no TLS")
        return certificate.certificate_pem

    def start(self) -> None:
        """Listen, on a thread of its own. When it returns, clients can connect. `with` does it.

        Raises: AddressInUse, AddressUnusable; RuntimeError if it runs; errors of the store.
        """
        self._check_ended()
        self._thread = LoopThread()
        try:
            self._thread.run(self.start_async())
        except BaseException:
            self.stop()
            raise

    def _check_ended(self, thread: LoopThread | None = None) -> None:
        if self._service is not None or self._thread is not thread:
            raise RuntimeError("the endpoint runs already: stop it first")

    def stop(self) -> None:
        """Close the connections, after at most `grace_s` seconds and a little. `with` does it. A second call does
        nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self.stop_async())
            finally:
                thread.close()

    def kill(self, meanwhile: Callable[[], T]) -> T:
        """End as if the process was killed: connections are reset, calls get no answer. The store stays open.

        `meanwhile` is called on the loop of the endpoint, when no more answers go out, and before anything else happens
        there: what it answers is the result. Only for `with`. Raises RuntimeError before the start; what it raises.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            raise RuntimeError("the endpoint is not started by `with`")
        try:
            return thread.run(self._kill(meanwhile))
        finally:
            thread.close()

    async def _kill(self, meanwhile: Callable[[], T]) -> T:
        if self.server.front is not None:
            self.server.front.close(reset=True)
        try:
            return meanwhile()
        finally:
            await self.server.kill()
            await self.stop_async()

    def disconnect(self) -> None:
        """Reset all connections, as a network that fails does; clients connect again. Only for `with`."""
        if self._thread is not None:
            self._thread.run(self._disconnect())

    async def _disconnect(self) -> None:
        if self.server.front is not None:
            self.server.front.drop(reset=True)

    def reset(self) -> None:
        """Remove all topics, groups and transactions of the store, while clients run. Only for `with`.

        Raises: RuntimeError before the start; errors of the store.
        """
        if self._thread is None:
            raise RuntimeError("the endpoint is not started by `with`")
        self._thread.run(self.reset_async())

    async def reset_async(self) -> None:
        """`reset` for coroutines, on the endpoint's loop."""
        if self._service is None:
            raise RuntimeError("the endpoint is not started")
        await self._service.reset()

    async def start_async(self) -> None:
        """`start` for coroutines, on the loop of the caller. `async with` does it."""
        self._check_ended(self._thread)
        service = MessagingService(self.store, self.options)
        remote = self._remote = StoreService(self.store, around=chained(self._interceptors))
        admin = admin_service(
            self.store, service.clients, service.groups, service.topics, lambda: self.server.connections
        )  # fmt: skip
        server = self._make_server([service.service(), admin, remote.service(), *self._services])
        self._service, self._server = service, server
        try:
            await service.start()
            await server.start()
        except BaseException:
            await self.stop_async()
            raise

    async def stop_async(self) -> None:
        """`stop` for coroutines, on the same loop. `async with` does it."""
        server, service = self._server, self._service
        self._service = None
        try:
            if server is not None and service is not None:
                await server.stop(self._grace_s)
        finally:
            if service is not None:
                await service.close()
            if self._remote is not None:
                await self._remote.close()

    def __enter__(self) -> RocketMQEndpoint:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> RocketMQEndpoint:
        await self.start_async()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop_async()
