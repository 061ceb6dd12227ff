"""The lanes of a store that opens: each with its ring, its queue and its flushers, made of what recovery has found."""

from __future__ import annotations

from pathlib import Path

from ..config import StoreConfig, TunedConfig
from ..device.disk import Disk
from ..device.ring import Ring
from ..errors import StoreClosed
from ..format.layout import BLOCK_BYTES, MAX_FRAME_MESSAGES, align_up
from ..log.adoption import adopt
from ..log.flusher import Flusher
from ..log.lane_machine import LaneMachine
from ..log.queue import RequestQueue
from ..log.request import Request
from ..log.rounds import Rounds
from ..log.sizer import Sizer
from ..log.upkeep import Upkeep
from ..log.written_lane import LaneHooks
from ..read.caches import Caches
from ..recovery.recovered_lane import RecoveredLane
from .running import OpenStore
from .shared import Shared

OVERLAP_BYTES = 1 << 20
RING_FRAMES = 4
COLUMN_BYTES_A_MESSAGE = 300  # at the most: all columns, and the definition of a new stream
LEAST_BUFFER_BYTES = 4096


class LaneMaker:
    """Makes the lanes of one store, one after the other."""

    def __init__(
        self, shared: Shared, config: StoreConfig, lanes: int, disk: Disk, caches: Caches, upkeep: Upkeep,
        running: OpenStore,
    ) -> None:  # fmt: skip
        """`lanes` is how many there will be: each has its share of the memory."""
        self._shared = shared
        self._config = config
        self._lanes = lanes
        self._disk = disk
        self._caches = caches
        self._upkeep = upkeep
        self._running = running

    @property
    def _cap_bytes(self) -> int:
        """A lane's share of the publish buffer; the rounds' queue may have as much."""
        return max(self._caches.publish_buffer_bytes // self._lanes, LEAST_BUFFER_BYTES)

    def add(self, index: int, folder: Path, found: RecoveredLane) -> None:
        """Add a lane, its queue and its flushers to those of the store."""
        shared, config, upkeep, running = self._shared, self._config, self._upkeep, self._running
        recent = align_up(self._caches.recent_limit_bytes // self._lanes)
        ring = Ring(ring_bytes(config, self._caches.recent_bytes // self._lanes), recent)
        cap = self._cap_bytes
        threads = 2 if config.durability == "force" else 1
        sizer = Sizer(OVERLAP_BYTES)
        queue: RequestQueue[Request] = RequestQueue(
            cap, shared.frame_bytes, config.append_timeout_ms, sizer, threads, shared.clock
        )
        queue.listeners = running.listeners
        shared.sleepers.add(queue.wake)
        hooks = LaneHooks(upkeep.next_segment, upkeep.reserve_segment, upkeep.wake, upkeep.segment_full)
        reserve = upkeep.spares_of(index).reserve
        lane = LaneMachine(
            index, folder, self._disk, config, shared.clock.wall_ms, ring, queue, self._caches.held, hooks, reserve
        )  # fmt: skip
        for sequence, capacity in found.segments:
            upkeep.found_segment(index, sequence, capacity)
        for sequence, size in found.spares:
            upkeep.found_spare(index, sequence, size)
        adopt(lane, found, shared.streams)
        if found.streams:
            reserve.fill_at_opening(lane.footer_room.fixed_bytes)
        shared.lanes.append(lane)
        shared.queues.append(queue)
        running.flushers.append(Flusher(lane, queue, threads, running.poisoned, running.arrived))

    def begin_rounds(self) -> None:
        """Have a thread that takes transactions over several lanes, and large ones. Raises NoThread."""
        rounds = self.add_rounds()
        try:
            rounds.start()
        except BaseException:  # no thread, or an interrupt
            self._running.rounds = self._shared.rounds = None
            rounds.queue.close(StoreClosed("no thread takes transactions"))  # one that was begun all the same ends
            raise

    def add_rounds(self) -> Rounds:
        """Add what takes them, without its thread."""
        shared, config, running = self._shared, self._config, self._running
        queue: RequestQueue[Request] = RequestQueue(
            self._cap_bytes, shared.frame_bytes, config.append_timeout_ms, Sizer(OVERLAP_BYTES), 1, shared.clock
        )
        queue.listeners = running.listeners
        shared.sleepers.add(queue.wake)  # of callers at its cap
        found = Rounds(running.flushers, queue, shared.frame_bytes, shared.counts_shown, running.telling)
        running.rounds, shared.rounds = found, queue
        return found


def ring_bytes(config: StoreConfig, recent_bytes: int) -> int:
    """The first size of a lane's ring: for `recent_bytes` of readers, and the frames in flight in any case."""
    overhead = COLUMN_BYTES_A_MESSAGE * MAX_FRAME_MESSAGES + 64 * BLOCK_BYTES
    largest = TunedConfig.of(config).frame_bytes + config.max_message_bytes + overhead
    return align_up(max(recent_bytes, RING_FRAMES * largest))
