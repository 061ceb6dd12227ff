"""FIGURES: the page in which the writer tells its figures to programs that watch the store.

It is there only after somebody has watched: a watcher holds a shared lock (flock) of the file STORE, and while there is
one the writer replaces what the page says, once a second at most. Nothing depends on it. It is never forced, and it may
be old or torn: a watcher believes it once its serial number has changed under the watcher's eyes.

0     magic (8), u64 each of the serial number of the writing, and of the size of the body; checksum of these
32    the checksum of the body
40    the body: JSON in UTF-8, see `api.watching`
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from .layout import SUM, checked, checksum64

FIGURES_FILE: Final = "FIGURES"
FIGURES_MAGIC: Final = b"SLOGFIG1"
FIGURES_BYTES: Final = 128 << 10

_HEAD = struct.Struct("<8sQQ")
_SUM_AT: Final = _HEAD.size + SUM.size
_BODY_AT: Final = _SUM_AT + SUM.size
MOST_BODY_BYTES: Final = FIGURES_BYTES - _BODY_AT


class FiguresPage(NamedTuple):
    """What the page says.

    Attributes:
        serial: another number with each writing.
        body: at most MOST_BODY_BYTES.
    """

    serial: int
    body: bytes

    def pack(self) -> bytes:
        head = _HEAD.pack(FIGURES_MAGIC, self.serial, len(self.body))
        return head + SUM.pack(checksum64(head)) + SUM.pack(checksum64(self.body)) + self.body

    @classmethod
    def unpack(cls, page: bytes) -> FiguresPage | None:
        """What the page says; None if the bytes are not one, or torn."""
        head = checked(page, _HEAD.size)
        if head is None:
            return None
        magic, serial, size = _HEAD.unpack(head)
        body = page[_BODY_AT : _BODY_AT + size]
        if magic != FIGURES_MAGIC or len(body) != size or SUM.pack(checksum64(body)) != page[_SUM_AT:_BODY_AT]:
            return None
        return cls(serial, body)
