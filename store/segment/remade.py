"""A damaged footer made again in memory, of its segment's frames: the messages are whole, so they stay readable.

A frame has only the low 16 bits of its messages' offsets. The offsets at the borders of its neighbours say the rest:

* where no frame is missing, a stream's messages end where the next segment begins (or begin where the one before ends),
  and the low bits of each message are a check;
* where frames are missing as well, both neighbours must be known. The low bits then say how many messages are missing
  in front of each, as long as fewer than 65,536 of a stream can be: else nothing is made, rather than guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..format.dues import NO_DUES, DueRange
from ..format.footer import Footer, FooterData, by_stream
from ..format.layout import LOST_ENTRY, SealRecord, kept_messages
from .names import NamedStream, names_of
from .scanner import FrameScanner, chunks_of
from .segment import Segment

Offsets = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.unsignedinteger]

LOWS = 1 << 16  # values of an offset's low bits


@dataclass
class _Frames:
    """The columns of a segment's frames, in log order."""

    numbers: bytearray = field(default_factory=bytearray)  # uint32, one a message
    lows: bytearray = field(default_factory=bytearray)  # uint16
    positions: list[int] = field(default_factory=list)
    first_entries: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    dues: DueRange = NO_DUES

    def entries(self) -> npt.NDArray[np.uint32]:
        """The entry number of each message."""
        firsts, counts = np.array(self.first_entries, np.int64), np.array(self.counts, np.int64)
        begins = counts.cumsum() - counts
        return (np.arange(int(counts.sum())) + (firsts - begins).repeat(counts)).astype(np.uint32)


class FooterRemaker:
    """Makes the footer of one sealed segment again.

    `begins` and `ends` (streams,): where each stream stands before the segment and after it; None if unknown. They may
    be of fewer streams than there are: later ones begin at 0.
    """

    def __init__(self, segment: Segment, record: SealRecord) -> None:
        self._segment = segment
        self._record = record

    def footer(self, streams: Sequence[NamedStream], begins: Offsets | None, ends: Offsets | None) -> Footer | None:
        """The footer, if the frames and the neighbours prove it. Raises OSError."""
        frames, is_whole = self._walk()
        numbers: Numbers = np.frombuffer(frames.numbers, np.uint32)
        lows = np.frombuffer(frames.lows, np.uint16)
        count = max(int(numbers.max(initial=0)) + 1 if len(numbers) else 0, *(map(len, _known(begins, ends))), 0)
        if count > len(streams) or (ends is not None and count > len(ends)):
            return None
        placed = _place(numbers, lows, _grown(begins, count), _grown(ends, count), is_whole=is_whole)
        if placed is None:
            return None
        first, start, order = placed
        entries = np.full(len(order), LOST_ENTRY, np.uint32)
        entries[order >= 0] = frames.entries()[order[order >= 0]]
        data = FooterData(
            *names_of(streams[:count]), first, start.astype(np.uint32), entries,
            np.array(frames.positions, np.uint32), np.array(frames.first_entries, np.uint32),
            np.array(frames.times, np.int64), np.array(frames.flags, np.uint16), frames.dues,
        )  # fmt: skip
        content = data.pack(self._segment.sequence)
        record = self._record._replace(footer_bytes=len(content))
        return Footer(None, str(self._segment.path), record, content)

    def _walk(self) -> tuple[_Frames, bool]:
        """The frames that can be had, and whether they are all of them."""
        found = _Frames()
        with chunks_of(self._segment.open_sequential(), self._record.data_end) as reader:
            scanner = FrameScanner.after_header(reader, self._segment.header)
            is_whole = not self._segment.header.is_rebuilt
            while self._next(scanner, found):
                pass
            while scanner.position < reader.size_bytes:  # a frame is missing; go on after it
                is_whole = False
                entry = found.first_entries[-1] + found.counts[-1] if found.counts else 0
                following = next(scanner.find_from(entry), None)
                if following is None:
                    break
                scanner.resume(following)
                while self._next(scanner, found):
                    pass
        is_whole = is_whole and scanner.chain == self._record.chain and sum(found.counts) == self._record.entries
        return found, is_whole

    def _next(self, scanner: FrameScanner, found: _Frames) -> bool:
        """Take the frame at the scanner's place, or after padding; False if there is none on the chain."""
        frame = scanner.next_frame()
        if frame is None:
            if scanner.chain == self._record.chain or scanner.padded >= self._record.data_end:
                scanner.position = self._record.data_end  # nothing but padding is left
            return False
        header = frame.header
        kept = kept_messages(self._record, header)
        found.numbers += frame.numbers[:kept].tobytes()
        found.lows += frame.lows[:kept].tobytes()
        found.positions.append(header.position)
        found.first_entries.append(header.first_entry)
        found.counts.append(kept)
        found.times.append(header.time_ms)
        found.flags.append(header.flags)
        found.dues = found.dues.joined(frame.dues)
        return True


