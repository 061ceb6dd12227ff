"""A store that another process writes, opened for reading: `MessageStore.open(path, read_only=True)`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..config import StoreConfig
from ..device.disk import Disk
from ..device.folder import check_store_folder, read_header
from ..device.ring import Ring
from ..errors import InvalidConfig, StoreCorrupt, StoreFull, StoreReadOnly, StoreUnreadable, again
from ..format.layout import BLOCK_BYTES, lane_name
from ..format.store_files import StoreHeader
from ..live.files import SegmentIsGone
from ..live.follower import Follower, FollowingReaders
from ..live.lane import FollowedLane
from ..log.lane import Lane
from ..log.queue import RequestQueue, Sizer
from ..log.streams import Stream, check_name
from ..read.caches import Caches
from ..read.message import Message, MessageBatch
from ..segment.segment import Segment
from .fetcher import Fetcher

if TYPE_CHECKING:
    from .running import Running

Given = TypeVar("Given")


class _RemovedMeanwhile(StoreUnreadable):
    """Retention removed a segment between two steps of a read."""


def reading_config(config: StoreConfig | None, *, repair: bool) -> StoreConfig:
    """The settings that count for a reader: its memory, and the lanes that it expects. Raises InvalidConfig."""
    if repair:
        raise InvalidConfig("a repair changes files, and read_only=True changes none; give one of the two")
    if config is None:
        return StoreConfig(recent_bytes=0)
    return StoreConfig(recent_bytes=0, lanes=config.lanes, memory_limit_bytes=config.memory_limit_bytes)


class Following(Fetcher):
    """The part of a store that only reads, and follows the process that writes.

    Invariants:
        * each read begins with a look at the live page: it sees at least what was durable when it was called;
        * no file is opened for writing, and no lock of the folder is taken;
        * a read that retention overtakes is made again on what is left. So it gives the right bytes, or
          OffsetOutOfRange.
    """

    _disk: Disk
    _running: Running
    _caches: Caches
    _store_id: bytes
    _follower: Follower
    _waiting: FollowingReaders

    def _new_waiting(self) -> FollowingReaders:
        return FollowingReaders(self._streams, self._clock)

    # -- opening --------------------------------------------------------------------------------------

    def _enter(self) -> None:
        check_store_folder(self._disk, self.path)

    def _open(self, repair: bool) -> None:
        header = read_header(self._disk, self.path)
        assert header is not None, "the folder was looked at"
        if self.config.lanes not in (None, header.lanes):
            raise InvalidConfig(
                f"the store in {self.path} has {header.lanes} lanes for good, and the config says {self.config.lanes}; "
                f"leave `lanes` out"
            )
        self.config = dataclasses.replace(self.config, lanes=header.lanes)
        self._store_id = header.store_id
        lanes = [self._followed(index, header) for index in range(header.lanes)]
        self._follower = Follower(self._disk, self.path, header, lanes, self._waiting, self._clock)
        self._running.live = self._follower
        self._follower.follow()

    def _followed(self, index: int, header: StoreHeader) -> FollowedLane:
        folder = self.path / lane_name(index)
        if not folder.is_dir():
            raise StoreCorrupt("a lane's folder is missing", folder, 0)
        config, refused = self.config, self._refusal()
        queue = RequestQueue(config.publish_buffer_bytes, config.max_frame_bytes, 0, Sizer(0), 0, self._clock)
        queue.close(refused)
        lane = Lane(
            index, folder, self._disk, config, self._clock.wall_ms, Ring(BLOCK_BYTES), _no_segment, _nothing, _nothing
        )
        lane.held = self._caches.held
        self._lanes.append(lane)
        self._queues.append(queue)
        return FollowedLane(self._disk, lane, header.store_id, self._streams, queue)

    def _refusal(self) -> StoreReadOnly:
        return StoreReadOnly(
            f"the store {self.path} was opened with read_only=True, and takes no message; append in the process that "
            f"writes, or open the store there without read_only"
        )

    def _stream(self, topic: object, queue_id: object) -> Stream:
        """For the calls that append to a new queue."""
        check_name(topic, queue_id)
        self._check_open()
        raise self._refusal()

    # -- following ------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        super()._check_open()
        if self._follower.error is not None:
            raise again(self._follower.error)

    def _follow(self) -> None:
        Fetcher._check_open(self)
        try:
            self._follower.follow()
        except OSError as error:
            raise self._unreadable(error) from error

    def _fresh(self, read: Callable[[], Given]) -> Given:
        """A read of what is durable now, made again if retention overtakes it."""
        while True:
            self._follow()
            try:
                return read()
            except _RemovedMeanwhile:
                if not self._follower.look_at_starts():
                    raise

    def _unreadable(self, error: OSError) -> StoreUnreadable:
        if isinstance(error, SegmentIsGone):
            return _RemovedMeanwhile(
                f"{self.path}: retention removed {error.filename} before it was read; read again from the queue's "
                f"first offset"
            )
        return super()._unreadable(error)

    # -- the calls that read --------------------------------------------------------------------------

    def read(
        self, topic: str, queue_id: int, offset: int = 0, max_messages: int = 32, max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> list[Message]:  # fmt: skip
        return self._fresh(partial(super().read, topic, queue_id, offset, max_messages, max_bytes, wait_ms))

    async def read_async(
        self, topic: str, queue_id: int, offset: int = 0, max_messages: int = 32, max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> list[Message]:  # fmt: skip
        self._check_open()
        if not self._follower.is_fresh:
            try:
                await self._async_reads.run(self._follow)  # it may wait for the device, which no loop does
            except RuntimeError:
                self._check_open()  # raises StoreClosed if that is why the threads take nothing more
                raise
        return await super().read_async(topic, queue_id, offset, max_messages, max_bytes, wait_ms)

    def get_range(self, topic: str, queue_id: int, offset: int, fetch_num: int) -> dict[int, bytes]:
        return self._fresh(partial(super().get_range, topic, queue_id, offset, fetch_num))

    def read_batch(
        self, topic: str, queue_id: int, offset: int = 0, max_messages: int = 4096, max_bytes: int = 64 << 20
    ) -> MessageBatch:
        return self._fresh(partial(super().read_batch, topic, queue_id, offset, max_messages, max_bytes))

    def scan(self) -> Iterator[MessageBatch]:
        return self._fresh(super().scan)

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._fresh(partial(super().queue_bounds, topic, queue_id))

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        return self._fresh(partial(super().offset_at, topic, queue_id, timestamp_ms))

    def topics(self) -> list[str]:
        return self._fresh(super().topics)

    def queues(self, topic: str) -> list[int]:
        return self._fresh(partial(super().queues, topic))

    def stats(self) -> dict[str, Any]:
        """Return the reader's figures since it was opened, as a plain nested dict, ready for JSON.

        `live`: whether there is a live page, whether it was written under the kernel that runs now, the process that
        wrote it last, and how often this reader had something to look at.
        """
        views = [lane.view for lane in self._lanes]
        page = self._follower.page
        tables = [opened.table for view in views for opened in view.open]
        return {
            "path": str(self.path),
            "read_only": True,
            "streams": len(self._streams),
            "lanes": len(self._lanes),
            "segments": {"open": len(tables), "sealed": sum(len(view.sealed) for view in views)},
            "queue_tables": {
                "open_bytes": sum(table.nbytes() for table in tables),
                "open_messages": sum(table.visible for table in tables),
                "sealed_bytes": self._caches.held.frames.used_bytes + self._caches.held.footers.used_bytes,
                "sealed_messages": sum(one.record.entries for view in views for one in view.sealed),
            },
            "reads": dict(vars(self._reader.counters)),
            "live": {
                "page": page is not None,
                "current": page is not None and page.is_current,
                "writer_pid": None if page is None else page.header.pid,
                "looks": self._follower.looks,
            },
        }


def _no_segment(lane: Lane, at_least_bytes: int) -> Segment:
    raise StoreFull("a reader makes no segment")


def _nothing(*given: object) -> None:
    """What a lane tells, nobody needs to know here."""
