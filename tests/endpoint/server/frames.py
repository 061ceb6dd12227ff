"""Frames of HTTP/2, written by hand: what no client's library would send."""

from __future__ import annotations

import struct

from stratalog.endpoint.server.front import HTTP2_FIRST

DATA, HEADERS, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers(path: str) -> bytes:
    """Of a call: POST, http, the path, an authority, the type and te."""
    return (
        b"\x83\x86\x04" + bytes([len(path)]) + path.encode() + b"\x01\x01x\x0f\x10\x10application/grpc"
        + literal(b"te", b"trailers")
    )  # fmt: skip


def call(path: str, stream: int, *, ends: bool = True) -> bytes:
    """A call, with an empty request."""
    begin = frame(HEADERS, END_HEADERS, stream, headers(path))
    return begin + frame(DATA, END_STREAM, stream, bytes(5)) if ends else begin


BEGIN = HTTP2_FIRST + frame(SETTINGS, 0, 0)
WIDE = (
    HTTP2_FIRST + frame(SETTINGS, 0, 0, b"\0\4\x7f\xff\xff\xff") + frame(WINDOW, 0, 0, b"\x7f\0\0\0")
)  # the client takes as much as is sent
ECHO = "/test.Echoes/Echo"
FLOODS = {
    "streams that are reset at once": b"".join(
        call(ECHO, stream, ends=False) + frame(RESET, 0, stream, struct.pack(">I", 8)) for stream in range(1, 4001, 2)
    ),
    "streams that never end": b"".join(call("/test.Echoes/Chat", stream, ends=False) for stream in range(1, 4001, 2)),
    "pings": frame(PING, 0, 0, b"12345678") * 20_000,
    "settings": frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535)) * 20_000,
    "headers without an end": frame(HEADERS, 0, 1, headers(ECHO))
    + frame(CONTINUATION, 0, 1, literal(b"x" * 50, b"y" * 100) * 50) * 100,
    "headers that are too large": b"".join(
        frame(HEADERS, END_HEADERS, stream, headers(ECHO) + literal(b"x" * 100, b"y" * 120) * 70)
        for stream in range(1, 100, 2)
    ),
    "lengths that lie": b"".join(
        call(ECHO, stream, ends=False) + frame(DATA, 0, stream, b"\0" + struct.pack(">I", 60 << 20) + b"x")
        for stream in range(1, 1001, 2)
    ),
    "a request that is no call": frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x82\x86\x84\x01\x01x"),
    "frames of streams that there are not": frame(DATA, 0, 99, bytes(100)) * 100,
}
