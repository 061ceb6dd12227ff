"""What one endpoint takes at most, so that a client that misuses it stops no other one."""

from __future__ import annotations

import resource
from dataclasses import dataclass

DESCRIPTORS_EACH = 3  # of a connection: the client's socket, and both ends of the one to the gRPC server
DESCRIPTORS_LEFT = 256  # for the program and the store
MOST_CONNECTIONS = 20_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an endpoint. Beyond one of them the client at fault is refused; the others go on.

    connections: at once; another one is closed at once. None: as many as the limit of descriptors (`ulimit -n`)
        has room for, at most 20,000.
    streams: calls at once of one connection. The client's gRPC library keeps further ones waiting.
    calls: at once, of all connections. Another one is answered RESOURCE_EXHAUSTED.
    message_bytes: of one request as it is sent. A larger one is answered RESOURCE_EXHAUSTED.
    request_bytes: of all requests that are being answered at a time, of every service. Beyond it a call is answered
        RESOURCE_EXHAUSTED, and one of `stratalog.connect` raises PublishBufferFull.
    header_bytes: of the headers of one call.
    first_byte_s: a connection that has sent nothing for so long is closed.
    ping_s, ping_timeout_s: a connection is asked for a sign of life so often, and closed if none comes in that time.
        One that takes no byte of what waits for it for both together is closed, too.
    """

    connections: int | None = None
    streams: int = 1024
    calls: int = 100_000
    message_bytes: int = 64 << 20
    request_bytes: int = 512 << 20
    header_bytes: int = 16 << 10
    first_byte_s: float = 10.0
    ping_s: float = 60.0
    ping_timeout_s: float = 30.0

    def most_connections(self) -> int:
        """How many connections there may be at once."""
        if self.connections is not None:
            return self.connections
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return MOST_CONNECTIONS
        return min(MOST_CONNECTIONS, max(16, (soft - DESCRIPTORS_LEFT) // DESCRIPTORS_EACH))

    def options(self) -> list[tuple[str, int]]:
        """The settings of the gRPC server that they are."""
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self.message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", self.streams),
            ("grpc.max_metadata_size", self.header_bytes),
            ("grpc.absolute_max_metadata_size", self.header_bytes * 2),
            ("grpc.server_handshake_timeout_ms", round(self.first_byte_s * 1000)),
            ("grpc.keepalive_time_ms", round(self.ping_s * 1000)),
            ("grpc.keepalive_timeout_ms", round(self.ping_timeout_s * 1000)),
            # Clients ping without calls, Java's each 300 s and C++'s each 60 s; without these gRPC hangs up on them.
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 1000),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
            ("grpc.http2.max_ping_strikes", 0),
        ]
