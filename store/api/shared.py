"""The state that the parts of one store have in common: its streams, its lanes, and whether it is open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ..config import StoreConfig, TunedConfig
from ..device.background import NoThread
from ..device.clock import Clock
from ..device.sleepers import Sleepers
from ..errors import StoreClosed, of_system
from ..log.hidden_streams import HiddenStreams
from ..log.lane import Lane
from ..log.queue import RequestQueue
from ..log.request import Request
from ..log.streams import StreamMap
from ..log.together import Change
from .batches import AsyncBatches

Seen = TypeVar("Seen")


def no_rounds() -> None:
    """Of a store that takes no transactions."""


class Shared:
    """The state that `MessageStore`, which opens and closes, shares with its parts, which append and read.

    Invariant: neither this nor a part references the store. So a store that its program lets go of is noticed, whatever
    still holds a part.
    """

    def __init__(self, path: Path, config: StoreConfig, clock: Clock) -> None:
        self.path = path
        self.config = config
        self.frame_bytes = TunedConfig.of(config).frame_bytes
        self.clock = clock
        self.sleepers = Sleepers(clock)
        self.batches = AsyncBatches(self.sleepers, config.append_timeout_ms)
        self.streams = StreamMap()
        self.naming = threading.Lock()  # held while a stream is made
        self.shown = 0  # how often several lanes have changed at once: it changes with them
        self.closed = False
        self.why_closed = f"the store {path} was closed; open it again"
        self.lanes: list[Lane] = []
        self.queues: list[RequestQueue[Request]] = []
        # Of transactions over several lanes, and large ones; a store with one lane has it from the first large one on.
        self.rounds: RequestQueue[Request] | None = None
        self.begin_rounds: Callable[[], None] = no_rounds
        self.hidden = HiddenStreams(self.streams, self.lanes, self.naming, self.check_open, self.frame_bytes)

    @property
    def all_queues(self) -> Sequence[RequestQueue[Request]]:
        """The lanes' queues, after that of the rounds, which put into them."""
        return self.queues if self.rounds is None else [self.rounds, *self.queues]

    def rounds_for_large(self) -> RequestQueue[Request]:
        """The queue of the rounds, which is made if there is none. Raises StoreClosed, StoreUnreadable."""
        with self.naming:
            self.check_open()
            if self.rounds is None:
                try:
                    self.begin_rounds()
                except NoThread as error:
                    raise of_system(error, "a large transaction") from error
            assert self.rounds is not None
            return self.rounds

    def counts_shown(self) -> Change:
        """The change of `shown` that goes with changes of several lanes."""
        return self, "shown", self.shown + 1

    def at_one_moment(self, look: Callable[[], Seen]) -> Seen:
        """The result of a look at several lanes, none of them with a bulk commit that others do not have yet."""
        while True:
            shown = self.shown
            seen = look()
            if self.shown == shown:
                return seen

    def check_open(self) -> None:
        """Raises StoreClosed."""
        if self.closed:
            raise StoreClosed(self.why_closed)

    def close(self) -> None:
        """Take no more calls. A stream that is being made is made before."""
        with self.naming:
            self.closed = True
            self.begin_rounds = no_rounds  # it leads back to this
        self.sleepers.close()

    def after_fork(self, why_closed: str) -> None:
        """In a forked child: take no more calls, and say why."""
        self.closed = True
        self.why_closed = why_closed
        self.sleepers.after_fork()
        self.naming = self.hidden.naming = threading.Lock()  # a lost thread may hold it
