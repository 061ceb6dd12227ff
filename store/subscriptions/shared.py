"""What all open objects of one subscription share."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...index.locks import if_free
from .acknowledging import Acknowledging
from .dispatcher import Dispatcher
from .in_flight import NO_OWNER
from .moving import Moving
from .parts import Parts
from .settings import DeadLetterChains, Settings, Start, offsets_of
from .state import State
from .subscription import Subscription

Enter = Callable[[Subscription], object]


class Shared:
    """The state that all open objects of one subscription share."""

    def __init__(
        self, parts: Parts, topic: str, name: str, chains: DeadLetterChains, *, pass_damage: bool = False
    ) -> None:
        """`chains` has the dead letters' links of the store."""
        self.state = State(parts, topic, name)
        self.chains = chains
        self.state.load(pass_damage=pass_damage)
        self.acks = Acknowledging(self.state)
        self.dispatcher = Dispatcher(self.state, Moving(self.state, self.acks).move)
        self._open: set[int] = set()  # numbers of the objects that are not closed
        self._owners = NO_OWNER  # the number of the newest object
        self._is_retired = False

    def open(
        self, settings: Settings, given: Collection[str], start: Start, check: Callable[[], None], enter: Enter
    ) -> Subscription | None:
        """Make another object of the subscription; make the subscription if there is none.

        `given` names the settings that the caller has chosen; `check` raises if it may not be made with them. `enter`
        gets the object before it counts as open. Returns None if this object is retired: ask for another one.
        """
        state = self.state
        with state.changing:
            if self._is_retired:
                return None
            state.unfinished.make_rest()
            known = state.cursor.settings
            if known is None:
                check()
                self._open.clear()  # an earlier subscription was deleted, maybe by a call that was interrupted
                with self.dispatcher.receiving:
                    state.create(settings, offsets_of(state.parts, state.topic, start))
                    self.dispatcher.restart()
            else:
                known.check_same(settings, given, state.name)
            if not self._open:
                with self.dispatcher.receiving:
                    self.dispatcher.delays.open()
            self._owners += 1
            opened = Subscription(self, self._owners)
            enter(opened)
            self._open.add(self._owners)
            return opened

    def tell_precision(self) -> None:
        """Tell the topic's index how much later than their times its messages may come here."""
        state = self.state
        delays, settings = state.parts.delays, state.cursor.settings
        if delays is not None and settings is not None:
            delays.accepts(state.topic, state.name, settings.precision_ms)

    def closed_one(self, life: int, owner: int) -> None:
        """An object of this life was closed: its messages come again. When the last one is closed, all is read again.

        A second call does no harm: the object counts as open until all of this is done, even after an interrupt.
        """
        with self.state.changing:
            if life != self.state.cursor.life or owner not in self._open:
                return
            with self.dispatcher.receiving:  # a receive that has begun either ends before, or finds the object closed
                self.state.leave(owner)
            if len(self._open) == 1:
                self.state.note_left_out()
                with self.dispatcher.receiving:
                    self.dispatcher.close()
            self._open.discard(owner)

    def delete(self) -> bool:
        """Delete the subscription; False if there is none."""
        with self.state.changing, self.dispatcher.receiving:
            was_cut_short = self.state.unfinished.make_rest()
            if self.state.cursor.settings is None:
                return was_cut_short
            self.state.delete()
            self._open.clear()
            self.dispatcher.close()
        self.state.notify()
        return True

    def retire(self) -> bool:
        """Retire this object if there is no subscription of this name; True if so. Then it can be forgotten.

        It waits for no lock: the store's upkeep calls it, too, and changes of the subscription may wait for the upkeep.
        """
        state = self.state
        for _ in if_free(state.changing) if state.cursor.settings is None else ():
            try:
                for _ in if_free(self.dispatcher.receiving) if state.cursor.settings is None else ():
                    try:
                        self.dispatcher.close()  # an interrupted deletion has not
                        self._is_retired = True
                    finally:
                        self.dispatcher.receiving.release()
            finally:
                state.changing.release()
        return self._is_retired

    def move_records(self) -> None:
        """Write all records of the subscription again, and remove the old ones."""
        with self.state.changing:
            if self.state.cursor.settings is None:
                self.state.journal.forget()
            else:
                self.state.compact()
