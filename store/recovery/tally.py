"""How many messages of a lane's log are lost, counted along its segments in a repair.

Every segment's header counts the messages of the log before it, and every frame those of its segment. So a gap is
counted by what stands on both sides of it, and the offsets are not needed for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..format.layout import UNKNOWN, SealRecord
from .repair import Repair


class Tally:
    """The messages of a lane's log up to the place that recovery has reached.

    Invariants:
        * `total` counts them all, lost ones included; None while nothing tells;
        * `unplaced` counts the lost ones whose queues are not known yet; None if nothing tells how many;
        * every loss behind `_since` may be of such messages. Once a whole footer has placed all of them, none is.
        * `_since` stays behind a lost START, whose messages are not counted. `_open_since` does not: until a whole
          footer tells how far each queue had got, nothing else may.
    """

    def __init__(self, repair: Repair) -> None:
        self._repair = repair
        self.total: int | None = 0
        self.streams = 0  # how many the lane had by here, as far as headers and records tell
        self._since = self._open_since = 0
        self._noted = self._placed = 0
        self._is_open = False  # a loss of unknown size is among those

    @property
    def unplaced(self) -> int | None:
        """Lost messages of any queue, which later offsets may leave out."""
        return None if self._is_open else self._noted - self._placed

    def begin(self, messages_before: int) -> None:
        """The log begins here."""
        self.total = None if messages_before == UNKNOWN else messages_before
        self._since = len(self._repair.losses)

    def reach(self, messages_before: int) -> int | None:
        """A segment whose header says this follows. How many are missing before it, None if that is unknown."""
        if messages_before == UNKNOWN:
            return None
        missing = None if self.total is None else max(0, messages_before - self.total)
        self.total = messages_before
        return missing

    def pass_by(self, record: SealRecord) -> None:
        """A sealed segment is taken as it is."""
        self.go_on(record.entries)
        self.streams = max(self.streams, record.streams)

    def go_on(self, entries: int) -> None:
        """The segment at hand had so many messages."""
        if self.total is not None:
            self.total += entries

    def take(self, losses: Sequence[int | None], entries: int, end_entry: int | None) -> None:
        """The segment at hand was scanned, with these losses. Its last messages may be among them: see `end_entry`."""
        if losses and end_entry is not None:
            entries = max(entries, end_entry)
        self.go_on(entries)
        for lost in losses:
            self.lose(lost)
        if None in losses:
            self.total = None

    def lose(self, messages: int | None) -> None:
        """So many messages were noted as lost."""
        if messages is None:
            self._is_open = True
        else:
            self._noted += messages

    def place(self, path: Path, messages: int, *, exact: bool) -> None:
        """A footer leaves out so many messages of known queues. With `exact`, none is left without a place.

        If there are more of them than were noted, the difference was lost in the segment in `path`.
        """
        self._placed += messages
        more = self._placed - self._noted
        if self._is_open and exact:
            self._repair.count(self._since, max(0, more))
        elif not self._is_open and more > 0:
            self._repair.note_missing(path, more)
            self._noted = self._placed
        if exact:
            self.is_settled()

    def is_settled(self) -> None:
        """Every queue's offsets are known here."""
        self._since = self._open_since = len(self._repair.losses)
        self._noted, self._placed, self._is_open = 0, 0, False

    def is_left_out(self) -> None:
        """So many offsets are left out in every queue that none of the lost messages' is given again."""
        self._placed = self._noted

    def may_repeat(self) -> None:
        """Offsets of the messages that were noted last may be given again."""
        self._repair.may_repeat(self._open_since)

    @property
    def next_total(self) -> int:
        """What the next segment's header says of the messages before it."""
        return UNKNOWN if self.total is None else self.total
