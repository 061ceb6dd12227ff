"""stratalog.endpoint: a store for other processes and languages, through gRPC on one port.

    server      the port: TLS and plaintext, connections, limits, the one place that every call passes, the stop
    wire        the messages of RocketMQ 5's protocol, written from field numbers
    rocketmq    RocketMQ 5's service `MessagingService` on a store
    remote      the service `stratalog.v1`, and its client: what `stratalog.connect` gives
    faults      what a test does to the calls of clients, and what it sees of them
    harness     an endpoint for tests: kills, power cuts, a clock; pytest's fixtures are made of it
    errors      the errors of the endpoint; subscribed: how it finds a subscription by its name

It needs the extra `rocketmq`: `pip install 'stratalog[rocketmq]'`. Importing `stratalog` alone imports none of it.
"""

if not __name__.startswith("stratalog."):  # else a second copy of each module could be loaded by accident
    raise ImportError("import stratalog.endpoint: this folder is a part of the package stratalog")

try:
    import google.protobuf  # noqa: F401  # looked for here, so that one sentence says what is missing
    import grpc  # noqa: F401  # as above
except ImportError as missing:
    raise ImportError(
        f"stratalog.endpoint needs the extra `rocketmq` ({missing.name} is missing): pip install 'stratalog[rocketmq]'",
        name=missing.name,
    ) from missing

from .errors import (
    AddressInUse,
    AddressUnusable,
    CertificateUnusable,
    ConnectionLost,
    EndpointClosed,
    EndpointError,
)
from .faults import CallFault, CallLog, ClientCall, FaultTable
from .harness import RocketMQHarness, RocketMQProcess, RunningClock, SentMessage
from .remote.client.store import RemoteStore
from .remote.client.subscription import RemoteSubscription
from .remote.client.topics_subscription import RemoteTopicsSubscription
from .remote.client.transaction import RemoteTransaction
from .rocketmq.endpoint import RocketMQEndpoint
from .rocketmq.options import RocketMQOptions
from .server.calls import Call, Refusal
from .server.certificate import Certificate
from .server.limits import Limits
from .wire import Code

__all__ = [
    "AddressInUse",
    "AddressUnusable",
    "Call",
    "CallFault",
    "CallLog",
    "Certificate",
    "CertificateUnusable",
    "ClientCall",
    "Code",
    "ConnectionLost",
    "EndpointClosed",
    "EndpointError",
    "FaultTable",
    "Limits",
    "Refusal",
    "RemoteStore",
    "RemoteSubscription",
    "RemoteTopicsSubscription",
    "RemoteTransaction",
    "RocketMQEndpoint",
    "RocketMQHarness",
    "RocketMQOptions",
    "RocketMQProcess",
    "RunningClock",
    "SentMessage",
]
