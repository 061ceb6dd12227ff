"""The calls about bulk commits, as a user sees them. `Attacher` does the work."""

from __future__ import annotations

from collections.abc import Callable

from ..device.disk import Disk
from ..device.steps import take_all
from ..errors import StoreError, copy_of, system_errors
from ..log.upkeep import Upkeep
from ..recovery.repair import Loss
from ..shards.attacher import AbandonedCommit, Attacher
from .appender import Appender
from .running import OpenStore
from .shared import Shared


class ShardCalls:
    """Passes each call on to the store's part that attaches. It has no state of its own."""

    _running: OpenStore
    _shared: Shared

    def attach_pending(self) -> int:
        """Attach the commits that wait in the folder `incoming`; return how many they were.

        A store that is open does this about twice a second by itself, and an opening does it first. The messages have
        offsets when it returns, and reads that wait for them are woken. Appends wait meanwhile: for as long as it
        takes to write the heads of the frames, a few ms for 100 MB.

        Raises:
            ReplayDiffers: one of them differs from what it replays. It was set aside; all others are attached.
            StoreCorrupt: a shard or a manifest is damaged. It stays where it is, and so do the commits after it, until
                its files are back, or an opening with `repair=True` gives it up.
            StoreFull: there is no space for it; free some, and call again.
            StorePoisoned, StoreClosed, StoreReadOnly, StoreUnreadable: nothing more is attached.
        """
        self._shared.check_open()
        attacher = self._running.attacher
        assert attacher is not None, "since the opening"
        with system_errors(self._shared.path):
            try:
                return attacher.attach_pending()
            except OSError as error:
                if self._running.poison is not None:
                    raise copy_of(self._running.poison) from error
                raise

    def _applied_batches(self, name: str, batch: int) -> dict[int, int]:
        """For `commit_shards`: the digest of each batch that the log has under the name of a commit.

        Raises StorePoisoned, StoreClosed.
        """
        self._shared.check_open()
        attacher = self._running.attacher
        assert attacher is not None, "since the opening"
        return attacher.batches(name, batch)


def begin_attaching(
    running: OpenStore, shared: Shared, disk: Disk, store_id: bytes, appender: Appender, *, repair: bool
) -> list[Loss]:
    """Attach what waits, and from here on what comes; with `repair`, what was given up for it.

    A commit that the log has in part must be finished now: after it, offsets would be given again. Any other may wait,
    for space or for a repair of its shards.

    Raises StoreError, OSError.
    """
    upkeep = running.upkeep
    assert upkeep is not None
    attacher = running.attacher = Attacher(
        disk, shared.path, store_id, running.flushers, upkeep, shared.clock, appender.make,
        running.attached, shared.counts_shown, running.telling,
    )  # fmt: skip
    given_up: list[AbandonedCommit] = []
    try:
        if repair:
            attacher.give_up_damaged(given_up)
        attacher.attach_and_sweep()
    except (StoreError, OSError) as error:
        if attacher.begun():
            raise
        upkeep.last_error = f"a bulk commit could not be attached: {error}"
    upkeep.lookers.append(attacher.attach_and_sweep)
    return [
        Loss(str(one.manifest), 0, 0, one.messages, None if one.copy is None else str(one.copy)) for one in given_up
    ]


def answering(running: OpenStore, upkeep: Upkeep) -> Callable[[], None]:
    """The answer to a committer's call: it asks something, or it has left a commit."""
    attacher = running.attacher
    assert attacher is not None, "it was begun before"
    return lambda: take_all([attacher.answer, upkeep.call_lookers])
