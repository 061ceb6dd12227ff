"""The calls that change delayed messages, as a user sees them: names, arguments and promises."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...cache import MemoryPlan
from ...index import TrackerClosed
from ..delayed.counting import Counting, DelayedSets, PendingDelays
from ..delayed.delays import Delays, memory_of
from ..delayed.keeping import Keeping, KeepingTopics
from ..delayed.parts import StoreParts
from ..device.disk import Disk
from ..errors import InvalidMessage, OffsetOutOfRange, StoreError, StoreUnreadable, copy_of, shown
from ..format.delays import CANCELLED
from ..log.streams import check_name
from ..log.upkeep import Upkeep
from ..read.reader import Reader
from .checks import check_counts
from .running import OpenStore
from .shared import Shared

END_OF_TIME_MS = 1 << 62
END_OF_OFFSETS = 1 << 63


class DelayedCalls:
    """Passes each call on to the store's part for delayed messages. It has no state of its own."""

    _delaying: DelayChanges

    def cancel_delayed(self, topic: str, queue_id: int, offset: int) -> bool:
        """Cancel a delayed message: no subscription gets it any more. The message itself stays in its queue.

        True exactly if the message was still pending: it has a time of delivery, which had not come, and it was not
        cancelled. The answer is exact, also while other threads deliver, and durable when the call returns: a message
        that was cancelled is not delivered after a crash either. False changes nothing.

        The first change of a delay in a topic, like its first subscription, makes the topic's index.

        Raises:
            InvalidTopic, InvalidMessage: the topic, the queue id or the offset is not valid.
            PublishBufferFull, StoreFull, StoreClosed, StoreUnreadable: the message is as it was.
            StorePoisoned: a write or force failed; the message may or may not be cancelled at the next opening.
            StoreReadOnly: the store was opened with `read_only=True`.
        """
        return self._delaying.cancel(topic, queue_id, offset)

    def reschedule_delayed(self, topic: str, queue_id: int, offset: int, deliver_at_ms: int) -> bool:
        """Give a delayed message another time of delivery, earlier or later; one that has passed delivers it now.

        True exactly if the message was still pending, as with `cancel_delayed`; the answer is as durable. The message
        keeps its own `deliver_at_ms` where it is read: only its delivery changes.

        Args:
            deliver_at_ms: the new time, ms since the epoch.

        Raises: as `cancel_delayed` does.
        """
        return self._delaying.reschedule(topic, queue_id, offset, deliver_at_ms)


class DelayChanges:
    """The part of a store that changes delays: `DelayedCalls` passes its calls on to it."""

    def __init__(self, shared: Shared, delays: Delays, keeping: Keeping) -> None:
        self._shared = shared
        self.delays = delays
        self.keeping = keeping
        self._counting = Counting(delays.parts, delays)

    def cancel(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the message was pending."""
        return self._decide(topic, queue_id, offset, CANCELLED)

    def reschedule(self, topic: str, queue_id: int, offset: int, deliver_at_ms: int) -> bool:
        """Whether the message was pending."""
        (time_ms,) = check_counts(deliver_at_ms=deliver_at_ms)
        if time_ms >= END_OF_TIME_MS:
            raise InvalidMessage(f"deliver_at_ms is below 2**62, not {shown(deliver_at_ms)}")
        return self._decide(topic, queue_id, offset, time_ms)

    def stats(self, most: int | None = None) -> dict[str, Any]:
        """Figures by topic, of `most` topics at the most; `kept_bytes` are those of delayed messages in segments that
        retention would have removed.

        Empty for a store that is closed.
        """
        kept = self.keeping.kept
        try:
            by_topic = self.delays.stats(most)
        except TrackerClosed:
            return {}
        return {name: {**of_topic, "kept_bytes": kept.get(name, 0)} for name, of_topic in by_topic.items()}

    def count(self) -> int:
        """How many topics have figures in `stats`."""
        return len(self.delays.topics) + len(self.delays.damaged)

    def pending(self) -> PendingDelays:
        """The pending delays, by the log. Raises StoreCorrupt, StoreUnreadable."""
        with self._counted():
            return self._counting.by_log()

    def sets(self, topics: Collection[str]) -> Mapping[str, DelayedSets]:
        """Which messages of some topics are delayed, cancelled or copied. Raises StoreCorrupt, StoreUnreadable."""
        with self._counted():
            return self._counting.sets(topics)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except TrackerClosed:  # meanwhile, with the store
            self._shared.check_open()
            raise
        except (OffsetOutOfRange, OSError) as error:
            raise StoreUnreadable(
                f"{self._shared.path}: delayed messages could not be counted: {error}. Nothing is lost; try again."
            ) from error

    def _decide(self, topic: str, queue_id: int, offset: int, time_ms: int) -> bool:
        shared = self._shared
        shared.check_open()
        name, queue = check_name(topic, queue_id)
        (at,) = check_counts(offset=offset)
        if at >= END_OF_OFFSETS:
            raise InvalidMessage(f"offset is below 2**63, not {shown(offset)}")
        if shared.streams.get(name, queue) is None:
            return False
        try:
            return self.delays.topic(name).decisions.decide(queue, at, time_ms)
        except TrackerClosed:  # meanwhile, with the store
            shared.check_open()
            raise
        except OSError as error:
            raise StoreUnreadable(
                f"{shared.path}: the index of delayed messages could not be read or written: {error}. The message is "
                f"as it was; try again."
            ) from error


class RefusingDelaying(DelayChanges):
    """Refuses changes of delayed messages, with the error that says so: the store is only read."""

    def __init__(self, shared: Shared, disk: Disk, refused: StoreError) -> None:
        self._shared = shared
        self._counting = Counting(_parts_of(shared, disk), None)
        self._refused = refused

    def _decide(self, topic: str, queue_id: int, offset: int, time_ms: int) -> bool:
        self._shared.check_open()
        check_name(topic, queue_id)
        check_counts(offset=offset)
        raise copy_of(self._refused)

    def stats(self, most: int | None = None) -> dict[str, Any]:
        """Nothing: the indexes are not open."""
        return {}

    def count(self) -> int:
        """None, as in `stats`."""
        return 0


def make_delaying(
    shared: Shared, disk: Disk, running: OpenStore, upkeep: Upkeep, plan: MemoryPlan | None, topics: KeepingTopics
) -> DelayChanges:
    """The part of a store that writes. Its indexes are not opened yet."""
    parts = _parts_of(shared, disk)
    memory_bytes = memory_of(plan)
    running.delays = delays = Delays(parts, lambda: running.poison is not None, memory_bytes)
    shared.sleepers.add(delays.worker.ring)
    keeping = Keeping(delays, topics, shared.config, shared.lanes)
    upkeep.removal.guards.append(keeping.may_go)
    upkeep.removal.is_done = keeping.is_done
    upkeep.removal.allowance = lambda: keeping.extra_bytes
    return DelayChanges(shared, delays, keeping)


def _parts_of(shared: Shared, disk: Disk) -> StoreParts:
    return StoreParts(
        disk, shared.path, shared.clock, shared.streams, shared.lanes, shared.hidden, Reader.of_the_log(),
        keeps=shared.config.durability == "force",
    )  # fmt: skip
