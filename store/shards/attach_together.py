"""Makes the parts of a commit in all lanes durable and shows them, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack

from ..log.together import Change, set_together
from .parts import LanePart


def attach_together(
    parts: Sequence[LanePart], shown: Callable[[], Change], telling: Callable[[], AbstractContextManager[object]]
) -> None:
    """Take the steps of all parts.

    Invariants:
        * no lane changes before all parts were read, checked and made. So damage, or a lack of space, leaves all lanes
          as they were;
        * after the first name or frame was written, an error poisons all of these lanes, and shows nothing of the
          commit: the next opening does the rest before it shows anything;
        * readers of this process see all parts from one step of the interpreter on. Readers in other processes use the
          earlier states until the live page has the new ones of all lanes.

    So the lanes stand still together from the first step to the last: none of them could answer anything before all
    parts are shown, as a lane's messages are shown in log order.

    Args:
        shown: the change that counts the shown messages, for readers that look at several lanes.
        telling: a context; at its end other processes are told of the changes made in it.

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
                part.write()
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
