"""The memory that a run gives its store, by kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...testing import TunedCacheConfig

BLOCK_BYTES = 32 << 10
SHARED_MEMORY = Path("/dev/shm")
# The contest's engine: 7 of 125 GB were DRAM, 61 GB persistent memory.
CONTEST_DRAM_PART = 0.056
CONTEST_PMEM_PART = 0.49
SMALL_MESSAGE_BYTES = 64 << 10
SMALL_FRAME_BYTES = 256 << 10
RING_PART_OF_DRAM = 4  # the ring is DRAM too: a quarter of it
# Its DRAM: 32 MB of heap, 1,700 MB off the heap, the rest of 6,732 MB a private file mapping.
HEAP_PART, OFF_HEAP_PART = 32 / 6732, 1700 / 6732


@dataclass(frozen=True)
class Memory:
    """Sizes of the tiers and rules of the message cache. Without any tier there is no cache.

    `recent_bytes`, `read_cache_bytes` and `limit_bytes` go to the store as they are; None leaves its default.
    `largest_message_bytes` allows a small ring, which is at least four of the largest frames.
    """

    heap_bytes: int = 0
    off_heap_bytes: int = 0
    private_file_bytes: int = 0
    persistent_bytes: int = 0
    persistent_folder: Path = SHARED_MEMORY
    expected_bytes: int | None = None
    release_on_read: bool = False
    recent_bytes: int | None = None
    largest_message_bytes: int | None = None
    read_cache_bytes: int | None = None
    limit_bytes: int | None = None

    @property
    def tier_bytes(self) -> int:
        """The bytes of all tiers together."""
        return self.heap_bytes + self.off_heap_bytes + self.private_file_bytes + self.persistent_bytes

    def as_in_the_contest(self, size_bytes: int, expected_bytes: int) -> Memory:
        """Tiers for a run of `size_bytes` as the contest had them, the ring's memory out of the DRAM's share; the
        threshold of admission is computed for `expected_bytes`."""
        dram = int(size_bytes * CONTEST_DRAM_PART)
        ring = dram // RING_PART_OF_DRAM
        heap, off_heap = (_whole_blocks((dram - ring) * part) for part in (HEAP_PART, OFF_HEAP_PART))
        return replace(
            self,
            recent_bytes=ring if self.recent_bytes is None else self.recent_bytes,
            largest_message_bytes=SMALL_MESSAGE_BYTES,
            limit_bytes=0,
            heap_bytes=heap,
            off_heap_bytes=off_heap,
            private_file_bytes=_whole_blocks(dram - ring - heap - off_heap),
            persistent_bytes=_whole_blocks(size_bytes * CONTEST_PMEM_PART),
            expected_bytes=expected_bytes,
            release_on_read=True,
        )

    def settings(self, folder: Path) -> dict[str, Any]:
        """StoreConfig's arguments; files of a private mapping go to `folder`."""
        found: dict[str, Any] = {}
        if self.limit_bytes is not None:
            found["memory_limit_bytes"] = self.limit_bytes
        if self.recent_bytes is not None:
            found["recent_bytes"] = self.recent_bytes
        if self.largest_message_bytes is not None:
            found |= {"max_message_bytes": self.largest_message_bytes, "max_frame_bytes": SMALL_FRAME_BYTES}
        if self.read_cache_bytes is not None:
            found["read_cache_bytes"] = self.read_cache_bytes
        if self.tier_bytes:
            found["cache"] = TunedCacheConfig(
                heap_bytes=self.heap_bytes,
                off_heap_bytes=self.off_heap_bytes,
                private_file_bytes=self.private_file_bytes,
                private_file_folder=folder if self.private_file_bytes else None,
                persistent_bytes=self.persistent_bytes,
                persistent_folder=self.persistent_folder if self.persistent_bytes else None,
                block_bytes=BLOCK_BYTES,
                expected_bytes=self.expected_bytes,
                readers="once" if self.release_on_read else "any",
            )
        return found


def _whole_blocks(size_bytes: float) -> int:
    """The largest multiple of a block that is not over `size_bytes`."""
    return int(size_bytes) // BLOCK_BYTES * BLOCK_BYTES
