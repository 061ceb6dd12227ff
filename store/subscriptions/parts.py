"""The parts of a store that its subscriptions work with."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..delayed.counting import DelayedSets
from ..delayed.delays import Delays
from ..device.clock import Clock
from ..errors import StoreError
from ..format.extras import Extras
from ..log.atomic_group import AtomicGroup
from ..log.hidden_streams import HiddenStreams
from ..log.joint_group import Blocks
from ..log.message_ids import PendingIds
from ..log.streams import Stream, StreamMap
from ..read.async_reads import AsyncReads
from ..read.reader import Reader
from ..read.waiting import WaitingReaders
from ..topics.full import Acknowledged
from ..topics.ttl import TopicTtl
from .delivery import PlaceReads
from .life_counts import LifeCounts
from .news import NewMessages
from .read_ahead import ReadAhead


class Configured(Protocol):
    """The part of a store that knows the settings of topics."""

    def ttl_of(self, topic: str) -> TopicTtl:
        """The age from which on subscriptions do not get a topic's messages."""


class Reads(PlaceReads, Protocol):
    """The part of a store that reads."""

    reader: Reader

    @property
    def configured(self) -> Configured:
        """The settings of topics."""

    def topics(self) -> list[str]:
        """The topics that have a durable message."""

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(first, next) offset of a queue."""

    def bounds_of_topic(self, topic: str) -> dict[int, tuple[int, int]]:
        """(first, next) offset of each queue of a topic, by queue id. Raises StoreUnreadable."""

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first offset whose timestamp is `timestamp_ms` or later."""


class Appending(Protocol):
    """The part of a store that appends, as far as a commit needs it."""

    @property
    def frame_bytes(self) -> int:
        """The payloads of a frame of several messages, at the most."""

    @property
    def most_atomic_bytes(self) -> int:
        """The payloads that one frame can have, with keys and properties."""

    def check_open(self) -> None:
        """Raises StoreClosed."""

    def atomic_group(
        self, streams: list[Stream], datas: list[bytes], extras: Sequence[Extras | None],
        settle: Callable[[StoreError | None], None] | None, ids: Sequence[PendingIds] = (), blocks: Blocks = (),
    ) -> AtomicGroup:  # fmt: skip
        """The request of a transaction: see `AtomicGroup`. `ids`: of its messages; `blocks`: of a large one."""

    def find_or_make(self, names: Sequence[tuple[str, int]], acknowledged: Acknowledged | None = None) -> list[Stream]:
        """The streams of names that were checked, made at first use. `acknowledged`: see `FullTopics.check`."""

    def find_again(self, names: Sequence[tuple[str, int]], acknowledged: Acknowledged | None = None) -> list[Stream]:
        """As `find_or_make`, for messages that the store had already: also of queues that their topics do not have."""


class AppendColumns(Protocol):
    """The call that appends n messages that the store had already, as columns, see `MessageStore.append_columns`."""

    def __call__(self, *columns: object) -> npt.NDArray[np.int64]:
        """Append them. Durable when it returns: their offsets (n,)."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one store, none of which references the store itself.

    Attributes:
        reads, waiting, async_reads: the calls of readers, and of those that wait.
        appending: makes streams for transactions; None in a store that is only read.
        append_columns: appends messages that the store has taken once, whatever its size limit is now.
        hidden: the streams that have the records of subscriptions.
        trim: removes the messages of a stream below an offset, durably.
        check_open, check_writes: raise StoreClosed; StoreReadOnly.
        limit_bytes: the size of a frame.
        append_timeout_s: how long an append waits at the cap of the publish buffer.
        receipts: gives numbers that no message had before.
        delays: the store's delayed messages; None in a store that is only read.
        delayed_sets: which messages of some topics are delayed, cancelled or copied. Raises StoreCorrupt,
            StoreUnreadable.
        ahead: the memory of messages that subscriptions have read ahead.
        expired: how many messages subscriptions have left out as their time was over.
        news: which queues got messages, for the subscriptions of each topic.
    """

    streams: StreamMap
    hidden: HiddenStreams
    clock: Clock
    reads: Reads
    appending: Appending | None
    append_columns: AppendColumns
    waiting: WaitingReaders
    async_reads: AsyncReads
    trim: Callable[[Stream, int], None]
    check_open: Callable[[], None]
    check_writes: Callable[[], None]
    limit_bytes: int
    append_timeout_s: float
    receipts: ReceiptNumbers
    delays: Delays | None
    delayed_sets: Callable[[Collection[str]], Mapping[str, DelayedSets]]
    ahead: ReadAhead
    expired: LifeCounts = field(default_factory=LifeCounts)
    news: NewMessages = field(default_factory=NewMessages)

    @property
    def may_write(self) -> bool:
        """False in a store that is only read: errors in its records are then corrected in memory alone."""
        return self.delays is not None

    def queues(self, topic: str) -> list[int]:
        """The queue ids of a topic that are known by now."""
        return list(self.streams.topics.get(topic, {}))


class ReceiptNumbers:
    """Numbers that are given once. They begin at random, whatever a clock says: no two openings give the same."""

    def __init__(self) -> None:
        self._next = secrets.randbits(62)
        self._lock = threading.Lock()

    def take(self, count: int) -> int:
        """The first of `count` numbers."""
        with self._lock:
            first = self._next
            self._next += count
        return first
