"""The port: TLS and plaintext on it, a second endpoint, and connections that misuse it while others go on."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from stratalog.endpoint.errors import AddressInUse, AddressUnusable, CertificateUnusable, EndpointClosed
from stratalog.endpoint.server.certificate import Certificate
from stratalog.endpoint.server.front import HTTP2_FIRST
from stratalog.endpoint.server.limits import Limits
from stratalog.endpoint.server.server import GrpcServer

from .echoes import Echoes, ask, client_of, raw, refused, run, served, until
from .frames import WIDE, call


def secure(server: GrpcServer, certificate: Certificate) -> Any:
    credentials = grpc.ssl_channel_credentials(certificate.certificate_pem)
    return grpc.aio.secure_channel(server.address, credentials)


def test_plaintext_and_tls_share_a_port() -> None:
    async def test() -> None:
        async with served() as server, client_of(server) as plain:
            assert await ask(plain, "Echo", b"plain") == b"plain"
            certificate = await server.certificate()
            assert certificate is not None and certificate is await server.certificate()
            async with secure(server, certificate) as channel:
                assert await ask(channel, "Echo", b"secret" * 100_000) == b"secret" * 100_000
            assert await ask(plain, "Echo", b"on") == b"on"

    run(test)


def test_a_certificate_of_the_user_is_served() -> None:
    async def test() -> None:
        mine = Certificate.self_signed("example.test")
        async with served(tls=mine) as server:
            credentials = grpc.ssl_channel_credentials(mine.certificate_pem)
            options = [("grpc.ssl_target_name_override", "example.test")]
            async with grpc.aio.secure_channel(server.address, credentials, options) as channel:
                assert await ask(channel, "Echo", b"a") == b"a"

    run(test)


def test_a_client_that_checks_the_host_takes_the_certificate_by_name_and_by_address() -> None:
    async def test() -> None:
        async with served() as server:
            certificate = await server.certificate()
            assert certificate is not None
            context = ssl.create_default_context(cadata=certificate.certificate_pem.decode())
            context.set_alpn_protocols(["h2"])
            for name in ("localhost", "127.0.0.1", "::1"):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context, server_hostname=name)
                writer.close()
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection("127.0.0.1", server.port, ssl=context, server_hostname="other.test")

    run(test)


def test_tls_is_refused_where_it_is_off() -> None:
    async def test() -> None:
        async with served(tls=None) as server, client_of(server) as plain:
            assert await server.certificate() is None
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(b"\x16\x03\x01")
            assert await reader.read() == b""
            writer.close()
            assert await ask(plain, "Echo", b"on") == b"on"

    run(test)


def test_a_certificate_that_cannot_be_read_or_used_says_so() -> None:
    with pytest.raises(CertificateUnusable, match="cannot be read"):
        Certificate.read("/nowhere", "/nowhere")

    async def test() -> None:
        with pytest.raises(CertificateUnusable, match="cannot be used"):
            await GrpcServer([Echoes().service()], tls=Certificate(b"none", b"none")).start()

    run(test)


def test_a_second_endpoint_on_a_port_is_an_error_and_the_first_goes_on() -> None:
    async def test() -> None:
        async with served() as server, client_of(server) as channel:
            with pytest.raises(AddressInUse, match=f"port {server.port}"):
                await GrpcServer([], port=server.port).start()
            assert await ask(channel, "Echo", b"on") == b"on"
        again = GrpcServer([], port=server.port)  # at once: no waiting for old connections
        await again.start()
        await again.stop(0)
        with pytest.raises(EndpointClosed):
            await again.start()

    run(test)


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("192.0.2.1", 0), ("127.0.0.1", 65536)])
def test_an_address_that_cannot_be_listened_on_is_an_error(host: str, port: int) -> None:
    async def test() -> None:
        with pytest.raises(AddressUnusable, match="cannot listen"):
            await GrpcServer([], host=host, port=port).start()

    run(test)


def test_an_ipv6_host_is_in_brackets() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on this machine")

    async def test() -> None:
        server = GrpcServer([Echoes().service()], host="::1")
        await server.start()
        assert server.address == f"[::1]:{server.port}"
        async with client_of(server) as channel:
            assert await ask(channel, "Echo", b"six") == b"six"
        await server.stop(0)

    run(test)


GARBAGE = (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"PRI * HTTP/1.0\r\n\r\n", b"\xff", b"P" * 1000)


def test_garbage_is_hung_up_on_and_others_go_on() -> None:
    async def test() -> None:
        async with served() as server, client_of(server) as channel:
            for data in (*GARBAGE, HTTP2_FIRST + b"\xff" * 64, b"\x16\x03\x01" + b"\xff" * 64):
                reader, writer = await asyncio.open_connection(server.host, server.port)
                writer.write(data)
                try:
                    while await reader.read(1 << 16):
                        pass
                except ConnectionResetError:
                    pass
                writer.close()
                assert await ask(channel, "Echo", b"on") == b"on"

    run(test)


def test_a_connection_that_sends_nothing_is_closed_in_time() -> None:
    async def test() -> None:
        async with served(limits=Limits(first_byte_s=0.05)) as server:
            for begin in (b"", HTTP2_FIRST[:3], HTTP2_FIRST, b"\x16"):
                reader, writer = await asyncio.open_connection(server.host, server.port)
                writer.write(begin)
                try:
                    while await reader.read(1 << 16):
                        pass
                except ConnectionResetError:
                    pass
                writer.close()
            await until(lambda: server.front is not None and server.front.connections == 0)

    run(test)


def test_connections_over_the_limit_are_closed_and_those_within_it_go_on() -> None:
    async def test() -> None:
        async with served(limits=Limits(connections=3)) as server, AsyncExitStack() as stack:
            channels = [await stack.enter_async_context(client_of(server)) for _ in range(3)]
            for channel in channels:
                await ask(channel, "Echo")
            async with client_of(server) as fourth:
                code, _ = await refused(fourth.unary_unary("/test.Echoes/Echo")(b""))
                assert code == grpc.StatusCode.UNAVAILABLE
            assert server.front is not None and server.front.refused
            assert [await ask(channel, "Echo", b"on") for channel in channels] == [b"on"] * 3
            await channels.pop().close()
            await until(lambda: server.front is not None and server.front.connections == 2)
            async with client_of(server) as another:
                assert await ask(another, "Echo", b"in") == b"in"

    run(test)


def test_a_stream_over_the_limit_waits_for_another_one_of_its_connection() -> None:
    async def test() -> None:
        async with served(limits=Limits(streams=2)) as server, client_of(server) as channel, client_of(server) as other:
            hanging = [channel.unary_unary("/test.Echoes/Hang")(b"") for _ in range(2)]
            await until(lambda: server.calls.counts["Hang"] == 2)
            third = asyncio.ensure_future(ask(channel, "Echo", b"third"))
            assert await ask(other, "Echo", b"other") == b"other"
            assert not third.done()
            hanging[0].cancel()
            assert await third == b"third"

    run(test)


def test_a_slow_reader_holds_up_nobody_else_and_its_stream_ends_when_it_goes() -> None:
    async def test() -> None:
        echoes = Echoes()
        async with served(echoes) as server, client_of(server) as slow, client_of(server) as channel:
            flood = slow.unary_stream("/test.Echoes/Flood")(b"")
            assert len(await flood.read()) == 65536
            for _ in range(20):
                assert await ask(channel, "Echo", b"x" * 100_000) == b"x" * 100_000
            assert echoes.cancelled == []
            flood.cancel()
            await until(lambda: echoes.cancelled == ["flood"])

    run(test)


def test_a_client_that_takes_nothing_is_hung_up_on_in_time() -> None:
    """It asks for more than the system's buffers hold, and reads none of it; or it ends its side, and stays."""

    async def test() -> None:
        limits = Limits(ping_s=0.2, ping_timeout_s=0.1)
        async with served(limits=limits) as server, client_of(server) as channel:
            assert server.front is not None
            ears = raw(server)
            ears.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            ears.sendall(WIDE + call("/test.Echoes/Flood", 1))
            await until(lambda: server.calls.counts["Flood"] == 1)
            half = raw(server)
            half.sendall(HTTP2_FIRST)
            half.shutdown(socket.SHUT_WR)
            assert await ask(channel, "Echo", b"on") == b"on"
            await until(lambda: server.connections <= 1)
            ears.close()
            half.close()

    run(test)


