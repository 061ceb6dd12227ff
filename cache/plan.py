"""The memory plan: computes the sizes of all parts from one number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from .block_cache import BLOCK_BYTES
from .config import CacheConfig
from .container import available_bytes
from .errors import InvalidCacheConfig, shown

DEFAULT_SHARE = Fraction(1, 4)  # of the available memory: this is a library, and its host needs memory too
LEAST_BYTES = 8 << 20

# A storage node's memory, heap : direct : page cache.
DELAYED = Fraction(1, 2)  # of the heap
HEAP, DIRECT, PAGE_CACHE = Fraction(1, 6), Fraction(2, 6), Fraction(3, 6)
# The parts' shares of the direct memory, in the source: of a broker's (the first two) and of a storage node's. Here one
# process has one direct memory, so they are scaled down to fit.
PARTS = {
    "publish_buffer_bytes": Fraction(1, 2),
    "tail_cache_bytes": Fraction(1, 5),
    "write_cache_bytes": Fraction(1, 4),
    "read_cache_bytes": Fraction(1, 4),
    "index_cache_bytes": Fraction(1, 10),
}
# The tiers of DRAM in the source's engine: 32 MB of heap, 1,700 MB off it, 5,000 MB of private file mapping.
TIERS = {
    "heap_bytes": Fraction(32, 6732),
    "off_heap_bytes": Fraction(1700, 6732),
    "private_file_bytes": Fraction(5000, 6732),
}


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The sizes of all parts, in bytes.

    Attributes:
        memory_limit_bytes: the number from which all others follow.
        working_bytes: left for objects, columns and buffers of work (the sources' heap).
        delayed_index_bytes: the part of these for the indexes of delayed messages.
        page_cache_bytes: left for the system's page cache.
        publish_buffer_bytes: for messages that are accepted and not durable yet.
        index_cache_bytes: for the decoded heads of frames of sealed segments, and for their footers.
        read_cache_bytes: the sources' size; a store whose reads are buffered leaves it to the page cache.
        write_cache_bytes: for the ring of the newest frames.
        tail_cache_bytes: for the tiers; without tiers for the ring, too: `dram_bytes` is both.
        heap_bytes, off_heap_bytes, private_file_bytes: the tail cache's part, cut into tiers of whole blocks.

    Invariants: no part is negative; working, page cache and direct parts together are at most the limit; the tiers
    together are at most `tail_cache_bytes`.
    """

    memory_limit_bytes: int
    working_bytes: int
    delayed_index_bytes: int
    page_cache_bytes: int
    publish_buffer_bytes: int
    tail_cache_bytes: int
    write_cache_bytes: int
    read_cache_bytes: int
    index_cache_bytes: int
    heap_bytes: int
    off_heap_bytes: int
    private_file_bytes: int

    def __post_init__(self) -> None:
        assert min(asdict(self).values()) >= 0
        direct = sum(getattr(self, name) for name in PARTS)
        assert direct + self.working_bytes + self.page_cache_bytes <= self.memory_limit_bytes
        assert self.heap_bytes + self.off_heap_bytes + self.private_file_bytes <= self.tail_cache_bytes

    @property
    def dram_bytes(self) -> int:
        """The message cache's share: tail cache and write cache together."""
        return self.tail_cache_bytes + self.write_cache_bytes

    def as_dict(self) -> dict[str, int]:
        """Name -> bytes, for `stats()` and for people."""
        return asdict(self)

    def cache_config(self, **settings: Any) -> CacheConfig:
        """The message cache's settings with the tiers of this plan; `settings` are added, or replace them.

        Without a folder for the private file mapping the off-heap tier gets its share: it is memory of the same kind.
        """
        sizes: dict[str, Any] = {"heap_bytes": self.heap_bytes, "off_heap_bytes": self.off_heap_bytes}
        if settings.get("private_file_folder") is None:
            sizes["off_heap_bytes"] = self.off_heap_bytes + self.private_file_bytes
        else:
            sizes["private_file_bytes"] = self.private_file_bytes
        return CacheConfig(**(sizes | settings))


def plan_memory(
    memory_limit_bytes: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    available: Callable[[], int] = available_bytes,
) -> MemoryPlan:
    """The sizes of all parts for a limit; by default a quarter of this container's available memory.

    Raises InvalidCacheConfig if the limit is no number of bytes, or under 8 MiB: turn the cache off then.
    """
    if memory_limit_bytes is None:
        memory_limit_bytes = max(int(available() * DEFAULT_SHARE), LEAST_BYTES)
    if type(memory_limit_bytes) is not int or memory_limit_bytes < LEAST_BYTES:
        raise InvalidCacheConfig(
            f"memory_limit_bytes is a number of bytes, at least {LEAST_BYTES:,}, not {shown(memory_limit_bytes)}; "
            "to do with less, turn the cache off"
        )
    whole = sum(PARTS.values())
    parts = {name: int(memory_limit_bytes * DIRECT * part / whole) for name, part in PARTS.items()}
    tail = parts["tail_cache_bytes"]
    tiers = {name: int(tail * part) // block_bytes * block_bytes for name, part in TIERS.items()}
    return MemoryPlan(
        memory_limit_bytes=memory_limit_bytes,
        working_bytes=int(memory_limit_bytes * HEAP),
        delayed_index_bytes=int(memory_limit_bytes * HEAP * DELAYED),
        page_cache_bytes=int(memory_limit_bytes * PAGE_CACHE),
        **parts,
        **tiers,
    )
