"""How large the footer of a lane's open segment may become: its room is kept free in the segment.

A segment that has its footer's place takes no space when it is sealed, by the writer or by a recovery: so neither waits
for a full disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..format.footer import ENTRY_BYTES, FIXED_BYTES, FRAME_BYTES, STREAM_BYTES, SUMS_SHARE, TRIM_BYTES

if TYPE_CHECKING:
    from .names import NamedStream
    from .open_table import OpenTable

MOST_SHARE = 3  # times its own bytes, a frame adds to the footer at the most: a definition has a name and 10 bytes more
NAMES_SHARE = 64  # packed names may be larger than the names by a 64th


class FooterRoom:
    """Upper bounds for one lane; its builder alone asks.

    Streams only join: each is counted once. Of queues of one topic that join one after the other, only the first counts
    the name.

    Attributes:
        fixed_bytes: what the footer of a segment without messages takes, as of the newest frame.
    """

    def __init__(self) -> None:
        self.fixed_bytes = FIXED_BYTES
        self._streams = 0
        self._names = 0
        self._last = ""

    def begin(self, streams: int, names_bytes: int) -> None:
        """Begin with the newest footer: its number of streams, and its bytes of names."""
        self._streams, self._names = streams, names_bytes

    def update(self, streams: Sequence[NamedStream], trimmed: int, applied_bytes: int) -> int:
        """Bring `fixed_bytes` up to date for a lane with these streams, and return it."""
        for stream in streams[self._streams :] if len(streams) > self._streams else ():
            if stream.topic != self._last:
                self._last = stream.topic
                self._names += len(stream.topic.encode()) + 1
        self._streams = len(streams)
        names = self._names + self._names // NAMES_SHARE
        tables = STREAM_BYTES * self._streams + TRIM_BYTES * trimmed
        self.fixed_bytes = FIXED_BYTES + _summed(names + tables + applied_bytes)
        return self.fixed_bytes


def share_of_frame(messages: int, new_topics: Iterable[str] = (), trims: int = 0) -> int:
    """The most that one frame adds to its segment's footer; a topic for each new stream, a trim for each record."""
    named = sum([STREAM_BYTES + len(topic.encode()) + 1 for topic in new_topics])
    return _summed(FRAME_BYTES + ENTRY_BYTES * messages + named + named // NAMES_SHARE + TRIM_BYTES * trims)


def table_bytes(table: OpenTable) -> int:
    """The bytes that the frames of an open segment take in its footer."""
    return _summed(FRAME_BYTES * len(table.frame_position) + ENTRY_BYTES * table.entries)


def _summed(size: int) -> int:
    """A size, with that of the checksums of so many bytes."""
    return size + size // SUMS_SHARE + 1
