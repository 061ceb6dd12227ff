"""Rounds: frames of transactions that count together, and the column that says where they lie, one part in each lane.

    places     n x (lane u32, zeros u32, sequence u64, position u64), lanes ascending; its own part among them
    count      u32     n

It is the frame's last column, after the definitions of streams, so it is found from the end. All parts of a round have
the same bytes here. A part is written when all before it in the lane is forced; nothing comes after it in the lane
before all parts are forced.

A part is one frame, or for a large transaction several ones, in one segment, with no other frame between them:

    the first      JOINT, with this column; MORE if others follow
    those between  REST, MORE
    the last       REST; it completes the part

Invariants:
    * a part counts as a whole or not at all: a lane's log never ends inside one. If a frame of it is missing or torn,
      the log ends before the first one, or there is damage;
    * a REST frame proves nothing of what comes before it. It may have been written before the frames between it and the
      first one, or be left of a part that a recovery has cut. So a repair that steps over damage goes on with one only
      if something says that the log has gone on after the part;
    * no frame of a part has a mark (`durable_*`) beyond the part's beginning.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from .layout import JOINT, MAX_LANES, FrameHead

_PLACE = struct.Struct("<IIQQ")
_COUNT = struct.Struct("<I")
MOST_JOINT_BYTES = MAX_LANES * _PLACE.size + _COUNT.size


class JointPlace(NamedTuple):
    """Where a part's frame begins: its lane, and the segment and the position there."""

    lane: int
    sequence: int
    position: int


def pack_joint(places: Sequence[JointPlace]) -> bytes:
    """The column."""
    parts = [_PLACE.pack(lane, 0, sequence, position) for lane, sequence, position in places]
    return b"".join(parts) + _COUNT.pack(len(places))


def joint_bytes(flags: int, columns: bytes) -> int:
    """The size of the column at the end of a frame's columns; 0 if there is none. More than all of them: damaged."""
    if not flags & JOINT:
        return 0
    if len(columns) < _COUNT.size:
        return len(columns) + 1
    return _COUNT.size + _PLACE.size * int(_COUNT.unpack_from(columns, len(columns) - _COUNT.size)[0])


def joint_of(head: FrameHead) -> tuple[JointPlace, ...]:
    """The places in a frame, which is whole; none if it is not JOINT."""
    size = joint_bytes(head.header.flags, head.columns)
    if not size:
        return ()
    found = _PLACE.iter_unpack(head.columns[-size : -_COUNT.size])
    return tuple([JointPlace(lane, sequence, position) for lane, _, sequence, position in found])
