"""A subscription's durable state: its settings, and the acknowledged offsets of each queue.

Acknowledged offsets are a mark-delete position, and a bitmap of those above it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..errors import StoreUnusable
from ..format.arrays import Int64s
from ..format.cursors import (
    ATTEMPTS,
    DELETE,
    STATE,
    CursorMark,
    Group,
    Record,
    State,
    bitmap_of,
    pack_attempts,
    pack_state,
    ranges_of,
    unpack_acks,
    unpack_state,
)
from .attempts import MOST, Attempts
from .settings import Settings

FEW = 8  # with fewer offsets a stretch on average, offsets are added one by one


class AckedOffsets:
    """A set of offsets.

    Attributes:
        era: how often a seek has moved the queue.

    Invariants:
        * all offsets below `mark` are in the set, and `mark` is not;
        * `above` has those that are larger than `mark`, and no others.
    """

    __slots__ = ("above", "era", "mark")

    def __init__(self, mark: int = 0, era: int = 0) -> None:
        self.era = era
        self.mark = mark
        self.above = BitMap64()

    def copy(self) -> AckedOffsets:
        """A copy with the same offsets."""
        twin = AckedOffsets(self.mark, self.era)
        if self.above:
            twin.above = self.above.copy()
        return twin

    def __contains__(self, offset: int) -> bool:
        return offset < self.mark or offset in self.above

    def add(self, offset: int) -> None:
        """Add one offset."""
        if offset == self.mark:
            self.mark = offset + 1
            if self.above:
                self._settle()
        elif offset > self.mark:
            self.above.add(offset)

    def add_range(self, begin: int, end: int) -> None:
        """Add the offsets begin .. end - 1."""
        if begin <= self.mark:
            self.raise_mark(end)
        elif begin < end:
            self.above.add_range(begin, end)

    def add_all(self, ascending: Int64s) -> None:
        """Add offsets (n,), which ascend."""
        if not len(ascending):
            return
        ranges = ranges_of(ascending)
        if len(ranges) * FEW <= len(ascending) or len(ranges) <= FEW:
            self.add_ranges(ranges)
        else:
            self._add_places(ascending[ascending >= self.mark])

    def add_ranges(self, ranges: Int64s) -> None:
        """Add ranges (n, 2) of begin and end."""
        for begin, end in ranges.tolist():
            self.add_range(begin, end)

    def add_bitmap(self, bitmap: BitMap64) -> None:
        """Add all offsets of a bitmap."""
        self.above |= bitmap
        self.above.remove_range(0, self.mark)
        self._settle()

    def raise_mark(self, mark: int) -> None:
        """Add all offsets below a mark."""
        if mark > self.mark:
            self.mark = mark  # first: after an interrupt no offset is missing
            if self.above:
                self.above.remove_range(0, mark)
            self._settle()

    def _add_places(self, ascending: Int64s) -> None:
        self.above.update(array("Q", ascending.tobytes()))  # three times as fast as from a numpy array
        self._settle()

    def _settle(self) -> None:
        """Move the mark over the offsets that follow it. After an interrupt `above` may have some below it, too."""
        if self.above and self.above.min() <= self.mark:
            self.mark = self.first_missing(self.mark)
            self.above.remove_range(0, self.mark)

    def first_missing(self, offset: int) -> int:
        """The first offset from `offset` on that is not in the set."""
        offset = max(offset, self.mark)
        above = self.above
        if offset not in above:
            return offset
        # Doubles, then halves the step: offset .. x are all in the set if it has x - offset + 1 of them.
        good, step = offset, 1
        while above.contains_range(offset, good + step + 1):
            good += step
            step *= 2
        bad = good + step
        while bad - good > 1:
            middle = (good + bad) // 2
            if above.contains_range(good, middle + 1):
                good = middle
            else:
                bad = middle
        return bad

    def are_in(self, ascending: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) whether the set has each offset of an ascending array."""
        found = ascending < self.mark
        if self.above and len(ascending) and self.above.max() >= int(ascending[0]):
            if ascending[-1] - ascending[0] < FEW * len(ascending):
                part = BitMap64()
                part.add_range(int(ascending[0]), int(ascending[-1]) + 1)
            else:  # between offsets far apart there may be many more acknowledged ones
                part = bitmap_of(ascending)
            part &= self.above
            if part:
                there = np.frombuffer(part.to_array(), np.int64)
                at = np.minimum(there.searchsorted(ascending), len(there) - 1)
                found |= there[at] == ascending
        return found

    @property
    def end(self) -> int:
        """The end of the set: it has no offset from here on."""
        return int(self.above.max()) + 1 if self.above else self.mark

    def cut(self, end: int) -> None:
        """Remove all offsets from `end` on."""
        self.above.remove_range(end, MOST)
        self.mark = min(self.mark, end)


