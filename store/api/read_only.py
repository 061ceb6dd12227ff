"""A store that another process writes, opened for reading: `MessageStore.open(path, read_only=True)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from ..config import StoreConfig, TunedConfig
from ..device.disk import Disk
from ..device.folder import read_header
from ..errors import (
    InvalidConfig,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnreadable,
    copy_of,
)
from ..filters.given import Filter
from ..format.layout import lane_name
from ..format.store_files import StoreHeader
from ..live.files import SegmentIsGone
from ..live.followed_offsets import FollowedOffsets
from ..live.followed_ring import FollowedRing
from ..live.follower import Follower, FollowingReaders
from ..live.lane import FollowedLane
from ..log.lane import Lane
from ..log.queue import RequestQueue
from ..log.request import Request
from ..log.sizer import Sizer
from ..log.streams import Stream
from ..read.message import Message, MessageBatch
from ..read.scan import LaneSnapshot
from ..read.wanted import ScanFilter
from ..segment.held import HeldMemory
from ..topics.settings import TopicSettings
from .fetcher import Fetcher
from .figures import ReaderStats, ReadStats
from .shared import Shared

Given = TypeVar("Given")


class _RemovedMeanwhile(StoreUnreadable):
    """Retention removed a segment between two steps of a read."""


def reading_config(config: StoreConfig | None) -> StoreConfig:
    """The settings that count for a reader: its memory, and the lanes that it expects."""
    if config is None:
        return TunedConfig(recent_bytes=0)
    return TunedConfig(recent_bytes=0, lanes=config.lanes, memory_limit_bytes=config.memory_limit_bytes)


def refusal(path: Path) -> StoreReadOnly:
    """The error of the calls that change a store."""
    return StoreReadOnly(
        f"the store {path} was opened with read_only=True, and changes nothing; do this in the process that writes, or "
        f"open the store there without read_only"
    )


class FollowedStore(Fetcher):
    """The reading part of a store that another process writes.

    Invariants:
        * each read begins with a look at the live page: it sees at least what was durable when it was called;
        * no file is opened for writing, and no lock of the folder is taken;
        * a read that retention overtakes is made again on what is left. So it gives the right bytes, or
          OffsetOutOfRange.
    """

    def __init__(self, shared: Shared, disk: Disk) -> None:
        self.followers = FollowingReaders(shared.streams, shared.clock)
        super().__init__(shared, self.followers, may_write=False)
        self._disk = disk
        self._check_open = self._check_sound
        self.follower: Follower  # from `open` on, as
        self.store_id: bytes

    def open(self, held: HeldMemory) -> Follower:
        """Look at the folder for the first time. `held` is the memory for sealed segments."""
        shared, path = self._shared, self._shared.path
        header = read_header(self._disk, path)
        assert header is not None, "the folder was looked at"
        self.store_id = header.store_id
        wanted = shared.config.lanes
        if wanted not in (None, header.lanes):
            raise InvalidConfig(
                f"the store in {path} has {header.lanes} lanes for good, and the config says {wanted}; leave "
                f"`lanes` out"
            )
        lanes = [self._followed(index, header, held) for index in range(header.lanes)]
        self.follower = Follower(self._disk, path, header, lanes, self.followers)
        return self.follower

    def _followed(self, index: int, header: StoreHeader, held: HeldMemory) -> FollowedLane:
        shared = self._shared
        folder = shared.path / lane_name(index)
        if not folder.is_dir():
            raise StoreCorrupt("a lane's folder is missing", folder, 0)
        config = shared.config
        queue: RequestQueue[Request] = RequestQueue(
            config.publish_buffer_bytes, shared.frame_bytes, 0, Sizer(0), 0, shared.clock
        )
        queue.close(refusal(shared.path))
        ring = FollowedRing(header.lanes)
        shared.queues.append(queue)

        def make() -> Lane:
            return Lane(index, folder, self._disk, config, ring, queue, held, FollowedOffsets)

        return FollowedLane(self._disk, make, ring, header.store_id, shared.lanes, shared.streams)

    # -- following ------------------------------------------------------------------------------------

    def _check_sound(self) -> None:
        self._shared.check_open()
        if self.follower.error is not None:
            raise copy_of(self.follower.error)

    def _readable(self, topic: str, queue_id: int) -> Stream | None:
        self._check_sound()  # reads that wait for a known stream raise damage, too
        return super()._readable(topic, queue_id)

    def _follow(self) -> None:
        self._shared.check_open()
        try:
            self.follower.follow()
        except OSError as error:
            raise self._unreadable(error) from error

    def _fresh(self, read: Callable[[], Given]) -> Given:
        """A read of what is durable now, made again if retention or a compaction overtakes it."""
        in_vain = 0
        while True:
            self._follow()
            lanes = self._lanes.copy()
            try:
                found = read()
            except _RemovedMeanwhile:
                in_vain = 0 if self.follower.learn_starts() else in_vain + 1
                if in_vain > 1:  # once: another thread may have looked where the log begins
                    raise
            except StoreError:
                if lanes == self._lanes:
                    raise
            else:
                if lanes == self._lanes:  # else it may have looked at one of which nothing is left
                    return found

    def fresh(self, read: Callable[[], Given]) -> Given:
        """The result of a read that looks at segments by itself. Raises StoreUnreadable if the system refuses it."""

        def guarded() -> Given:
            try:
                return read()
            except OSError as error:
                raise self._unreadable(error) from error

        return self._fresh(guarded)

    def let_go(self) -> None:
        """Called after the end: have none of the folder's files open any more."""
        self.follower.let_go()

    def _unreadable(self, error: OSError) -> StoreUnreadable:
        if isinstance(error, SegmentIsGone):
            return _RemovedMeanwhile(
                f"{self._shared.path}: retention removed {error.filename} before it was read; read again from "
                f"the queue's first offset"
            )
        return super()._unreadable(error)

    # -- the calls that read --------------------------------------------------------------------------

    def _there(
        self, stream: Stream | None, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int
    ) -> list[Message]:
        def read() -> list[Message]:
            known = stream
            if known is None or known.lane is not self._lanes[known.lane.index]:
                known = self._readable(topic, queue_id)  # the look at the page may have brought it, or another one
            return super(FollowedStore, self)._there(known, topic, queue_id, offset, max_messages, max_bytes)

        return self._fresh(read)

    def _next_offset(self, stream: Stream | None) -> int:
        def read() -> int:
            known = None if stream is None else self._readable(stream.topic, stream.queue_id)
            return super(FollowedStore, self)._next_offset(known)

        return self._fresh(read)

    async def read_async(
        self, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int, wait_ms: int,
        min_messages: int = 1, min_bytes: int = 0,
    ) -> list[Message]:  # fmt: skip
        """`read` for coroutines."""
        self._check_open()
        if not self.follower.is_fresh:
            await self.async_reads.aside(self._follow, self._check_open)  # it may wait for the device: no loop does
        return await super().read_async(
            topic, queue_id, offset, max_messages, max_bytes, wait_ms, min_messages, min_bytes
        )

    def get_range(self, topic: str, queue_id: int, offset: int, fetch_num: int) -> dict[int, bytes]:
        return self._fresh(partial(super().get_range, topic, queue_id, offset, fetch_num))

    def batch(self, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int) -> MessageBatch:
        return self._fresh(partial(super().batch, topic, queue_id, offset, max_messages, max_bytes))

    def scan(self, wanted: ScanFilter, filter: Filter | None = None) -> Iterator[MessageBatch]:
        return self._fresh(partial(super().scan, wanted, filter))

    def _snapshots(self, wanted: ScanFilter) -> list[LaneSnapshot]:
        return self.follower.at_one_moment(partial(super()._snapshots, wanted))

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._fresh(partial(super().queue_bounds, topic, queue_id))

    def bounds_of_topic(self, topic: str) -> dict[int, tuple[int, int]]:
        return self._fresh(partial(super().bounds_of_topic, topic))

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        return self._fresh(partial(super().offset_at, topic, queue_id, timestamp_ms))

    def topics(self) -> list[str]:
        return self._fresh(super().topics)

    def queues(self, topic: str) -> list[int]:
        return self._fresh(partial(super().queues, topic))

    def topic_settings(self, topic: str) -> TopicSettings:
        return self._fresh(partial(super().topic_settings, topic))

    def stats(self, held: HeldMemory) -> ReaderStats:
        """Return the reader's figures since it was opened, as a plain nested dict, ready for JSON.

        `live`: whether there is a live page, whether it was written under the kernel that runs now, the process that
        wrote it last, how often this reader had something to look at, and whether it has found the writer's mirror.
        """
        views = [lane.view for lane in self._lanes]
        page = self.follower.page
        tables = [opened.table for view in views for opened in view.open]
        return {
            "path": str(self._shared.path),
            "read_only": True,
            "streams": len(self._streams),
            "lanes": len(self._lanes),
            "segments": {"open": len(tables), "sealed": sum(len(view.sealed) for view in views)},
            "queue_tables": {
                "open_bytes": sum(table.nbytes() for table in tables),
                "open_messages": sum(table.visible for table in tables),
                "sealed_bytes": held.frames.used_bytes + held.footers.used_bytes,
                "sealed_messages": sum(view.sealed_messages for view in views),
            },
            "reads": cast(ReadStats, dict(vars(self.reader.counters))),
            "live": {
                "page": page is not None,
                "current": page is not None and page.is_current,
                "writer_pid": None if page is None else page.header.pid,
                "looks": self.follower.looks,
                "mirror": self.follower.has_mirror,
            },
        }
