"""The rule for what is damage, in one place: recovery, repair, verify and inspect all decide by it.

* A lane's folder is made before the store is: a lane without one is damaged.
* START says where a lane's log begins. A segment below it is being removed; a first segment above it is missing. START
  itself is needed only where the log does not begin with segment 1.
* Segments are begun in the order of their numbers. So a number without a file is a missing segment if a later file is
  in use, or if it comes before the first spare. After that spare nothing was ever begun, and a gap does no harm.
* Retention leaves the newest sealed segment. So a log that begins after segment 1 has a segment in use.
* The log was durable beyond a place if a later segment is closed or sealed, or if a frame says so.
* Block 1 of a segment is zeros until all of its frames were forced. So a seal record that is damaged, and not zeros,
  says as much as a whole one: all that was appended is durable, and what does not continue the frames is damage, no
  torn tail. Its frames end where what is left of its `chain` says so, else where no later frame of this segment
  follows.
* A file has a segment's name only once it is pre-written as a whole. So one that ends before its first frame was cut by
  somebody, whatever is left of its header, and is no spare. Block 1 is not there: that is no block of zeros, and nobody
  knows that the segment was open.
* A file whose header names another store, lane or number was put there by somebody, also if some bits of that header
  are flipped.
* A segment's frames end where the next segment's header says so. Without a next segment they end where the seal record
  says so. A sealed segment is never changed, so its record holds beside a next segment. Appending to a cleanly closed
  one first takes its record back. So the record of a closed segment is an old copy if there is a next segment, or if
  the next file has a first frame of its own, also with a damaged header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ..device.lane_start import FoundStart
from ..format.layout import (
    BLOCK_BYTES,
    CLOSED,
    DATA_START,
    SEAL_BYTES,
    START_FILE,
    UNLINKED,
    FrameHeader,
    SealRecord,
    SegmentHeader,
    read_frame_header,
)

if TYPE_CHECKING:
    from .scanner import FrameScanner

Mark = tuple[int, int]  # (sequence, position): everything before it was durable

HEAD_BYTES = DATA_START + BLOCK_BYTES
FEW_BITS = 6
MANY_BITS = 32  # two ids of 128 random bits differ in fewer once in hundreds of millions

LANE_IS_MISSING = "a lane is missing"
SEGMENT_IS_MISSING = "a segment is missing"
SEGMENT_IS_CUT = "the segment is cut short"
START_IS_LOST = f"the {START_FILE} file, which says where the lane's log begins, is damaged or missing"


def mark_of(frame: FrameHeader) -> Mark:
    """The mark that a frame has: how far the lane was durable when it was built."""
    return frame.durable_sequence, frame.durable_position


def trace_of(block: bytes) -> bytes:
    """A segment's block 1 if it has a damaged seal record; empty where it is zeros, or a whole record."""
    return block if any(block) and SealRecord.unpack(block) is None else b""


def is_durable_beyond(place: Mark, ended: Iterable[bool], frames: Iterable[FrameHeader]) -> bool:
    """Was the lane durable beyond `place`? It was if a record or a frame of the segments from there on says so.

    A segment is sealed or closed after all before it was forced. The frames are only asked for if no record tells.

    Args:
        ended: of each segment whether it has a seal record, whole or damaged.
    """
    return any(ended) or any(mark_of(frame) > place for frame in frames)


def _ends_by_trace(trace: bytes, scanner: FrameScanner) -> bool:
    """Does a segment's log end where the scanner stands, by its damaged seal record and by what stands there?"""
    left = SealRecord.guess(trace).chain
    if is_nearly(left.to_bytes(8, "little"), scanner.chain.to_bytes(8, "little")):
        return True
    if is_flipped(trace, scanner.sequence):
        return False
    at, end = scanner.position, scanner.reader.size_bytes
    if at == DATA_START:  # each segment was begun with a frame: it is gone with the record
        return False
    return not any(map(scanner.is_like_ours, scanner.places_from(at))) and not scanner.find_later(at, end)


def is_end(
    scanner: FrameScanner, record: SealRecord | None, trace: bytes, following: SegmentHeader | None,
    *, is_outlasted: bool,
) -> bool:  # fmt: skip
    """Do a segment's frames end where the scanner stands, by its own record or by the header of the segment after it?

    Args:
        trace: its seal record, if that is damaged.
        following: the header of the segment in use after it.
        is_outlasted: a frame in a file without a header says that the log was durable beyond this place.
    """
    if following is not None and not is_unlinked(following) and scanner.chain == following.previous_chain:
        return True
    if trace and following is None and not is_outlasted and _ends_by_trace(trace, scanner):
        return True
    if record is None or (record.state == CLOSED and (following is not None or is_outlasted)):
        return False
    return scanner.chain == record.chain


