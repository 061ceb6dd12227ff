"""The types of what `stats()` gives: plain nested dicts, ready for JSON.

Units are in the names: `_bytes`, `_ms`; all other numbers are counts, since the store was opened.
"""

from __future__ import annotations

from typing import Any, TypedDict


class LogStats(TypedDict):
    """The writes of the lanes. `direct_io`: past the page cache; `held_requests` waited for another write.

    `block_bytes`: a write that is answered takes a multiple of it. `write_ms`: what the writes took together, each with
    its force, and forces without a write. `writes_by_time`: at n, how many of them took less than 2**n us, and not less
    than half of it; the last one has those that took longer.
    """

    written_bytes: int
    forces: int
    writes: int
    frames: int
    messages: int
    records: int
    payload_bytes: int
    padding_bytes: int
    held_requests: int
    write_ms: float
    writes_by_time: list[int]
    direct_io: bool
    block_bytes: int
    prewritten_bytes: int
    recycled_segments: int
    removed_segments: int


class ReaderSegmentStats(TypedDict):
    """Segments, of all lanes."""

    open: int
    sealed: int


class SegmentStats(ReaderSegmentStats):
    """`spare` are pre-written; `unsealed` are full and wait for their footers."""

    spare: int
    unsealed: int
    failed_seals: int


class ReserveStats(TypedDict):
    """Bytes that the lanes keep for records alone, for a full disk."""

    bytes: int
    wanted_bytes: int
    lanes_without: int


class QueueTableStats(TypedDict):
    """The indexes in memory, of open segments and of sealed ones, and the messages that they are of."""

    open_bytes: int
    open_messages: int
    sealed_bytes: int
    sealed_messages: int


class ReadStats(TypedDict):
    """Where the messages that were read came from. `device_bytes` counts the gaps that were read with them."""

    messages: int
    bytes: int
    recent_messages: int
    recent_bytes: int
    cached_messages: int
    cached_bytes: int
    read_ahead_messages: int
    read_ahead_bytes: int
    unsound_messages: int
    device_messages: int
    device_payload_bytes: int
    device_least_bytes: int | None
    device_bytes: int
    device_reads: int


class BufferStats(TypedDict):
    """The fill of the publish buffer."""

    used_bytes: int
    cap_bytes: int


class CacheStats(TypedDict):
    """The memory plan, and the caches that are on, as dicts or None; the footers and frame heads that are held."""

    error: str | None
    plan: Any
    messages: Any
    reads: Any
    held: dict[str, int]
    missed_messages: int


class SubscriptionStats(TypedDict):
    """The subscriptions that this opening has used, and the memory that they take.

    `expired`: messages that subscriptions have left out as they were older than their topic's `ttl_ms`.
    `removed_unacknowledged`: messages that retention removed before a subscription had acknowledged them, of all
    subscriptions together; `SubscriptionInfo` has each one's.
    """

    in_memory: int
    read_ahead_bytes: int
    read_ahead_limit_bytes: int
    due_bytes: int
    in_flight_bytes: int
    removed_unacknowledged: int
    expired: int


class BulkStats(TypedDict):
    """The bulk commits that were attached."""

    commits: int
    messages: int


class RecoveryStats(TypedDict):
    """The cost of the opening. `losses`: each `Loss` as a dict."""

    open_ms: float
    scan_ms: float
    scanned_bytes: int
    losses: list[dict[str, Any]]


class LiveStats(TypedDict):
    """A reader's knowledge of the process that writes. `mirror`: it has found the memory that the writer shares."""

    page: bool
    current: bool
    writer_pid: int | None
    looks: int
    mirror: bool


class Stats(TypedDict):
    """The figures of a store that writes. `delayed` and what is in it are by topic."""

    path: str
    durability: str
    alignment: str
    poisoned: str | None
    streams: int
    lanes: int
    log: LogStats
    last_background_error: str | None
    segments: SegmentStats
    reserve: ReserveStats
    queue_tables: QueueTableStats
    recent_bytes: int
    reads: ReadStats
    cache: CacheStats
    publish_buffer: BufferStats
    delayed: dict[str, dict[str, Any]]
    subscriptions: SubscriptionStats | dict[str, int]
    bulk: BulkStats
    recovery: RecoveryStats


class ReaderStats(TypedDict):
    """The figures of a store that is only read."""

    path: str
    read_only: bool
    streams: int
    lanes: int
    segments: ReaderSegmentStats
    queue_tables: QueueTableStats
    reads: ReadStats
    live: LiveStats
