"""A lane as a plain state machine (R1, R3 to R8). No threads, no clock of its own.

    build(requests)   requests become a frame in the ring; offsets are given
    plan(follows)     the writes to do next, padded or trimmed to whole blocks
    Write.perform()   the device does it: may run beside the next build
    complete(write)   what is now durable becomes visible and is answered, in log order

`flusher` drives it with threads, a test may drive it step by step.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Sequence

from ..errors import StoreFull
from ..format.layout import FRAME_HEADER_BYTES, align_down, align_up
from ..segment.footer_room import share_of_frame
from .alignment import should_pad
from .batch import PLAIN
from .column_build import build_columns, have_columns
from .request import NotedBarrier, Request, answer_all
from .room import make_room
from .row_build import build_rows
from .write import Write, WriteOutcome
from .writes import PendingFrame
from .written_lane import WrittenLane


class LaneMachine(WrittenLane):
    """The steps of a lane; the module's text has their order.

    Invariants:
        * a request is answered only when `durable` has passed its last byte (R5), and frames become
          durable in log order, whichever of two overlapping writes comes back first;
        * after a failed write or force `poison` is set for good, and nothing is answered as durable.
    """

    def build(self, requests: Sequence[Request], left_bytes: int | None = None) -> int:
        """Make one frame of the requests' messages, in their order. Gives offsets and entry numbers.

        Returns how many requests were answered at once: barriers of a lane that nothing was ever written to.
        Raises StoreFull when no segment could be had; then nothing has changed.
        """
        plain = PLAIN.issuperset(map(type, requests))  # each is one message: no group, no barrier, no trim
        if not plain and have_columns(requests):
            return build_columns(self, requests)  # of users, and records that come with them
        if not requests or not (plain or any([request.count for request in requests])):
            return self._add_barriers(requests)
        build_rows(self, requests, left_bytes, plain=plain)
        return 0

    def build_joint(self, requests: Sequence[Request], flags: int, joint: bytes) -> None:
        """Make a frame of a round's part, with these flags and this column. There must be room for it."""
        build_rows(self, requests, None, plain=False, more_flags=flags, joint=joint)

    def build_mark(self) -> None:
        """An empty frame that vouches for all that is durable."""
        make_room(self, FRAME_HEADER_BYTES, lambda: share_of_frame(0))
        self.put_frame(0, 0, 0, (), 0, lambda stored, position: (b"", array("I")), is_own=True)

    def _add_barriers(self, requests: Sequence[Request]) -> int:
        if self.segment is None:
            answer_all(requests)  # nothing was ever written: nothing to wait for
            return len(requests)
        if any(type(request) is NotedBarrier for request in requests) and self.wants_mark():
            with contextlib.suppress(StoreFull):  # no room for it: the others do not need it
                self.build_mark()
        self.under_way.add_frame(PendingFrame(requests, [], self.tail, self.table.entries, self.table, 0, None))
        return 0

    def plan(self, *, follows: bool, barrier: bool = False, active: int = 0) -> list[Write]:
        """The writes that are due now, in order. Where more `follows`, all may be held back; then there are none."""
        block = self.block_bytes if self._lazy and not barrier else self.forced_block_bytes
        if self.segment is not None and align_up(self.tail, block) > self.issued:
            pad = not follows or barrier or should_pad(
                self._alignment, self.unissued.tail(self.tail, self.issued, active, block)
            )  # fmt: skip
            high = align_up(self.tail, block) if pad else align_down(self.tail, block)
            if high > self.issued:
                self._planned.append(self._plan_up_to(self.segment, high, force=barrier, looks=barrier))
        elif barrier and self.segment is not None:
            at = self.issued
            self._planned.append(Write(self.segment, [], at, at, force=True, earlier=self._lazy, looks=True))
        planned, self._planned = self._planned, []
        self.under_way.add_writes(planned)
        return planned

    def complete(self, write: Write) -> WriteOutcome:
        """Account for a write that succeeded; answer what became durable by it, in log order."""
        done = self.under_way.complete(write)
        for segment in done.full:
            self._on_full(self, segment)
        return done
