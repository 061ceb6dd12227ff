"""The count of a lane's lost messages in a repair, and whether every queue's offsets are known.

What is *proved* and what is *guessed* are kept apart. Every segment's header counts the messages of the log before it,
and every frame those of its segment: so a gap is counted by what stands on both sides of it. A whole footer has every
queue's offsets. What neither tells is not counted, and the offsets after it are not sure until the next whole footer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..format.layout import UNKNOWN
from .repair import Loss, Repair


class MessageTally:
    """The messages of a lane's log up to the place that recovery has reached.

    Invariants:
        * `_proved` is a header's number of messages before a place, None while it is unknown. After that place `_kept`
          messages are still there, if `_is_counted`, and the losses from `_counted` on lie after it. So the next
          header's number proves the sum of these losses.
        * the losses from `_settled` on may have taken offsets of any queue: before them, a whole footer has said how
          far each queue had got, or the log began there with segment 1. `_placed` of their messages have a place.
        * `_is_anchored`: there was such a footer or beginning. Without one no offset is more than a guess;
        * the losses from `_settled` to `_open` lie before the segment at hand, and not all of their messages had a
          place there. An earlier repair may have left out offsets in every queue for them. So a gap in a queue's
          offsets may be theirs, and none of a later loss's.
    """

    def __init__(self, repair: Repair) -> None:
        self._repair = repair
        self._proved: int | None = 0
        self._kept = 0
        self._counted = self._settled = self._placed = self._open = 0
        self._is_anchored = self._is_counted = self._is_sure = True
        self._is_untold = False  # offsets may repeat, and there was no loss yet to say so

    def begin(self, sequence: int, messages_before: int) -> None:
        """The log begins here, with the segment of this number."""
        self._prove(messages_before)
        self._is_anchored = sequence == 1

    # -- counts ---------------------------------------------------------------------------------------

    @property
    def total(self) -> int | None:
        """All messages up to here, lost ones included; None while that is unknown."""
        lost = _sum(self._repair.losses[self._counted :])
        if self._proved is None or lost is None or not self._is_counted:
            return None
        return self._proved + self._kept + lost

    @property
    def next_total(self) -> int:
        """The number of messages before it that the next segment's header has."""
        return UNKNOWN if self.total is None else self.total

    @property
    def end_total(self) -> int | None:
        """The count of messages in headers after the log's end; None if that may be any number.

        Losses that nothing can count are left out, so the difference of two headers is what is lost there later.
        """
        if self._proved is None:
            return None
        return self._proved + self._kept + sum(loss.messages or 0 for loss in self._repair.losses[self._counted :])

    def missing_before(self, messages_before: int) -> int | None:
        """How many messages are lost between here and the segment whose header says this; None if that is unknown."""
        total = self.total
        return None if total is None or messages_before == UNKNOWN else max(0, messages_before - total)

    def reach(self, messages_before: int) -> None:
        """The header of the next segment has this count: it proves the sum of the losses before it."""
        if messages_before != UNKNOWN and self._proved is not None and self._is_counted:
            noted = self._repair.losses[self._counted :]
            path = Path(noted[-1].file) if noted else None
            self._repair.sum_up(self._counted, messages_before - self._proved - self._kept, path)
        self._prove(messages_before)
        if self._open == self._settled and self.unplaced != 0:
            self._open = len(self._repair.losses)

    def _prove(self, messages_before: int) -> None:
        self._proved = None if messages_before == UNKNOWN else messages_before
        self._kept, self._is_counted, self._counted = 0, True, len(self._repair.losses)

    def keep(self, messages: int, *, is_exact: bool) -> None:
        """Add the messages of the segment at hand, without those that were noted as lost.

        `is_exact` is False if an earlier repair has given up some that it could not number.
        """
        self._kept += messages
        self._is_counted = self._is_counted and is_exact

    # -- offsets --------------------------------------------------------------------------------------

    @property
    def unplaced(self) -> int | None:
        """Lost messages of any queue, which later offsets may leave out; None if the number is unknown."""
        lost = _sum(self._repair.losses[self._settled :])
        return None if lost is None else max(0, lost - self._placed)

    def place(self, path: Path, messages: int, *, is_exact: bool, is_sure: bool) -> None:
        """A footer that was made again, of the segment in `path`, leaves out `messages` messages of known queues.

        With `is_exact` it ends where the next one begins: then what is left out between two such footers is all that
        was lost between them. Else more may be left out than was counted only where nothing is sure.
        """
        self._placed += messages
        self._is_sure = self._is_sure and is_sure
        lost = _sum(self._repair.losses[self._settled :])
        if lost is None or lost < self._placed:
            if is_exact and self._is_sure and self._is_anchored:
                self._repair.sum_up(self._settled, self._placed, path)
            elif lost is not None:
                self._repair.note_missing(path, None)
        if is_exact:
            self.is_settled()

    def is_settled(self) -> None:
        """A whole footer knows every queue's offsets here."""
        self._tell_if_unsure()
        self._settled, self._placed = len(self._repair.losses), 0
        self._open = self._settled
        self._is_sure = self._is_anchored = True

    def is_left_out(self) -> None:
        """Note that so many offsets are left out in every queue that none of the lost messages' is given again."""
        self._placed += self.unplaced or 0

    def finish(self, *, has_all_streams: bool) -> None:
        """The log ends here, and all losses are noted."""
        if self._is_untold:
            self._repair.may_repeat(0)
        is_mixed = self._settled < self._open < len(self._repair.losses)
        is_placed = self.unplaced == 0 and not is_mixed
        self._is_sure = self._is_sure and self._is_anchored and is_placed and has_all_streams
        self._tell_if_unsure()

    def _tell_if_unsure(self) -> None:
        if not self._is_sure:
            self._is_untold = self._is_untold or not self._repair.losses
            self._repair.may_repeat(self._settled)


def _sum(losses: Sequence[Loss]) -> int | None:
    """The sum of the messages of these losses; None if one of them has no count."""
    counts = [loss.messages for loss in losses]
    return None if None in counts else sum(count for count in counts if count is not None)
