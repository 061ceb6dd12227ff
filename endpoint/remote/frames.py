"""The frames of `stratalog.v1`: how calls, answers and their columns lie in the messages of one gRPC stream.

Client and server each send frames, over one stream of both directions. All numbers are little-endian.

* A *frame* is a call or an answer: a head, a header and n buffers. The head is the header's length and n, both uint32,
  and the lengths of the n buffers, uint64 each. The header is JSON in UTF-8. Header and buffers begin at multiples of
  8 bytes of the frame; zeros fill the gaps. Columns are buffers: int64 numbers, or bytes back to back.
* A frame goes out in *pieces*. A piece has the frame's number (uint32), its own length (uint32), the length of the
  whole frame (uint64), and bytes. The pieces of a frame are in order; those of several frames may take turns.
* A gRPC message is some pieces back to back, of `MESSAGE_BYTES` or little more. So small frames share a message, and a
  large one needs no large message.

The number of a frame is chosen by the client, and the answer has the number of its call. Number 0 is for frames without
an answer.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

MESSAGE_BYTES = 1 << 20  # gRPC's own limit for a message is 4 MiB
PIECE_BYTES = 256 << 10  # of a frame that takes turns with others
MOST_BUFFERS = 64
MOST_FRAME_BYTES = 256 << 20  # of a call
MOST_VALUES = 1 << 20  # of a call's header: as objects, its lists take some 64 bytes for two of their own
MOST_UNFINISHED = 8192  # frames of a connection of which some pieces are there
VALUE_BYTES = 64

Buffer = bytes | bytearray | memoryview | npt.NDArray[Any]

_PIECE = struct.Struct("<IIQ")
_HEAD = struct.Struct("<II")
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class BrokenFrame(Exception):
    """Bytes that are no frame of this service, or more of them than are taken."""


class Frame(NamedTuple):
    """A frame that has arrived: its number, its header and its buffers, which are views of what arrived."""

    number: int
    header: dict[str, Any]
    buffers: list[memoryview]
    size_bytes: int


def pack(header: dict[str, Any], buffers: Sequence[Buffer] = ()) -> list[memoryview]:
    """A frame as parts to send, without a copy of the buffers."""
    text = _ENCODER.encode(header).encode()
    views = [_bytes_of(one) for one in buffers]
    sizes = [one.nbytes for one in views]
    head = _HEAD.pack(len(text), len(views)) + struct.pack(f"<{len(sizes)}Q", *sizes) + text
    parts = [memoryview(head + bytes(-len(head) % 8))]
    for view in views:
        if view.nbytes:
            parts.append(view)
            if view.nbytes % 8:
                parts.append(memoryview(bytes(-view.nbytes % 8)))
    return parts


def _bytes_of(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)  # type: ignore[arg-type]  # numpy's arrays are buffers, say their types from Python 3.12 on
    if view.format == "B" and view.ndim == 1 and view.contiguous:
        return view
    return view.cast("B") if view.nbytes else memoryview(b"")


def values_of(text: bytes | memoryview) -> int:
    """How many values JSON may have at most."""
    text = bytes(text)
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def unpack(number: int, data: memoryview, most_values: int | None = None) -> Frame:
    """The frame in some bytes. Its size counts the values of its header, too. Raises BrokenFrame.

    most_values: of its header, None for any number.
    """
    try:
        text_bytes, count = _HEAD.unpack_from(data)
        if count > MOST_BUFFERS:
            raise BrokenFrame(f"a frame has {count} buffers, and at most {MOST_BUFFERS} are taken")
        sizes = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
        begin = _HEAD.size + 8 * count
        text = bytes(data[begin : begin + text_bytes])
        values = values_of(text)
        if most_values is not None and values > most_values:
            raise BrokenFrame(f"a header has {values} values, and at most {most_values} are taken")
        header = json.loads(text)
    except (struct.error, ValueError, RecursionError) as error:
        raise BrokenFrame(f"a frame cannot be read: {error}") from None
    if not isinstance(header, dict):
        raise BrokenFrame("a frame's header is not an object")
    at = (begin + text_bytes + 7) & ~7
    buffers = []
    for size in sizes:
        if at + size > data.nbytes:
            raise BrokenFrame("a frame is shorter than its buffers")
        buffers.append(data[at : at + size])
        at = (at + size + 7) & ~7
    return Frame(number, header, buffers, data.nbytes + VALUE_BYTES * values)


class Outgoing:
    """Frames on their way out, cut into messages. One thread at a time uses it.

    Attributes:
        size_bytes: of what waits.
    """

    def __init__(self, *, in_turn: bool) -> None:
        """With `in_turn` a long frame holds up no short one after it; else frames go out in the order in which they
        were added."""
        self._in_turn = in_turn
        self._waiting: deque[tuple[int, deque[memoryview], int]] = deque()  # number, parts, bytes of the whole frame
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, number: int, parts: Sequence[memoryview]) -> int:
        """Add a frame; return its length."""
        size = sum([part.nbytes for part in parts])
        self._waiting.append((number, deque(parts), size))
        self.size_bytes += size
        return size

    def take(self) -> bytes:
        """The next message; empty if nothing waits."""
        found: list[bytes | memoryview] = []
        room = MESSAGE_BYTES
        while self._waiting and room > 0:
            number, parts, size = self._waiting.popleft()
            most = min(room, PIECE_BYTES) if self._in_turn else room
            piece, length = _cut(parts, most)
            found += [_PIECE.pack(number, length, size), *piece]
            room -= length + _PIECE.size
            self.size_bytes -= length
            if parts and self._in_turn:
                self._waiting.append((number, parts, size))
            elif parts:
                self._waiting.appendleft((number, parts, size))
        return b"".join(found)


def _cut(parts: deque[memoryview], most: int) -> tuple[list[memoryview], int]:
    """Take up to so many bytes from the front."""
    taken, length = [], 0
    while parts and length < most:
        part = parts.popleft()
        if length + part.nbytes > most:
            parts.appendleft(part[most - length :])
            part = part[: most - length]
        taken.append(part)
        length += part.nbytes
    return taken, length


class Incoming:
    """Puts the frames of messages together again. One thread at a time uses it.

    Invariant: a frame takes memory for the bytes that have arrived, whatever length it is said to have.

    Attributes:
        arrived_bytes: of frames of which some pieces are there.
        left_bytes: of the message that is fed: what no frame has yet.
    """

    def __init__(self, most_bytes: int, most_values: int | None = None) -> None:
        """`most_bytes` is the most that a frame may have, and all unfinished ones together; `most_values` the most
        values of a header."""
        self._most_bytes = most_bytes
        self._most_values = most_values
        self._unfinished: dict[int, tuple[bytearray, int]] = {}  # by number: what has arrived, and the whole length
        self._held_bytes = 0
        self._dropped: dict[int, int] = {}  # by number: how many bytes are still to come, and go nowhere
        self.arrived_bytes = self.left_bytes = 0

    def feed(self, message: bytes) -> Iterator[Frame]:
        """The frames that a message completes. Raises BrokenFrame."""
        view, at = memoryview(message), 0
        while at < len(message):
            if at + _PIECE.size > len(message):
                raise BrokenFrame("a message ends in the head of a piece")
            number, length, size = _PIECE.unpack_from(message, at)
            at += _PIECE.size
            if at + length > len(message) or length > size:
                raise BrokenFrame("a piece is longer than its message or its frame")
            piece = view[at : at + length]
            at += length
            self.left_bytes = len(message) - at
            if length == size and number not in self._unfinished and number not in self._dropped:
                yield unpack(number, piece, self._most_values)
            elif (whole := self._joined(number, piece, size)) is not None:
                yield unpack(number, memoryview(whole), self._most_values)

    def _joined(self, number: int, piece: memoryview, size: int) -> bytearray | None:
        """Add a piece to its frame; the frame's bytes if that was the last one."""
        if number in self._dropped:
            self._pass_by(number, piece)
            return None
        found = self._unfinished.get(number)
        if found is None:
            self._held_bytes += size
            if self._held_bytes > self._most_bytes:
                raise BrokenFrame(f"a call has more than {self._most_bytes} bytes, the most that are taken")
            if len(self._unfinished) >= MOST_UNFINISHED:
                raise BrokenFrame(f"more than {MOST_UNFINISHED} frames are not complete")
            found = self._unfinished[number] = bytearray(), size
        arrived, whole_bytes = found
        if len(arrived) + piece.nbytes > whole_bytes or not piece.nbytes:
            raise BrokenFrame("the pieces of a frame have more bytes than the frame, or none")
        arrived += piece
        self.arrived_bytes += piece.nbytes
        if len(arrived) < whole_bytes:
            return None
        del self._unfinished[number]
        self._held_bytes -= whole_bytes
        self.arrived_bytes -= whole_bytes
        return arrived

    def drop(self) -> list[int]:
        """Forget the frames that are not complete, and what is still to come of them; their numbers.

        Raises BrokenFrame if there are too many whose rest has not come.
        """
        dropped = {number: size - len(arrived) for number, (arrived, size) in self._unfinished.items()}
        if len(self._dropped) + len(dropped) > MOST_UNFINISHED:
            raise BrokenFrame(f"more than {MOST_UNFINISHED} frames are not complete")
        self._dropped |= dropped
        self._unfinished.clear()
        self._held_bytes = self.arrived_bytes = 0
        return list(dropped)

    def _pass_by(self, number: int, piece: memoryview) -> None:
        """A piece of a frame that was dropped. Raises BrokenFrame."""
        left = self._dropped[number] - piece.nbytes
        if left < 0 or not piece.nbytes:
            raise BrokenFrame("the pieces of a frame have more bytes than the frame, or none")
        if left:
            self._dropped[number] = left
        else:
            del self._dropped[number]