def test_a_client_that_resets_its_connection_ends_its_calls() -> None:
    async def test() -> None:
        echoes = Echoes()
        async with served(echoes) as server:
            channel: Any = grpc.aio.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)])
            hanging = channel.unary_unary("/test.Echoes/Hang")(b"")
            await until(lambda: server.calls.counts["Hang"] == 1)
            assert server.front is not None
            server.front.drop(reset=True)
            code, _ = await refused(hanging)
            assert code == grpc.StatusCode.UNAVAILABLE
            await until(lambda: echoes.cancelled == ["hang"])
            assert await ask(channel, "Echo", b"again", wait_for_ready=True) == b"again"
            await channel.close()

    run(test)


def test_half_open_and_reset_sockets_leave_nothing() -> None:
    async def test() -> None:
        async with served() as server, client_of(server) as channel:
            for first in (b"", HTTP2_FIRST[:5], HTTP2_FIRST, b"\x16"):
                for reset in (False, True):
                    sock = raw(server)
                    sock.sendall(first)
                    if reset:
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    else:
                        sock.shutdown(socket.SHUT_WR)
                    sock.close()
            assert await ask(channel, "Echo", b"on") == b"on"
            await until(lambda: server.front is not None and server.front.connections == 1)

    run(test)


def test_connections_wait_for_descriptors(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with served() as server:
            failures = [24, 24]
            accept = socket.socket.accept

            def full(listening: socket.socket) -> tuple[socket.socket, object]:
                if failures:
                    raise OSError(failures.pop(), "Too many open files")
                return accept(listening)

            monkeypatch.setattr(socket.socket, "accept", full)
            async with client_of(server) as channel:
                assert await ask(channel, "Echo", b"in", wait_for_ready=True) == b"in"
            assert failures == []

    with caplog.at_level(logging.WARNING, "stratalog.endpoint"):
        run(test)
    assert "Too many open files" in caplog.text


def test_bytes_of_all_sizes_pass_whole_in_both_directions() -> None:
    async def test() -> None:
        async with served() as server, client_of(server) as channel:
            bodies = [bytes([size % 251]) * size for size in (0, 1, 9, 16_384, 262_143, 262_145, 4_000_000)]
            got = await asyncio.gather(*(ask(channel, "Echo", body) for body in bodies))
            assert got == bodies

    run(test)
