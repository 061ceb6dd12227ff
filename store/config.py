"""Every setting of a store, with its unit in its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Literal

from ..cache import CacheConfig as AnyCacheConfig
from ..cache import InvalidCacheConfig
from ..cache import TunedCacheConfig as AnyTunedCacheConfig
from ..cache.block_cache import BLOCK_BYTES as CACHE_BLOCK_BYTES
from ..cache.plan import LEAST_BYTES
from .errors import InvalidConfig, shown
from .format.layout import BLOCK_BYTES, FINE_BLOCK_BYTES, MAX_LANES

KIB = 1 << 10
MIB = 1 << 20
MOST_MESSAGE_BYTES = 512 * MIB  # that `max_message_bytes` may be

Durability = Literal["force", "os"]
Alignment = Literal["pad", "trim", "adaptive"]


@contextmanager
def _told_as_invalid_config() -> Iterator[None]:
    try:
        yield
    except InvalidCacheConfig as error:
        raise InvalidConfig(str(error)) from None


class CacheConfig(AnyCacheConfig):
    """Settings of the message cache; `stratalog.cache.CacheConfig` describes each. A wrong one raises InvalidConfig."""

    __slots__ = ()

    def __post_init__(self) -> None:
        with _told_as_invalid_config():
            super().__post_init__()


class TunedCacheConfig(AnyTunedCacheConfig):
    """A CacheConfig with values that a cache otherwise chooses; `stratalog.cache.TunedCacheConfig` describes each."""

    __slots__ = ()

    def __post_init__(self) -> None:
        with _told_as_invalid_config():
            super().__post_init__()


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Settings of one opened store. A value out of its range raises InvalidConfig.

    Attributes:
        lanes: the number of append logs, 1 to 64, each with its own flushers. It is fixed when the folder is
            created; another number than the folder's raises InvalidConfig in `open`. None takes the folder's number, 1
            in a new folder; the `config` of the opened store has the number.
        durability: what an answer means. "force": the message was forced to the device, and survives a power cut.
            "os": the kernel has the message. It survives the death of the process; a power cut may take the messages
            of the last `flush_interval_ms`.
        flush_interval_ms: how often "os" forces.
        segment_bytes: the size of a full segment, a multiple of 4,096; the first ones of a new lane are smaller.
        publish_buffer_bytes: the cap of the bytes accepted and not yet durable, over all lanes; the memory plan
            can lower it.
        append_timeout_ms: how long an append waits at that cap before `PublishBufferFull`.
        max_message_bytes: a larger message, with key and properties, raises `MessageTooLarge`.
        retention_ms: removes sealed segments whose newest message is older than this; None keeps them.
        retention_bytes: removes the oldest sealed segments while the store is larger than this; None keeps them.
        memory_limit_bytes: the one number that the memory plan follows from: the sizes of the ring of recent frames,
            of the plan's tiers and of the indexes of delayed messages, see `stats()["cache"]["plan"]`. None takes a
            quarter of the memory that is available in this container; the ring then begins with 64 MiB, and grows with
            the log. 0 makes no plan: the ring then has 64 MiB.
        cache: a message cache of tiers for messages that have left the ring. "plan" takes the
            plan's tiers, which evict the oldest messages. None makes no such cache: the ring then has the plan's whole
            share for messages, and appends pay nothing for a cache.
    """

    lanes: int | None = None
    durability: Durability = "force"
    flush_interval_ms: int = 1_000
    segment_bytes: int = 256 * MIB
    publish_buffer_bytes: int = 64 * MIB
    append_timeout_ms: int = 30_000
    max_message_bytes: int = 4 * MIB
    retention_ms: int | None = None
    retention_bytes: int | None = None
    memory_limit_bytes: int | None = None
    cache: AnyCacheConfig | Literal["plan"] | None = None

    def __post_init__(self) -> None:
        if self.lanes is not None:
            self._integer("lanes", 1, MAX_LANES)
        self._integer("flush_interval_ms", 1, 86_400_000)
        self._integer("segment_bytes", 64 * KIB, (1 << 32) - MIB)
        self._integer("publish_buffer_bytes", 4 * KIB, 1 << 40)
        self._integer("append_timeout_ms", 0, 86_400_000)
        self._integer("max_message_bytes", 1, MOST_MESSAGE_BYTES)
        if self.retention_ms is not None:
            self._integer("retention_ms", 0, 1 << 50)
        if self.retention_bytes is not None:
            self._integer("retention_bytes", 0, 1 << 60)
        if self.memory_limit_bytes is not None:
            self._integer("memory_limit_bytes", 0, 1 << 50)
            if self.memory_limit_bytes:
                self._integer("memory_limit_bytes", LEAST_BYTES, 1 << 50)
        if self.segment_bytes % BLOCK_BYTES:
            raise InvalidConfig(f"segment_bytes must be a multiple of {BLOCK_BYTES}, not {self.segment_bytes}")
        self._check_choices()

    def _check_choices(self) -> None:
        plans = isinstance(self.cache, str) and self.cache == "plan"
        if self.cache is not None and not plans and not isinstance(self.cache, AnyCacheConfig):
            raise InvalidConfig(f'cache is a CacheConfig, "plan" or None, not {shown(self.cache)}')
        if plans and self.memory_limit_bytes == 0:
            raise InvalidConfig('cache="plan" needs a plan: give memory_limit_bytes a number, or leave it out')
        # The type first, here and above: comparing any other object may raise anything.
        if not isinstance(self.durability, str) or self.durability not in ("force", "os"):
            raise InvalidConfig(f'durability is "force" or "os", not {shown(self.durability)}')

    def _integer(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or not low <= value <= high:
            raise InvalidConfig(f"{name} must be an integer from {low} to {high}, not {shown(value)}")


@dataclass(frozen=True, slots=True)
class TunedConfig(StoreConfig):
    """A StoreConfig with values that a store otherwise chooses: for tests and measurements.

    Attributes:
        alignment: "pad" fills the last, partly filled 4 KiB block of a write with zeros, "trim" holds its messages
            back for the next write, and "adaptive" chooses for each write.
        prewrite_bytes: `open` pre-writes segments of this many bytes in all and touches as many bytes of the
            ring, so the first appends need not.
        max_frame_bytes: a frame ends when its payloads reach this size; in small segments earlier, see `frame_bytes`.
        recent_bytes: the size of the ring of recent frames in memory, over all lanes. None with `memory_limit_bytes`
            takes the plan's share at once. None without it takes 64 MiB, or the plan's share if that is less; without
            a cache, the ring then grows with the log to the plan's share, 512 MiB at most. A lane's ring is never
            smaller than four of its largest frames. Memory is taken as the log grows into it.
        direct_io: None writes with O_DIRECT if the file system takes it, else through the page cache. True makes
            `open` raise StoreUnusable if the file system refuses it. False never uses it; durability "os" never does.
        block_bytes: the size of the blocks that a write past the page cache consists of: 512 or 4,096. None takes 512
            where the device itself promises that a power cut in such a write harms nothing beside it, else 4,096. 512
            on any other device may cost acknowledged messages. With "os" None and 512 are the same.
        read_cache_bytes: the memory of a read cache with its own read-ahead. 0 leaves both to the page cache.
    """

    alignment: Alignment = "adaptive"
    prewrite_bytes: int = 0
    max_frame_bytes: int = 2 * MIB
    recent_bytes: int | None = None
    direct_io: bool | None = None
    block_bytes: int | None = None
    read_cache_bytes: int = 0

    def __post_init__(self) -> None:
        StoreConfig.__post_init__(self)
        self._integer("prewrite_bytes", 0, 1 << 50)
        self._integer("max_frame_bytes", 4 * KIB, 256 * MIB)
        if self.recent_bytes is not None:
            self._integer("recent_bytes", 0, 1 << 40)
        self._integer("read_cache_bytes", 0, 1 << 50)
        if self.read_cache_bytes != 0:
            self._integer("read_cache_bytes", CACHE_BLOCK_BYTES, 1 << 50)
        if not isinstance(self.alignment, str) or self.alignment not in ("pad", "trim", "adaptive"):
            raise InvalidConfig(f'alignment is "pad", "trim" or "adaptive", not {shown(self.alignment)}')
        if self.block_bytes is not None and (
            type(self.block_bytes) is not int or self.block_bytes not in (FINE_BLOCK_BYTES, BLOCK_BYTES)
        ):
            raise InvalidConfig(f"block_bytes is None, 512 or 4096, not {shown(self.block_bytes)}")
        if self.direct_io is not None and type(self.direct_io) is not bool:
            raise InvalidConfig(f"direct_io is None, True or False, not {shown(self.direct_io)}")
        if self.direct_io and self.durability == "os":
            raise InvalidConfig('direct_io=True is for durability="force": with "os" the kernel keeps what is written')

    @classmethod
    def of(cls, config: StoreConfig) -> TunedConfig:
        """`config`, with a store's own choices for values that it lacks."""
        if isinstance(config, cls):
            return config
        return cls(**{field.name: getattr(config, field.name) for field in fields(StoreConfig)})

    @property
    def frame_bytes(self) -> int:
        """The size at which a frame ends: `max_frame_bytes`, but at most 1 MiB or, if more, a quarter of a segment.

        With their headers two frames of half a segment do not fit into it, and half of it would stay empty.
        """
        return min(self.max_frame_bytes, max(self.segment_bytes // 4, MIB))
