"""Makes the parts of a bulk commit, or of a round of transactions, in all lanes durable and shows them: all or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from .flusher import Flusher
from .together import Change, set_together


class LanePart(Protocol):
    """The part in one lane. `attach_together` takes the steps of all lanes, in this order.

    Attributes:
        flusher: of the lane.
    """

    flusher: Flusher

    def prepare(self) -> None:
        """Do all that is possible while the lane goes on. Raises StoreCorrupt, OSError."""

    def standing_still(self) -> AbstractContextManager[object]:
        """A context in which no frame is built in the lane. Raises StoreFull, StorePoisoned, OSError."""

    def make(self) -> None:
        """Make all that is possible before the lane changes. Raises StoreCorrupt, StoreFull, OSError."""

    def build(self) -> None:
        """Build its frames in memory, if they are built there."""

    def write(self) -> None:
        """Make the part durable. Raises OSError, StorePoisoned: the next opening finds out how much is durable."""

    @property
    def changes(self) -> Sequence[Change]:
        """The changes that show the part to readers of this process. `lane.viewing` is held until they are made."""

    def tell(self) -> None:
        """The part is shown: tell other processes, and waiting readers."""


def in_turn(writes: Sequence[Callable[[], None]]) -> None:
    """Write the parts one after the other."""
    for write in writes:
        write()


def attach_together(
    parts: Sequence[LanePart], shown: Callable[[], Change], telling: Callable[[], AbstractContextManager[object]],
    write_all: Callable[[Sequence[Callable[[], None]]], None] = in_turn,
) -> None:  # fmt: skip
    """Take the steps of all parts, which are in the order of their lanes: so no two callers wait for each other.

    Invariants:
        * no lane changes before all parts were read, checked and made. So damage, or a lack of space, leaves all lanes
          as they were;
        * after the first name or frame was built, an error poisons all of these lanes, and shows nothing of the
          parts: the next opening does the rest before it shows anything, or cuts what there is of a round;
        * readers of this process see all parts from one step of the interpreter on. Readers in other processes use the
          earlier states until the live page has the new ones of all lanes.

    So the lanes stand still together from the first step to the last: none of them could answer anything before all
    parts are shown, as a lane's messages are shown in log order.

    Args:
        shown: the change that counts the shown messages, for readers that look at several lanes.
        telling: a context; at its end other processes are told of the changes made in it.
        write_all: makes these calls, and returns when all have ended.

    Raises StoreCorrupt, StoreFull, OSError: nothing has changed. StorePoisoned: see above.
    """
    for part in parts:
        part.prepare()
    with ExitStack() as still:
        for part in parts:
            still.enter_context(part.standing_still())
        for part in parts:
            part.make()
        try:
            for part in parts:
                part.build()
            write_all([part.write for part in parts])
            with telling():
                _show(parts, shown)
                for part in parts:
                    part.tell()
        except BaseException as error:  # also an interrupt: only the next opening can tell what is durable
            for part in parts:
                part.flusher.fail(error)
            raise


def _show(parts: Sequence[LanePart], shown: Callable[[], Change]) -> None:
    with ExitStack() as viewing:
        for part in parts:
            viewing.enter_context(part.flusher.lane.viewing)
        set_together([*(change for part in parts for change in part.changes), shown()])
