"""A change of a subscription that an interrupt has cut short: the log may say it, and the process does not yet."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...index.turns import if_free
from ..errors import StoreError


class Unfinished:
    """The mark of the rule "give, then take" (see `index.trackers.tracker`) for changes that have a record.

    A seek or a deletion ends what acknowledgements belong to. Where its record went out and the call was interrupted,
    whoever comes next makes it once more, before an acknowledgement is written that would belong to what has ended.
    After an interrupt both are right: that it was made, and that it was not.

    Attributes:
        change: what may be in the log alone, or None. To make it again changes nothing.
    """

    def __init__(self, changing: threading.Lock, ring: Callable[[], None]) -> None:
        """`changing` is held by whoever changes the subscription; `ring` has those who wait look again."""
        self.change: Callable[[], None] | None = None
        self._changing = changing
        self._ring = ring

    def make(self, change: Callable[[], None]) -> None:
        """Make a change: its record, and then what it says. `changing` is held."""
        if self.change is not change:
            self.make_rest()
        self.change = change
        try:
            change()
        except StoreError:  # its record is not there, or the store is poisoned
            self.change = None
            raise
        self.change = None

    def make_rest(self) -> bool:
        """Make what was cut short; whether there was something. `changing` is held."""
        rest = self.change
        if rest is not None:
            self.make(rest)
        return rest is not None

    def finish(self) -> None:
        """Make what was cut short, unless somebody is changing the subscription: he does then."""
        for _ in if_free(self._changing) if self.change is not None else ():
            try:
                self.make_rest()
            finally:
                self._changing.release()
            self._ring()
