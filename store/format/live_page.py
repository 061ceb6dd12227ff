"""LIVE: the page by which the writer tells readers in other processes how far each lane is durable.

A page that the writer has mapped and readers map. Nothing of the log depends on it: it may be missing, old or
torn. Each thing in it was true when it was written; it stays true, as the log only grows at its end and shrinks
at its beginning. So a reader takes the largest of what it finds, and never trusts it for a byte (frames are found
along their chain, messages have checksums). It is never forced.
0                        header: store id, lanes, the inode of this very file (a copy of the folder has another
                         one, and its page says nothing), the kernel's boot id (under another one the page may be
                         older than the log), the writer's process, how often the page was opened
2048         u64         the bell: it moves with each slot. Readers sleep on its low half (a futex), when they have
                         looked for 7.5 ms and nothing has moved: a writer wakes them every 5 ms at the most
2056         u64         a word a lane, written after each force: the mark (24 bits of the segment's number, then
                         40 of the position). It has no checksum, so it counts under the same boot id only
2568         u64         the turn: odd while the states of several lanes change at once. Until it is even again, readers
                         go by what follows; so they do if the writer died meanwhile
2576         64 x 16     by lane, the newest sealed segment and the word of the mark as they were before. All of its
                         bits are set in a lane's first word if it does not change; and a checksum of all
3608         u64         the call: committers in other processes move it when they have left a commit, and the writer
                         sleeps on its low half. They hold the lock of the folder `incoming` meanwhile
4096         64 x 2      two slots of 64 bytes a lane: u64 each of the bell as of this writing, the first segment,
                         the newest sealed segment, the mark (segment and position, as in frames), checksum. The
                         older slot is written, so one is whole whenever the writer dies. It is written where
                         segments change, and with a mark when sleepers are to be woken
The order: what the page will say becomes true; the mark is written; now and then the slot, the bell, and the
sleepers are woken; then the appends are answered. The next writer goes on with the page that it finds.

A reader holds a shared lock (flock) of each segment's file that it has open, and looks whether the file has its
name still. Retention takes the name, and asks for the lock then: a locked file is removed, and not used again.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from .layout import BLOCK_BYTES, FORMAT_VERSION, MAX_LANES, SUM, checked, checksum64

LIVE_FILE: Final = "LIVE"
LIVE_MAGIC: Final = b"SLOGLIV2"  # a reader of the first form would wait for its slots, and see too little

_HEADER = struct.Struct("<8sII16sQ16sQQ")
STATE: Final = struct.Struct("<5Q")

OPENINGS_AT: Final = 64  # in the header: the u64 that is another one for each writer
BELL_AT: Final = BLOCK_BYTES // 2  # a u64; its low half is what readers sleep on
MARKS_AT: Final = BELL_AT + 8  # a u64 a lane
POSITION_BITS: Final = 40  # of the word of a mark; the others have the low bits of the segment's number
TURN_AT: Final = MARKS_AT + 8 * MAX_LANES
BEFORE_AT: Final = TURN_AT + 8
BEFORE_BYTES: Final = 16 * MAX_LANES + SUM.size
CALLS_AT: Final = BEFORE_AT + BEFORE_BYTES
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
    """A lane's state in the page. Each part of it was true when it was written, and stays true.

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


Before: TypeAlias = "list[tuple[int, int] | None]"  # by lane: the newest sealed segment and the word of the mark


def pack_before(before: Before) -> bytes:
    """The bytes of the page for lanes that change at once; None for those that do not."""
    words = [word for one in before for word in (one or (_WORD, _WORD))]
    body = struct.pack(f"<{2 * MAX_LANES}Q", *words, *[_WORD] * (2 * (MAX_LANES - len(before))))
    return body + SUM.pack(checksum64(body))


def unpack_before(page: bytes) -> Before | None:
    """The states in these bytes of the page; None if they are torn."""
    body = checked(page, 16 * MAX_LANES)
    if body is None:
        return None
    words = struct.unpack(f"<{2 * MAX_LANES}Q", body)
    return [None if sealed == _WORD else (sealed, mark) for sealed, mark in zip(words[::2], words[1::2], strict=True)]


def state_before(state: LaneState, before: tuple[int, int]) -> LaneState:
    """A lane's state as it was before, of one that may be newer."""
    mark = min(state.mark, mark_of(before[1], state.mark))
    return state._replace(sealed=min(state.sealed, before[0]), sequence=mark[0], position=mark[1])


def mark_at(lane: int) -> int:
    """The position of a lane's mark, one word, in the page."""
    return MARKS_AT + 8 * lane


def mark_word(mark: tuple[int, int]) -> int:
    """A mark (segment, position) as one word, which is written at once: so no reader finds it torn."""
    return (mark[0] << POSITION_BITS | mark[1]) & _WORD


def mark_of(word: int, near: tuple[int, int]) -> tuple[int, int]:
    """The mark of a word. `near` is another one of the lane, within 8 million segments of it."""
    further = ((word >> POSITION_BITS) - near[0] + _HALF_TURN) % (2 * _HALF_TURN) - _HALF_TURN
    return near[0] + further, word & _POSITION


def slot_at(lane: int, turn: int) -> int:
    """The position of one of a lane's two slots in the page."""
    return LANES_AT + (2 * lane + (turn & 1)) * SLOT_BYTES


def newest_state(slots: bytes) -> LaneState | None:
    """The newer one of a lane's two slots; None if neither is whole."""
    states = []
    for at in (0, SLOT_BYTES):
        body = checked(slots[at : at + SLOT_BYTES], STATE.size)
        if body is not None:
            states.append(LaneState(*STATE.unpack(body)))
    return max(states, default=None)