def _known(*columns: Offsets | None) -> list[Offsets]:
    return [column for column in columns if column is not None]


def _grown(column: Offsets | None, count: int) -> Offsets | None:
    """The column for `count` streams: those that it does not know begin at 0."""
    if column is None:
        return None
    grown = np.zeros(count, np.int64)
    grown[: len(column)] = column
    return grown


def _place(
    numbers: Numbers, lows: npt.NDArray[np.uint16], begins: Offsets | None, ends: Offsets | None, *, is_whole: bool
) -> tuple[Offsets, Offsets, npt.NDArray[np.int64]] | None:
    """Sort messages by stream and offset; None if the offsets are not certain.

    Returns the first offset of each stream, where its messages begin (streams + 1,), and which message is at each
    place, -1 for a missing one.
    """
    known = begins if begins is not None else ends
    if known is None:
        return None
    counts = np.bincount(numbers, minlength=len(known)).astype(np.int64)
    order = by_stream(numbers.astype(np.uint16) if len(known) <= LOWS else numbers)
    lows = lows[order]
    start = np.zeros(len(counts) + 1, np.int64)
    counts.cumsum(out=start[1:])
    if is_whole:
        first = ends - counts if ends is not None else known
        expected = (first - start[:-1]).astype(np.uint16).repeat(counts)
        expected += np.arange(len(order), dtype=np.uint32).astype(np.uint16)
        follows = begins is None or bool((begins == first).all())
        if follows and int(first.min(initial=0)) >= 0 and bool((expected == lows).all()):
            return first, start, order.astype(np.int64)
    if begins is None or ends is None or int((ends - begins).min(initial=0)) < 0:
        return None
    return _place_around_gaps(order, lows, start, begins, ends)


def _place_around_gaps(
    order: npt.NDArray[np.intp], lows: npt.NDArray[np.uint16], start: Offsets, begins: Offsets, ends: Offsets
) -> tuple[Offsets, Offsets, npt.NDArray[np.int64]] | None:
    """As `_place`, where messages are missing: each is as far from the one before as its low bits say."""
    counts = np.diff(start)
    held = np.flatnonzero(counts)
    due = lows.astype(np.int64)
    due[1:] = lows[:-1].astype(np.int64) + 1
    due[start[held]] = begins[held]
    steps = np.concatenate([np.zeros(1, np.int64), (1 + ((lows - due) & (LOWS - 1))).cumsum()])
    reached = steps[start[1:]] - steps[start[:-1]]
    spare = ends - begins - reached  # of each stream: messages that may be missing anywhere
    if bool(((spare < 0) | (spare >= LOWS)).any()):
        return None
    begin = np.zeros(len(start), np.int64)
    (ends - begins).cumsum(out=begin[1:])
    placed = np.full(int(begin[-1]), -1, np.int64)
    placed[steps[1:] - 1 + (begin[:-1] - steps[start[:-1]]).repeat(counts)] = order
    return begins, begin, placed
