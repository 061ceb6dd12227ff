"""The memory that a store uses beside its log: sizes from one plan (R24), the message cache, the read cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...cache import CacheConfig, CacheError, MessageCache, ReadCache, plan_memory
from ..config import MIB, StoreConfig, TunedConfig
from ..errors import StoreCorrupt, StoreError, StoreUnusable
from ..log.lane import Lane
from ..segment.held import HELD_BYTES, HeldMemory
from ..segment.sealed import SealedSegment
from .feed import key_of
from .finder import first_offset

RECENT_BYTES, MOST_RECENT_BYTES = 64 * MIB, 512 * MIB
STEP_STREAMS = 512
PAUSE_S = 50e-6
Given = TypeVar("Given")


class Caches:
    """The sizes that a store goes by, and the caches made of them.

    Attributes:
        plan: where the sizes come from that are not set; None without one.
        publish_buffer_bytes: never more than the setting of this name says.
        recent_bytes: of the ring, which is both the tail cache and the write cache (R20, R21): it serves what was
            just written whether it can be read from the device or not.
        recent_limit_bytes: what the ring may grow to: more than `recent_bytes` where nothing was set.
        held: what readers hold of sealed segments: the plan's index cache.
        messages, reads: None where there is none.
    """

    def __init__(self, config: StoreConfig) -> None:
        """Raises StoreUnusable if a tier cannot have its memory."""
        tuned = TunedConfig.of(config)
        plan = self.plan = plan_memory(config.memory_limit_bytes) if config.memory_limit_bytes != 0 else None
        self.publish_buffer_bytes = config.publish_buffer_bytes
        recent, limit = tuned.recent_bytes, 0
        if plan is not None:
            self.publish_buffer_bytes = min(self.publish_buffer_bytes, plan.publish_buffer_bytes)
            if recent is None:
                share = plan.dram_bytes if config.cache is None else plan.write_cache_bytes
                # Nobody has asked for more. Fresh memory is dear to touch, so it grows as the log does.
                recent = min(share, RECENT_BYTES) if config.memory_limit_bytes is None else share
                limit = min(share, MOST_RECENT_BYTES) if config.cache is None and not tuned.read_cache_bytes else 0
        self.recent_bytes = RECENT_BYTES if recent is None else recent
        self.recent_limit_bytes = max(self.recent_bytes, limit)
        self.held = HeldMemory(HELD_BYTES if plan is None else plan.index_cache_bytes)
        self.error: str | None = None  # why a cache was given up
        self.messages: MessageCache | None = None
        self.reads: ReadCache | None = None
        self.lanes = 1
        try:
            if isinstance(config.cache, CacheConfig):
                self.messages = MessageCache(config.cache)
            elif plan is not None and config.cache == "plan":
                self.messages = MessageCache(plan.cache_config())
            if tuned.read_cache_bytes:
                self.reads = ReadCache(tuned.read_cache_bytes)
        except CacheError as error:
            self.close()
            raise StoreUnusable(f"the cache cannot be had: {error}") from error

    def key(self, lane: Lane, number: int) -> int:
        """A stream's number in the caches: unique over all lanes."""
        return key_of(lane, self.lanes, number)

    def forget_removed(self, lane: Lane, gone: Sequence[SealedSegment]) -> None:
        """Retention has removed a lane's oldest segments: nobody reads what they had."""
        self.held.drop_places(lane.index)
        if self.messages is not None or self.reads is not None:
            self.attempt(lambda: self._release_removed(lane, gone), None)

    def attempt(self, call: Callable[[], Given], failed: Given) -> Given:
        """What a call of a cache gives; `failed` if the cache fails, and is given up. Raises what the log does."""
        try:
            return call()
        except (OSError, StoreError):
            raise
        except Exception as error:
            self.give_up(error)
            return failed

    def give_up(self, error: Exception) -> None:
        """A cache has failed: go on without any. One is never worth an append, nor the store's own work."""
        self.error = f"the caches are off: {type(error).__name__}: {error}"
        self.close()

    def _release_removed(self, lane: Lane, gone: Sequence[SealedSegment]) -> None:
        """Of each stream that had messages there; of all where a footer does not tell."""
        for sealed in gone:
            try:
                footer = sealed.footer
                numbers = np.flatnonzero(np.diff(footer.start.astype(np.int64)))
                ends = footer.next_offsets[numbers].tolist()
            except StoreCorrupt:
                numbers = np.arange(len(lane.streams))
                ends = [first_offset(lane, lane.view, number) for number in numbers.tolist()]
            for at, (number, end) in enumerate(zip(numbers.tolist(), ends, strict=True)):
                self._release(lane, number, end)
                if at % STEP_STREAMS == STEP_STREAMS - 1:
                    time.sleep(PAUSE_S)

    def forget_trimmed(self, lane: Lane, number: int, first: int) -> None:
        """Nobody reads what is below this offset of a stream."""
        self.attempt(lambda: self._release(lane, number, first), None)

    def _release(self, lane: Lane, number: int, first: int) -> None:
        key = self.key(lane, number)
        if self.messages is not None:
            self.messages.release(key, first)
        if self.reads is not None:
            self.reads.drop(key, first)

    def stats(self) -> dict[str, Any]:
        """Plain and nested; None for what there is not."""
        return {
            "error": self.error,
            "plan": None if self.plan is None else self.plan.as_dict(),
            "messages": None if self.messages is None else self.messages.stats(),
            "reads": None if self.reads is None else self.reads.stats(),
            "held": self.held.stats(),
        }

    def close(self) -> None:
        """Let go of all memory."""
        if self.messages is not None:
            self.messages.close()
        if self.reads is not None:
            self.reads.close()
