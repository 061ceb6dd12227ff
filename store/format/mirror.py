"""The mirror: memory in which the writer keeps a copy of the newest durable bytes of each lane, for other processes.

It is never on a disk, and goes with the last process that maps it. All numbers are little-endian:

    0             header: magic, store id, lanes (u32), bytes of a lane's ring, inode and number of openings of the
                  writer's live page (u64 each), checksum
    4096 + n * (4096 + bytes of a ring)
                  lane n: words (u64) `LOW`, `END`, and a table of segments; 4096 bytes further its ring

The bytes of the lane positions LOW .. END - 1 are durable, and lie at their position modulo the size of the ring. The
writer raises LOW before it overwrites, and END after it has copied. So what a reader has copied is intact if LOW is not
higher afterwards. Nothing in it is trusted for a message's bytes: checksums and the chain of frames are.

An entry of the table is a segment's number and the lane position of its beginning. It stands at the number modulo
`TABLE_ENTRIES`. While it is changed, its number is 0.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from .layout import BLOCK_BYTES, SUM, checked, checksum64
from .live_page import LiveHeader

MIRROR_MAGIC: Final = b"SLOGMIR2"
_HEADER = struct.Struct("<8s16sIQQQ")

LOW: Final = 0  # words of a lane
END: Final = 1
TABLE: Final = 8
TABLE_ENTRIES: Final = 64
WORDS_BYTES: Final = BLOCK_BYTES


class MirrorHeader(NamedTuple):
    """The first part.

    Attributes:
        store_id, lanes: of the store.
        ring_bytes: of each lane's ring, a multiple of the block.
        inode, opening: of the writer's live page, and how often that was opened: whose mirror it is.
    """

    store_id: bytes
    lanes: int
    ring_bytes: int
    inode: int
    opening: int

    def pack(self) -> bytes:
        body = _HEADER.pack(MIRROR_MAGIC, *self)
        return body + SUM.pack(checksum64(body))

    @classmethod
    def unpack(cls, data: bytes) -> MirrorHeader | None:
        """The header, or None when the bytes are not one."""
        body = checked(data, _HEADER.size)
        if body is None:
            return None
        magic, *fields = _HEADER.unpack(body)
        return cls(*fields) if magic == MIRROR_MAGIC else None

    def is_of(self, page: LiveHeader) -> bool:
        """Whether it is the mirror of the writer that this live page names."""
        mine = self.store_id, self.lanes, self.inode, self.opening
        return mine == (page.store_id, page.lanes, page.inode, page.openings)

    @property
    def size_bytes(self) -> int:
        """The size of the whole mirror."""
        return BLOCK_BYTES + self.lanes * (WORDS_BYTES + self.ring_bytes)

    def words_at(self, lane: int) -> int:
        """The position of a lane's words; its ring is after them."""
        return BLOCK_BYTES + lane * (WORDS_BYTES + self.ring_bytes)


def mirror_name(store_id: bytes, opening: int) -> str:
    """The name by which the writer's open memory is known to the kernel. `opening` is counted by the live page."""
    return f"stratalog-{store_id.hex()}-{opening}"


def table_word(sequence: int) -> int:
    """The word of a segment's number in the table; where it begins is in the next one."""
    return TABLE + 2 * (sequence % TABLE_ENTRIES)
