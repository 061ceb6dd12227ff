"""The note of committers: which commits each lane's log has, up to one of its frames. The file `incoming/APPLIED`.

Whoever commits beside a writer looks for the commits that the log has behind its newest footer. It leaves this note,
and the next one begins at the frame that the note names. The note is never forced. It may be missing, old, torn, of
another store, or of a log that was put back since. So it counts for a lane only if its checksum holds, and the frame
stands at its place in the durable log with the checksum that the note has of it. That checksum covers the one of the
frame before it, and so on: two logs that have it in common have the same commits up to there.

    magic, version, store id, lanes
    of each lane: the segment and the position of the frame, its checksum, the number of the lane's stream of records or
                  -1, the size of a section; and the section, as footers have it (`applied`). Segment 0: nothing is
                  noted
    checksum of all before it
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from .layout import FORMAT_VERSION, SUM, checksum64

NOTE_FILE: Final = "APPLIED"
NOTE_MAGIC: Final = b"SLOGNOTE"
NO_NUMBER: Final = -1

_HEAD = struct.Struct("<8sI16sI")
_LANE = struct.Struct("<QQQqI")


class LaneNote(NamedTuple):
    """What is noted of a lane; see the module's text."""

    sequence: int
    position: int
    chain: int
    records: int
    applied: bytes


NO_NOTE: Final = LaneNote(0, 0, 0, NO_NUMBER, b"")


def pack_note(store_id: bytes, lanes: Sequence[LaneNote]) -> bytes:
    """The bytes of a note."""
    parts = [_HEAD.pack(NOTE_MAGIC, FORMAT_VERSION, store_id, len(lanes))]
    for one in lanes:
        parts += _LANE.pack(*one[:4], len(one.applied)), one.applied
    body = b"".join(parts)
    return body + SUM.pack(checksum64(body))


def unpack_note(content: bytes, store_id: bytes, lanes: int) -> list[LaneNote]:
    """The note of each lane; NO_NOTE for all where the bytes are none of this store."""
    nothing = [NO_NOTE] * lanes
    at = len(content) - SUM.size
    if at < _HEAD.size or SUM.unpack_from(content, at)[0] != checksum64(content[:at]):
        return nothing
    if _HEAD.unpack_from(content) != (NOTE_MAGIC, FORMAT_VERSION, store_id, lanes):
        return nothing
    found, begin = [], _HEAD.size
    for _ in range(lanes):
        if at - begin < _LANE.size:
            return nothing
        sequence, position, chain, records, size = _LANE.unpack_from(content, begin)
        begin += _LANE.size + size
        found.append(LaneNote(sequence, position, chain, records, content[begin - size : begin]))
    return found if begin == at else nothing
