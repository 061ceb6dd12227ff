"""The subscriptions of a store, as its readers see them: names, settings and backlogs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ..device.disk import Disk
from ..log.streams import Stream
from ..log.upkeep import Upkeep
from ..read.caches import Caches
from ..subscriptions.info import SubscriptionInfo
from ..subscriptions.parts import Appending, Parts, ReceiptNumbers
from ..subscriptions.read_ahead import READ_AHEAD_BYTES, ReadAhead
from ..subscriptions.registry import Subscriptions
from ..subscriptions.told_counts import ToldCounts, read_counts
from .delayed_calls import DelayChanges
from .fetcher import Fetcher
from .read_only import refusal
from .running import OpenStore
from .shared import Shared


class WritingParts(NamedTuple):
    """The parts of a writing store that subscriptions need; see `Parts`."""

    appending: Appending | None
    append_again: Callable[..., Any]
    trim_stream: Callable[[Stream, int], None]
    check_writes: Callable[[], None]


class SubscriptionList:
    """Passes the call on to the store's part for subscriptions, made at the first one."""

    _shared: Shared
    _fetcher: Fetcher
    _running: OpenStore
    _delaying: DelayChanges
    _caches: Caches
    _disk: Disk
    _told_counts: ToldCounts | None = None
    _subscribed: Subscriptions | None = None

    def subscriptions(self, topic: str | None = None) -> list[SubscriptionInfo]:
        """Return the subscriptions of a topic, or of all, with their settings and backlogs, by topic and name.

        In a store that is only read, and until the index of a topic has read all of the log, the messages that are
        delayed are counted by the log: such a call reads all frames with delivery times to come. A call makes the index
        of one topic at the most that has delayed messages and no index yet, as the first receive would.

        Raises: InvalidTopic, StoreCorrupt, StoreUnreadable, StoreClosed.
        """
        return self._subscriptions().all(topic)

    def _subscriptions(self) -> Subscriptions:
        if self._subscribed is None:
            with self._shared.naming:
                if self._subscribed is None:
                    parts = self._parts_for_subscriptions()
                    made = Subscriptions(parts)
                    if not parts.may_write:
                        made.told_counts = partial(read_counts, self._disk, self._shared.path)
                    self._subscribed = made
                    if parts.delays is not None:
                        parts.delays.subscribers = made
        return self._subscribed

    def _tell_counts(self, upkeep: Upkeep) -> None:
        """From now on, tell readers in other processes what subscriptions have lost."""
        subscriptions = self._subscriptions()
        self._told_counts = ToldCounts(
            self._disk, self._shared.path, subscriptions.removed.counts, subscriptions.parts.expired
        )
        upkeep.lookers.append(self._told_counts.tell)

    def _end_subscriptions(self) -> None:
        """The store is about to close. It may be called again."""
        if self._subscribed is not None and not self._shared.closed:
            self._subscribed.closing()
            with suppress(OSError):
                if self._told_counts is not None:
                    self._told_counts.tell()

    def _parts_for_subscriptions(self) -> Parts:
        shared, fetcher, plan, writes = self._shared, self._fetcher, self._caches.plan, self._writes()
        limit = READ_AHEAD_BYTES if plan is None else plan.working_bytes // 2
        return Parts(
            shared.streams, shared.hidden, shared.clock, fetcher, writes.appending, writes.append_again,
            fetcher.waiting, fetcher.async_reads, writes.trim_stream, shared.check_open, writes.check_writes,
            shared.frame_bytes, shared.config.append_timeout_ms / 1000, ReceiptNumbers(),
            self._running.delays, self._delaying.sets, ReadAhead(limit, shared.clock.monotonic_s),
        )  # fmt: skip

    def _writes(self) -> WritingParts:
        path = self._shared.path

        def refuse(*given: object) -> None:
            raise refusal(path)

        return WritingParts(None, refuse, refuse, refuse)