def is_unlinked(header: SegmentHeader) -> bool:
    """Is this the header of a repair that does not know yet what comes before the segment?"""
    return header.is_rebuilt and header.previous_chain == UNLINKED


def is_lost(found: FoundStart, numbers: Iterable[int]) -> bool:
    """Must START's damage be reported? `numbers` are those of all segment files."""
    return found.start is None and min(numbers, default=1) > 1


def first_number(found: FoundStart, numbers: Iterable[int]) -> int:
    """The first segment of the log: START's, else the first that there is."""
    return found.start.sequence if found.start is not None else min(numbers, default=1)


def is_of_another_store(
    head: bytes,
    lane: int,
    store_id: bytes | None,
    sequence: int,
    before: SealRecord | None,
    following: SegmentHeader | None,
) -> bool:
    """Is a damaged header one of another store's segment, with some bits flipped? Frames do not name their store.

    It is if three things hold: the first frame has the checksum of this header, the fields that it shares with ours are
    nearly right, and the store's id looks like an id and is nothing like ours. A bad patch of our own header is told
    apart: with our id put back it has its checksum again, or a neighbour knows the segment.

    Args:
        head: the file's first HEAD_BYTES.
        before: the seal record of the segment before it, if that has one.
        following: the header of the segment after it, if that is in use.
    """
    start, found, checksum = SegmentHeader.guess(head)
    frame = read_frame_header(head[DATA_START:], 0)
    if store_id is None or frame is None or frame.chain != checksum:
        return False
    ours = found._replace(lane=lane, store_id=store_id, sequence=sequence)
    if ours.chain == checksum or (before is not None and before.chain == found.previous_chain):
        return False
    record = SealRecord.unpack(head[BLOCK_BYTES:DATA_START])
    if record is not None and following is not None and record.chain == following.previous_chain:
        return False
    expected = ours.pack()[: len(start)] + lane.to_bytes(4, "little") + sequence.to_bytes(8, "little")
    shared = start + found.lane.to_bytes(4, "little") + found.sequence.to_bytes(8, "little")
    is_like_ours = _distance(shared, expected) <= FEW_BITS
    is_an_id = MANY_BITS <= _distance(found.store_id, bytes(len(store_id))) <= 8 * len(store_id) - MANY_BITS
    return is_like_ours and is_an_id and _distance(found.store_id, store_id) >= MANY_BITS


def is_flipped(trace: bytes, sequence: int) -> bool:
    """Is a damaged seal record this segment's, whole except some flipped bits? Then its `chain` is evidence.

    If a power cut has torn its writing, the beginning or the end is zeros.
    """
    expected = SealRecord(CLOSED, sequence, 0, 0, 0, 0, 0).pack()
    begins = is_nearly(trace[:12] + trace[16:24], expected[:12] + expected[16:24])  # magic and version, sequence
    return begins and any(trace[SEAL_BYTES - 4 : SEAL_BYTES])


def is_nearly(one: bytes, other: bytes) -> bool:
    """Are two rows of bytes the same except some flipped bits?"""
    return len(one) == len(other) and _distance(one, other) <= FEW_BITS


def is_nearly_ours(block: bytes, lane: int, store_id: bytes | None, sequence: int) -> bool:
    """Is a damaged block 0 the header of this segment, except some flipped bits?"""
    start, found, _ = SegmentHeader.guess(block)
    ours = found._replace(lane=lane, store_id=found.store_id if store_id is None else store_id, sequence=sequence)
    size = len(start) + 4 + 16 + 8  # up to the sequence
    return is_nearly(block[:size], ours.pack()[:size])


def _distance(one: bytes, other: bytes) -> int:
    """The number of bits in which they differ."""
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).bit_count()


def missing_numbers(first: int, used: Sequence[int], spares: Sequence[int]) -> Iterator[range]:
    """The numbers of missing segments, stretch by stretch.

    Args:
        first: the first number of the log.
        used: numbers of the files in use, ascending, also of those whose first block is damaged.
        spares: numbers of the files after them, ascending.
    """
    if not used and first > 1:
        yield range(first, max(first + 1, *spares[:1]) if spares else first + 1)
        return
    for before, after in pairwise([first - 1, *used, *spares[:1]]):
        if after > before + 1:
            yield range(before + 1, after)
