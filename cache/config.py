"""The settings of a message cache, checked."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from .block_cache import BLOCK_BYTES
from .edge import CHAIN_BLOCK_BYTES
from .errors import InvalidCacheConfig, shown
from .space import LEAST_BLOCK_BYTES, MOST_BLOCKS
from .tier import Tier

Readers = Literal["any", "once", "near"]
UNSET = ("expected_bytes", "edge_bytes")  # may be None
TIERS = ("heap", "off_heap", "private_file", "persistent")
EDGE_PART = 64  # of the memory of the tiers: edges, if there are any, take this part more
ACTIVE_BACKLOG_MESSAGES = 1000


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Settings of a message cache. Sizes are in bytes; 0 turns a tier off. `plan_memory` computes them.

    A wrong setting raises InvalidCacheConfig here. If this machine does not have the memory, opening the cache raises.

    Attributes:
        heap_bytes, off_heap_bytes, private_file_bytes, persistent_bytes: the sizes of the tiers.
        private_file_folder, persistent_folder: where the last two have their files; needed if they are on.
        expected_bytes: the size of all messages that will come, if it is known. The cache then computes up to which
            size messages are cached, so that they just fill it; cached messages stay until they are released, and the
            free ends of blocks are lent. None caches all messages: the oldest make room for new ones.
        edges: keep the short fragments, at the ends of their device blocks, of messages that are not cached. They take
            a 64th of the tiers' memory beside it.
        readers: which messages are cached for readers of a queue. "any": all messages. "once": each message is read
            once, so those that a reader has passed are released. "near": only messages that come while the backlog of
            a reader of their queue is below 1,000 messages.
    """

    heap_bytes: int = 0
    off_heap_bytes: int = 64 << 20
    private_file_bytes: int = 0
    persistent_bytes: int = 0
    private_file_folder: str | Path | None = None
    persistent_folder: str | Path | None = None
    expected_bytes: int | None = None
    edges: bool = False
    readers: Readers = "any"

    def __post_init__(self) -> None:
        for name in [field.name for field in fields(self) if field.name.endswith("_bytes")]:
            value = getattr(self, name)
            if (type(value) is not int or value < 0) and not (value is None and name in UNSET):
                raise InvalidCacheConfig(f"{name} is a number of bytes, 0 or more, not {shown(value)}")
        if type(self.edges) is not bool:
            raise InvalidCacheConfig(f"edges is True or False, not {shown(self.edges)}")
        if not isinstance(self.readers, str) or self.readers not in ("any", "once", "near"):
            raise InvalidCacheConfig(f'readers is "any", "once" or "near", not {shown(self.readers)}')
        for name in ("private_file", "persistent"):
            folder = getattr(self, f"{name}_folder")
            if folder is not None and not isinstance(folder, str | Path):
                raise InvalidCacheConfig(f"{name}_folder is a str, a Path or None, not {type(folder).__name__}")
            if getattr(self, f"{name}_bytes") and folder is None:
                raise InvalidCacheConfig(f"{name}_bytes is set, so {name}_folder must say where; or set it to 0")
        self._check_blocks(getattr(self, "block_bytes", BLOCK_BYTES))

    def _check_blocks(self, block_bytes: int) -> None:
        sizes = {f"{name}_bytes": getattr(self, f"{name}_bytes") for name in TIERS}
        for name, size in sizes.items():
            if 0 < size < block_bytes:
                raise InvalidCacheConfig(
                    f"{name} of {size:,} has no room for a block of {block_bytes:,}; 0 turns it off"
                )
        if sum(size // block_bytes for size in sizes.values()) >= MOST_BLOCKS:
            raise InvalidCacheConfig(
                f"heap_bytes and the other sizes together have {MOST_BLOCKS:,} blocks of {block_bytes:,} bytes, or more"
            )

    def open_tiers(self) -> list[Tier]:
        """Open the tiers in their order of use. If one fails, the others are closed, and CacheUnusable is raised."""
        tiers: list[Tier] = []
        with ExitStack() as undo:
            for name in TIERS:
                folder = getattr(self, f"{name}_folder", None)
                tiers.append(Tier(name.replace("_", "-"), getattr(self, f"{name}_bytes"), folder))
                undo.callback(tiers[-1].close)
            undo.pop_all()
        return tiers


@dataclass(frozen=True, slots=True)
class TunedCacheConfig(CacheConfig):
    """A CacheConfig with values that a cache otherwise chooses: for tests and measurements.

    Attributes:
        block_bytes: the size of a block of a chain, a power of two.
        evict: True: the oldest messages make room for new ones. False: cached messages stay until they are released.
            None: False with `expected_bytes`, else True.
        remainders: lend the free ends of last blocks to other streams when blocks run out; only without `evict`.
        edge_bytes: memory for edges, whatever `edges` says. None goes by `edges`.
        active_backlog_messages: the largest backlog of a reader, if `readers` is "near".
    """

    block_bytes: int = BLOCK_BYTES
    evict: bool | None = None
    remainders: bool = True
    edge_bytes: int | None = None
    active_backlog_messages: int = ACTIVE_BACKLOG_MESSAGES

    def __post_init__(self) -> None:
        block = self.block_bytes
        if type(block) is not int or block < LEAST_BLOCK_BYTES or block & (block - 1):
            raise InvalidCacheConfig(
                f"block_bytes is a power of two of at least {LEAST_BLOCK_BYTES}, not {shown(block)}"
            )
        CacheConfig.__post_init__(self)
        if self.edge_bytes is not None and 0 < self.edge_bytes < CHAIN_BLOCK_BYTES:
            raise InvalidCacheConfig(f"edge_bytes of {self.edge_bytes} has no room for a block of {CHAIN_BLOCK_BYTES}")
        if self.evict is not None and type(self.evict) is not bool:
            raise InvalidCacheConfig(f"evict is True, False or None, not {shown(self.evict)}")
        if type(self.remainders) is not bool:
            raise InvalidCacheConfig(f"remainders is True or False, not {shown(self.remainders)}")
        backlog = self.active_backlog_messages
        if type(backlog) is not int or backlog < 1:
            raise InvalidCacheConfig(
                f"active_backlog_messages is a number of messages, at least 1, not {shown(backlog)}"
            )

    @classmethod
    def of(cls, config: CacheConfig) -> TunedCacheConfig:
        """`config`, with a cache's own choices for values that it lacks."""
        if isinstance(config, cls):
            return config
        return cls(**{field.name: getattr(config, field.name) for field in fields(CacheConfig)})

    @property
    def evicts(self) -> bool:
        """True if the oldest messages make room."""
        return self.expected_bytes is None if self.evict is None else self.evict

    @property
    def size_of_edges(self) -> int:
        """The memory for edges; 0 without any."""
        if self.edge_bytes is not None:
            return self.edge_bytes
        tiers = sum(getattr(self, f"{name}_bytes") for name in TIERS)
        return max(tiers // EDGE_PART, CHAIN_BLOCK_BYTES) if self.edges and tiers else 0
