"""LIVE: the page by which the writer tells readers in other processes how far each lane is durable.

The text of `layout` describes its place in the format. Nothing in it is trusted for a message's bytes.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from .layout import BLOCK_BYTES, FORMAT_VERSION, MAX_LANES, SUM, checked, checksum64

LIVE_FILE: Final = "LIVE"
LIVE_MAGIC: Final = b"SLOGLIV2"  # a reader of the first form would wait for its slots, and see too little

_HEADER = struct.Struct("<8sII16sQ16sQQ")
STATE: Final = struct.Struct("<5Q")

BELL_AT: Final = BLOCK_BYTES // 2  # a u64; its low half is what readers sleep on
MARKS_AT: Final = BELL_AT + 8  # a u64 a lane
POSITION_BITS: Final = 40  # of the word of a mark; the others have the low bits of the segment's number
SLOT_BYTES: Final = 64
LANES_AT: Final = BLOCK_BYTES
PAGE_BYTES: Final = LANES_AT + MAX_LANES * 2 * SLOT_BYTES

_WORD: Final = (1 << 64) - 1
_POSITION: Final = (1 << POSITION_BITS) - 1
_HALF_TURN: Final = 1 << 63 - POSITION_BITS


class LiveHeader(NamedTuple):
    """The first part of the page.

    Attributes:
        store_id, lanes: of the store; another store's page says nothing.
        inode: of the page's file. A copy of the folder has another one, and its page says nothing.
        boot_id: of the kernel under which the writer ran. Under another one the page may be older than the log.
        pid: the writer's process, for people.
        openings: how often a writer has opened this page.
    """

    lanes: int
    store_id: bytes
    inode: int
    boot_id: bytes
    pid: int
    openings: int

    def pack(self) -> bytes:
        body = _HEADER.pack(LIVE_MAGIC, FORMAT_VERSION, *self)
        return body + SUM.pack(checksum64(body))

    @classmethod
    def unpack(cls, page: bytes) -> LiveHeader | None:
        """The header, or None when the bytes are not one."""
        body = checked(page, _HEADER.size)
        if body is None:
            return None
        magic, version, *fields = _HEADER.unpack(body)
        return cls(*fields) if (magic, version) == (LIVE_MAGIC, FORMAT_VERSION) else None


class LaneState(NamedTuple):
    """What the page says of a lane. Each of it was true when it was written, and stays true.

    Attributes:
        bell: the page's bell as of this writing.
        first: the number of the log's first segment; 0 if the lane has none.
        sealed: the number of the newest sealed segment; 0 if there is none.
        sequence, position: the mark. The log was forced up to this position of this segment, and a message ends there.
    """

    bell: int
    first: int
    sealed: int
    sequence: int
    position: int

    @property
    def mark(self) -> tuple[int, int]:
        """(sequence, position)."""
        return self.sequence, self.position

    def pack(self) -> bytes:
        body = STATE.pack(*self)
        return body + SUM.pack(checksum64(body))


NO_STATE: Final = LaneState(0, 0, 0, 0, 0)


def mark_at(lane: int) -> int:
    """Where the page has a lane's mark as one word."""
    return MARKS_AT + 8 * lane


def mark_word(mark: tuple[int, int]) -> int:
    """A mark (segment, position) as one word, which is written at once: so no reader finds it torn."""
    return (mark[0] << POSITION_BITS | mark[1]) & _WORD


def mark_of(word: int, near: tuple[int, int]) -> tuple[int, int]:
    """The mark of a word. `near` is another one of the lane, within 8 million segments of it."""
    further = ((word >> POSITION_BITS) - near[0] + _HALF_TURN) % (2 * _HALF_TURN) - _HALF_TURN
    return near[0] + further, word & _POSITION


def slot_at(lane: int, turn: int) -> int:
    """Where the page has one of a lane's two slots."""
    return LANES_AT + (2 * lane + (turn & 1)) * SLOT_BYTES


def newest_state(slots: bytes) -> LaneState | None:
    """The newer one of a lane's two slots; None if neither is whole."""
    states = []
    for at in (0, SLOT_BYTES):
        body = checked(slots[at : at + SLOT_BYTES], STATE.size)
        if body is not None:
            states.append(LaneState(*STATE.unpack(body)))
    return max(states, default=None)