class StateParts:
    """Gathers a STATE that comes in several records.

    Invariant: a STATE counts once all of its parts were read, whatever records of other kinds lie between them. A part
    of another STATE drops the parts so far: a STATE that its writer left unfinished does not count.
    """

    def __init__(self) -> None:
        self._of = (0, 0)  # the life and the number of parts of the STATE
        self._bodies: list[memoryview] = []

    def add(self, record: Record) -> list[memoryview] | None:
        """Add a part. Returns all parts if it was the last one, else None."""
        if record.part == 0:
            self._of, self._bodies = (record.life, record.parts), []
        if (record.life, record.parts) != self._of or record.part != len(self._bodies):
            self._bodies = []  # the rest of it was never durable, or the start of this STATE is lost
            return None
        self._bodies.append(record.body)
        if len(self._bodies) < record.parts:
            return None
        bodies, self._bodies = self._bodies, []
        return bodies


class SkippedOffsets(NamedTuple):
    """Messages of a queue that were left out in one of its eras."""

    era: int
    offsets: BitMap64


class Cursor:
    """The content of a subscription's hidden stream, record by record: see `format.cursors`. One thread at a time.

    Attributes:
        life: which subscription of its name it is; 0 before the first one.
        settings: None while there is no subscription: it was never made, or was deleted.
        queues: the acknowledged offsets by queue id. A queue that is missing has none.
        attempts: how often messages were given out, by queue id, if attempts are counted over restarts.
    """

    def __init__(self) -> None:
        self.life = 0
        self.settings: Settings | None = None
        self.queues: dict[int, AckedOffsets] = {}
        self.attempts: dict[int, Attempts] = {}
        self._parts = StateParts()

    def queue(self, queue_id: int) -> AckedOffsets:
        """The acknowledged offsets of a queue."""
        acked = self.queues.get(queue_id)
        if acked is None:
            acked = self.queues[queue_id] = AckedOffsets()
        return acked

    def have(self, queues: Int64s, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which messages are acknowledged, by queue id and offset, in whatever order."""
        known = {queue_id: self.queue(queue_id) for queue_id in set(queues.tolist())}
        pairs = zip(queues.tolist(), offsets.tolist(), strict=True)
        return np.fromiter((offset in known[queue_id] for queue_id, offset in pairs), np.bool_, len(offsets))

    def begin(self, life: int, settings: Settings | None) -> None:
        """Begin another life: all that was known before is dropped."""
        self.life = life
        self.settings = settings
        self.queues = {}
        self.attempts = {}

    @property
    def counts_attempts(self) -> bool:
        """Whether attempts are counted over restarts: only if too many have a consequence."""
        return self.settings is not None and self.settings.max_attempts is not None

    def tried(self, queue_id: int) -> Attempts:
        """The attempts of a queue's messages, in its current era."""
        era, found = self.queue(queue_id).era, self.attempts.get(queue_id)
        if found is None or found.era != era:
            found = self.attempts[queue_id] = Attempts(era)
        return found

    def attempts_of(self, queues: Int64s, offsets: Int64s) -> Int64s:
        """(n,) how often messages were given out, in queues with these ids (n,). It costs by the messages."""
        counts = np.zeros(len(offsets), np.int64)
        for queue_id in np.unique(queues).tolist() if self.attempts else ():
            tried = self.attempts.get(queue_id)
            if tried is not None and tried.era == self.queue(queue_id).era:
                mine = np.flatnonzero(queues == queue_id)
                mine = mine[offsets[mine].argsort(kind="stable")]
                counts[mine] = tried.of(offsets[mine])
        return counts

    def undo_attempts(self, places: Iterable[tuple[int, int, int]]) -> None:
        """Undo the newest attempts of messages: queue id, offset and attempt of each."""
        for queue_id, offset, attempt in places:
            self.tried(queue_id).undo(offset, attempt)

    def forget_tried(self) -> None:
        """Forget the attempts of acknowledged messages."""
        for queue_id in list(self.attempts):
            acked = self.queue(queue_id)
            self.tried(queue_id).forget(acked.mark, acked.above)

    def move(self, marks: Mapping[int, CursorMark]) -> None:
        """Apply marks: one of a later era replaces what its queue had."""
        for queue_id, (era, offset) in marks.items():
            acked = self.queue(queue_id)
            if era > acked.era:
                self.queues[queue_id] = AckedOffsets(offset, era)
            elif era == acked.era:
                acked.raise_mark(offset)

    def cut(self, end_of: Callable[[int], int]) -> bool:
        """Forget lost messages: those from the end of their queue on. True if there were any.

        Their queue begins another era, so that earlier records do not count for the messages that get these offsets.
        """
        is_cut = False
        for queue_id in self.queues.keys() | self.attempts.keys():
            end, acked, tried = end_of(queue_id), self.queue(queue_id), self.tried(queue_id)
            if max(acked.end, tried.end) > end:
                is_cut = True
                acked.cut(end)
                tried.cut(end)
                acked.era += 1
                tried.era = acked.era
        return is_cut

    def read(self, data: memoryview) -> None:
        """Apply a record. Raises StoreUnusable for a record of an unknown kind."""
        record = Record.unpack(data)
        if record is None:
            raise _unknown()
        try:
            self._take(record)
        except ValueError as error:
            raise _unknown() from error

    def forget_parts(self) -> None:
        """Drop the parts of an incomplete STATE: one of its records cannot be read, or no more records follow."""
        self._parts = StateParts()

    def _take(self, record: Record) -> None:
        if record.life < self.life:
            return
        if record.kind == DELETE:
            self.begin(record.life, None)
        elif record.kind == STATE:
            bodies = self._parts.add(record)
            if bodies is not None:
                self._take_state(record.life, unpack_state(bodies))
        else:
            if record.life > self.life:  # its STATE was lost by damage: acknowledged messages stay acknowledged
                self.begin(record.life, self.settings)
            self._add(unpack_acks(record.body), is_tried=record.kind == ATTEMPTS)

    def _take_state(self, life: int, state: State) -> None:
        settings = Settings.unpack(state.settings)
        if life > self.life:
            self.begin(life, settings)
        self.settings = settings
        self.move(state.marks)
        self._add(state.groups)

    def _add(self, groups: Iterable[Group], *, is_tried: bool = False) -> None:
        for group in groups:
            queue_id, era, ranges, bitmap, _ = group
            acked = self.queue(queue_id)
            if era > acked.era:  # the record of the seek was lost by damage
                acked = self.queues[queue_id] = AckedOffsets(0, era)
            if era == acked.era:
                if is_tried:
                    self.tried(queue_id).add(group)
                elif bitmap is not None:
                    acked.add_bitmap(bitmap)
                elif ranges is not None:
                    acked.add_ranges(ranges)

    def frozen(self) -> Cursor:
        """A copy, without attempts of acknowledged messages."""
        assert self.settings is not None, "only what exists is compacted"
        twin = Cursor()
        twin.life, twin.settings = self.life, self.settings
        twin.queues = {queue_id: acked.copy() for queue_id, acked in self.queues.items()}
        self.forget_tried()
        twin.attempts = {queue_id: tried.copy() for queue_id, tried in self.attempts.items()}
        return twin

    def records(self, limit_bytes: int) -> list[bytes]:
        """The whole cursor as records. It packs and compresses: if others use the cursor, call it on a `frozen` one."""
        assert self.settings is not None, "only what exists is compacted"
        marks = {queue_id: CursorMark(acked.era, acked.mark) for queue_id, acked in self.queues.items()}
        groups = [
            Group(queue_id, acked.era, None, acked.above) for queue_id, acked in self.queues.items() if acked.above
        ]
        tried = [(queue_id, one.era, *one.rows()) for queue_id, one in self.attempts.items()]
        state = pack_state(self.life, State(self.settings.pack(), marks, groups), limit_bytes)
        return state + pack_attempts(self.life, tried, limit_bytes)


def _unknown() -> StoreUnusable:
    return StoreUnusable(
        "a record of a subscription is not known: a later version of stratalog wrote it; use that version, or delete "
        "the subscription there"
    )
