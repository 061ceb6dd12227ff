"""Every setting of a store, with its unit in its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..cache import CacheConfig as AnyCacheConfig
from ..cache import InvalidCacheConfig
from ..cache.block_cache import BLOCK_BYTES as CACHE_BLOCK_BYTES
from ..cache.plan import LEAST_BYTES
from .errors import InvalidConfig, shown
from .format.layout import BLOCK_BYTES, MAX_LANES

KIB = 1 << 10
MIB = 1 << 20

Durability = Literal["force", "os"]
Alignment = Literal["pad", "trim", "adaptive"]


class CacheConfig(AnyCacheConfig):
    """Settings of the message cache: see `cache.CacheConfig` for each. What cannot be raises InvalidConfig."""

    __slots__ = ()

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except InvalidCacheConfig as error:
            raise InvalidConfig(str(error)) from None


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Settings of one opened store. What cannot be raises InvalidConfig.

    Attributes:
        lanes: append logs with a flusher of their own (R1). Fixed when the folder is created: any other number is
            then InvalidConfig. None takes what the folder has, 1 in a new one; the `config` of the opened store says
            which.
        durability: "force": an answer means forced to the device, so it survives a power cut.
            "os": an answer means handed to the kernel: it survives the death of the process, and a power
            cut may take what was appended in the last `flush_interval_ms`.
        flush_interval_ms: how often "os" forces.
        alignment: what happens to the last, partly filled 4 KiB block of a write (R4 to R6).
        segment_bytes: size of a full segment; the first ones of a new lane are smaller.
        prewrite_bytes: segments of this many bytes in all stand pre-written (R7) when `open` returns, and as
            much of the ring was touched: what the first appends would pay for, `open` does.
        publish_buffer_bytes: cap of the bytes accepted and not yet durable, over all lanes (R19); at most the
            plan's, if there is one.
        append_timeout_ms: how long an append waits at that cap before `PublishBufferFull`.
        max_message_bytes: larger messages are refused with `MessageTooLarge`.
        max_frame_bytes: a batch is cut when its payloads reach this.
        recent_bytes: the ring of recent frames in memory, over all lanes. None is 64 MiB, or what the plan has for
            it if `memory_limit_bytes` is given. A lane's part is at least four times its largest frame, whatever is
            given here. Memory is taken as the log grows into it.
        retention_ms: sealed segments whose newest message is older are removed; None keeps them.
        retention_bytes: the oldest sealed segments are removed while the store is larger; None keeps them.
        direct_io: None writes with O_DIRECT where the file system takes it, else through the page cache; with True
            `open` raises StoreUnusable where it does not. False never uses it, nor does durability "os".
        memory_limit_bytes: the one number that the sizes of the ring and of the plan's tiers follow from (R24; see
            `stats()["cache"]["plan"]`). None is a quarter of what is available in this container; 0 plans nothing: the
            ring then has 64 MiB.
        cache: a message cache of tiers behind the ring, with its rules (R13 to R18, R20); "plan" takes the plan's
            tiers, which evict what is oldest. None is none: the ring, which costs an append nothing, then has all of
            the plan's share for messages.
        read_cache_bytes: memory of the read cache with its own read-ahead (R22). 0 leaves both to the page cache.
    """

    lanes: int | None = None
    durability: Durability = "force"
    flush_interval_ms: int = 1_000
    alignment: Alignment = "adaptive"
    segment_bytes: int = 256 * MIB
    prewrite_bytes: int = 0
    publish_buffer_bytes: int = 64 * MIB
    append_timeout_ms: int = 30_000
    max_message_bytes: int = 4 * MIB
    max_frame_bytes: int = 1 * MIB
    recent_bytes: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    direct_io: bool | None = None
    memory_limit_bytes: int | None = None
    cache: AnyCacheConfig | Literal["plan"] | None = None
    read_cache_bytes: int = 0

    def __post_init__(self) -> None:
        if self.lanes is not None:
            self._integer("lanes", 1, MAX_LANES)
        self._integer("flush_interval_ms", 1, 86_400_000)
        self._integer("segment_bytes", 64 * KIB, (1 << 32) - MIB)
        self._integer("prewrite_bytes", 0, 1 << 50)
        self._integer("publish_buffer_bytes", 4 * KIB, 1 << 40)
        self._integer("append_timeout_ms", 0, 86_400_000)
        self._integer("max_message_bytes", 1, 512 * MIB)
        self._integer("max_frame_bytes", 4 * KIB, 256 * MIB)
        if self.recent_bytes is not None:
            self._integer("recent_bytes", 0, 1 << 40)
        if self.retention_ms is not None:
            self._integer("retention_ms", 0, 1 << 50)
        if self.retention_bytes is not None:
            self._integer("retention_bytes", 0, 1 << 60)
        if self.memory_limit_bytes is not None:
            self._integer("memory_limit_bytes", 0, 1 << 50)
            if self.memory_limit_bytes:
                self._integer("memory_limit_bytes", LEAST_BYTES, 1 << 50)
        self._integer("read_cache_bytes", 0, 1 << 50)
        if self.read_cache_bytes != 0:
            self._integer("read_cache_bytes", CACHE_BLOCK_BYTES, 1 << 50)
        if self.segment_bytes % BLOCK_BYTES:
            raise InvalidConfig(f"segment_bytes must be a multiple of {BLOCK_BYTES}, not {self.segment_bytes}")
        self._check_choices()

    def _check_choices(self) -> None:
        plans = isinstance(self.cache, str) and self.cache == "plan"
        if self.cache is not None and not plans and not isinstance(self.cache, AnyCacheConfig):
            raise InvalidConfig(f'cache is a CacheConfig, "plan" or None, not {shown(self.cache)}')
        if plans and self.memory_limit_bytes == 0:
            raise InvalidConfig('cache="plan" needs a plan: give memory_limit_bytes a number, or leave it out')
        # The type first, here and above: what is compared with anything else may raise anything.
        if not isinstance(self.durability, str) or self.durability not in ("force", "os"):
            raise InvalidConfig(f'durability is "force" or "os", not {shown(self.durability)}')
        if not isinstance(self.alignment, str) or self.alignment not in ("pad", "trim", "adaptive"):
            raise InvalidConfig(f'alignment is "pad", "trim" or "adaptive", not {shown(self.alignment)}')
        if self.direct_io is not None and type(self.direct_io) is not bool:
            raise InvalidConfig(f"direct_io is None, True or False, not {shown(self.direct_io)}")
        if self.direct_io and self.durability == "os":
            raise InvalidConfig('direct_io=True is for durability="force": with "os" the kernel keeps what is written')

    def _integer(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or not low <= value <= high:
            raise InvalidConfig(f"{name} must be an integer from {low} to {high}, not {shown(value)}")
