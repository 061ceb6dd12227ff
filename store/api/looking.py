"""Reading a closed store without changing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ..config import TunedConfig
from ..device.folder import enter_folder, fixed_path
from ..device.looking import LookingDisk
from ..errors import StoreError, StoreUnusable
from ..log.upkeep import Upkeep
from ..subscriptions.told_counts import read_counts
from .delayed_calls import RefusingDelaying
from .store import MessageStore
from .store_reader import StoreReader

KIB = 1 << 10
SMALL = TunedConfig(recent_bytes=0, max_message_bytes=64 * KIB, max_frame_bytes=64 * KIB, direct_io=False)


class _RecoveredInMemory(MessageStore):
    """A store that is recovered in memory alone. It has no threads that write, and takes no message."""

    def _enter(self) -> None:
        enter_folder(self._disk, self.path, self._running.lock, create=False)

    def _start(self, *, repair: bool) -> None:
        refused = self._refusal()
        self._delaying = RefusingDelaying(self._shared, self._disk, refused)
        for queue in self._shared.all_queues:
            queue.close(refused)

    def _tell_counts(self, upkeep: Upkeep) -> None:
        """Says what the newest writer has told: nothing is lost here."""
        self._subscriptions().told_counts = partial(read_counts, self._disk, self.path)

    def _forget_lost(self) -> None:
        """Does nothing: counts leave out what is lost, and the log stays as it is."""

    def attach_pending(self) -> int:
        self._shared.check_open()
        raise self._refusal()

    def _refusal(self) -> StoreError:
        return StoreUnusable(f"the store {self.path} is only looked at; open it with MessageStore.open to change it")


@contextmanager
def look_into_folder(path: str | Path) -> Iterator[StoreReader]:
    """Open a closed store for reading, as a context manager. It changes no file but LOCK.

    All reads work; appends raise StoreUnusable. A store that was not closed is recovered in memory, so reads give what
    `MessageStore.open` would give. The folder is locked as long as the context lasts.

    Raises:
        StoreUnusable: the folder is not a store.
        StoreLocked: the store is open.
        StoreCorrupt: damage prevents the opening, as it would in `MessageStore.open`.
    """
    store = _RecoveredInMemory(fixed_path(path), SMALL, LookingDisk())
    try:
        yield store
    finally:
        store.close()
