"""The settings of a message cache, checked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path

from .block_cache import BLOCK_BYTES
from .edge import CHAIN_BLOCK_BYTES
from .errors import InvalidCacheConfig
from .file_tiers import PersistentMemoryTier, PrivateFileTier
from .remainder import CLASS_BYTES
from .space import LEAST_BLOCK_BYTES, MOST_BLOCKS
from .tier import HeapTier, OffHeapTier, Tier

TIERS = ("heap", "off_heap", "private_file", "persistent")
SWITCHES = ("remainders", "release_on_read")


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Settings of a message cache. Sizes are in bytes; 0 turns a part off. `plan_memory` computes them.

    A wrong setting raises InvalidCacheConfig here. Memory that this machine does not have is an error when the cache
    opens.

    Attributes:
        heap_bytes, off_heap_bytes, private_file_bytes, persistent_bytes: the sizes of the tiers.
        private_file_folder, persistent_folder: where the last two have their files; needed if they are on.
        block_bytes: the size of a block of a chain, a power of two.
        expected_bytes: the size of all messages that will come. The cache then computes the admission threshold: the
            size up to which messages are cached.
        threshold_bytes: a fixed threshold instead. Without either, all messages are cached.
        evict: True: the oldest messages make room for new ones. False: cached messages stay until they are released.
            None: False with `expected_bytes`, else True.
        remainders: lend the free ends of last blocks to other streams when blocks run out; only without `evict`.
        class_bytes: the size step of the classes in which these free ends are kept.
        edge_bytes: memory for fragments of messages that are over the threshold.
        active_backlog_messages: cache a message only if a reader of its stream is fewer messages behind than this,
            1,000 for example. 0 caches without regard to readers.
        release_on_read: release the messages that a stream's reader has passed. Use it only if each message is
            read once.
    """

    heap_bytes: int = 0
    off_heap_bytes: int = 64 << 20
    private_file_bytes: int = 0
    persistent_bytes: int = 0
    private_file_folder: str | Path | None = None
    persistent_folder: str | Path | None = None
    block_bytes: int = BLOCK_BYTES
    expected_bytes: int | None = None
    threshold_bytes: int | None = None
    evict: bool | None = None
    remainders: bool = True
    class_bytes: int = CLASS_BYTES
    edge_bytes: int = 0
    active_backlog_messages: int = 0
    release_on_read: bool = False

    def __post_init__(self) -> None:
        for name in [field.name for field in fields(self) if field.name.endswith("_bytes")]:
            value = getattr(self, name)
            if value is None and name in ("expected_bytes", "threshold_bytes"):
                continue
            if type(value) is not int or value < 0:
                raise InvalidCacheConfig(f"{name} is a number of bytes, 0 or more, not {value!r}")
        if type(self.active_backlog_messages) is not int or self.active_backlog_messages < 0:
            raise InvalidCacheConfig(
                f"active_backlog_messages is a number of messages, 0 or more, not {self.active_backlog_messages!r}"
            )
        for name in SWITCHES:
            if type(getattr(self, name)) is not bool:
                raise InvalidCacheConfig(f"{name} is True or False, not {getattr(self, name)!r}")
        if self.evict is not None and type(self.evict) is not bool:
            raise InvalidCacheConfig(f"evict is True, False or None, not {self.evict!r}")
        if self.expected_bytes is not None and self.threshold_bytes is not None:
            raise InvalidCacheConfig("a threshold is fixed or computed from expected_bytes, not both; leave one out")
        self._check_folders()
        self._check_blocks()

    def _check_folders(self) -> None:
        for name in ("private_file", "persistent"):
            folder = getattr(self, f"{name}_folder")
            if folder is not None and not isinstance(folder, str | Path):
                raise InvalidCacheConfig(f"{name}_folder is a str, a Path or None, not {type(folder).__name__}")
            if getattr(self, f"{name}_bytes") and folder is None:
                raise InvalidCacheConfig(f"{name}_bytes is set, so {name}_folder must say where; or set it to 0")

    def _check_blocks(self) -> None:
        block = self.block_bytes
        if block < LEAST_BLOCK_BYTES or block & (block - 1):
            raise InvalidCacheConfig(f"block_bytes is a power of two of at least {LEAST_BLOCK_BYTES}, not {block}")
        if self.class_bytes < 1:
            raise InvalidCacheConfig(f"class_bytes is at least 1, not {self.class_bytes}")
        sizes = [(f"{name}_bytes", getattr(self, f"{name}_bytes"), block) for name in TIERS]
        for name, size, least in [*sizes, ("edge_bytes", self.edge_bytes, CHAIN_BLOCK_BYTES)]:
            if 0 < size < least:
                raise InvalidCacheConfig(f"{name} of {size:,} has no room for a block of {least:,}; 0 turns it off")
        if sum(size // block for _, size, _ in sizes) >= MOST_BLOCKS:
            raise InvalidCacheConfig(f"blocks of {block} bytes are too many for these tiers; use a larger block_bytes")

    @property
    def evicts(self) -> bool:
        """True if the oldest messages make room."""
        return self.expected_bytes is None if self.evict is None else self.evict

    def open_tiers(self) -> list[Tier]:
        """The tiers in their order of use. If one fails, closes those before it and raises CacheUnusable."""
        private, persistent = self.private_file_folder, self.persistent_folder
        makers: list[Callable[[], Tier]] = [
            lambda: HeapTier(self.heap_bytes),
            lambda: OffHeapTier(self.off_heap_bytes),
        ]
        if private is not None:
            makers.append(lambda: PrivateFileTier(self.private_file_bytes, private))
        if persistent is not None:
            makers.append(lambda: PersistentMemoryTier(self.persistent_bytes, persistent))
        tiers: list[Tier] = []
        with ExitStack() as undo:
            for make in makers:
                tiers.append(make())
                undo.callback(tiers[-1].close)
            undo.pop_all()
        return tiers
