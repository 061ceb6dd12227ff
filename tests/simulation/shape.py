"""What kind of run a seed gives: its lanes and sizes, the settings of each life, and the parts of the schedule."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from stratalog.store import StoreConfig
from stratalog.store.config import Alignment, Durability
from stratalog.store.testing import TunedCacheConfig, TunedConfig

KIB = 1 << 10
SMALL_CACHE = TunedCacheConfig(heap_bytes=32 * KIB, off_heap_bytes=64 * KIB, block_bytes=4 * KIB, edge_bytes=16 * KIB)

Part = Literal[
    "retention",
    "repair",
    "lanes",
    "settings",
    "relative",
    "interrupts",
    "kills",
    "trims",
    "readers",
    "reads",
    "transactions",
    "large transactions",
]
PARTS: frozenset[Part] = frozenset(get_args(Part))


@dataclass(frozen=True)
class Settings:
    """The settings that a store is opened by in one life."""

    durability: Durability = "force"
    alignment: Alignment = "adaptive"
    segment_bytes: int = 64 * KIB
    prewrite_bytes: int = 0
    max_message_bytes: int = 90 * KIB
    retention_bytes: int | None = None
    retention_ms: int | None = None
    cached: bool = False

    def config(self, lanes: int) -> StoreConfig:
        """For the store."""
        return TunedConfig(
            lanes=lanes, durability=self.durability, alignment=self.alignment, segment_bytes=self.segment_bytes,
            prewrite_bytes=self.prewrite_bytes, max_message_bytes=self.max_message_bytes, max_frame_bytes=16 * KIB,
            recent_bytes=0, retention_bytes=self.retention_bytes, retention_ms=self.retention_ms,
            memory_limit_bytes=0, cache=SMALL_CACHE if self.cached else None,
            read_cache_bytes=64 * KIB if self.cached else 0,
        )  # fmt: skip

    @property
    def retires(self) -> bool:
        """May retention remove anything?"""
        return self.retention_bytes is not None or self.retention_ms is not None


@dataclass(frozen=True)
class Shape:
    """What kind of run it is. `parts` are the parts of the schedule that the seed may use.

    `transacts`: the share of transactions among what producers do.
    `block_bytes`: of the devices on which the store may lie, one in each life.
    `zeros_bytes`: of the steps in which segments are pre-written; with 1 MiB each has all zeros from the beginning.
    """

    lanes: int = 1
    queues: int = 3
    typical_bytes: int = 700
    large_bytes: int = 6_000
    steps: int = 120
    lives: tuple[Settings, ...] = (Settings(), Settings())
    relative: bool = False
    parts: frozenset[Part] = PARTS
    transacts: float = 0.08
    block_bytes: tuple[int, ...] = (4096, 512)
    zeros_bytes: int = 1 << 20

    @property
    def lazy(self) -> bool:
        """Is there a life whose answers do not wait for forces?"""
        return any(settings.durability == "os" for settings in self.lives)


def draw_settings(chance: random.Random, parts: Collection[Part] = PARTS) -> Settings:
    """The settings of one life."""
    retires = "retention" in parts and chance.random() < 0.65
    return Settings(
        durability=chance.choice(("force", "force", "force", "os")),
        alignment=chance.choice(("pad", "trim", "adaptive")),
        segment_bytes=chance.choice((64, 64, 64, 96)) * KIB,
        prewrite_bytes=chance.choice((0, 0, 0, 130, 260)) * KIB,
        max_message_bytes=chance.choice((20, 40, 90)) * KIB,
        retention_bytes=chance.choice((0, 70, 140, 200)) * KIB if retires else None,
        retention_ms=chance.choice((None, None, 800, 2_000)) if retires else None,
        cached=chance.random() < 0.25,
    )


def draw_shape(chance: random.Random, parts: Collection[Part] = PARTS) -> Shape:
    """A shape for a seed."""
    one = draw_settings(chance, parts)
    count = chance.choice((1, 2, 3, 4))
    others = "settings" in parts and chance.random() < 0.7
    return Shape(
        lanes=chance.choice((1, 1, 2, 3, 4)) if "lanes" in parts else 1,
        queues=chance.choice((1, 3, 6, 9)),
        typical_bytes=chance.choice((60, 700, 2_000)),
        large_bytes=chance.choice((3_000, 9_000, 14_000)),
        steps=chance.choice((60, 150, 300)),
        lives=tuple(draw_settings(chance, parts) if others and life else one for life in range(count)),
        relative="relative" in parts and chance.random() < 0.25,
        parts=frozenset(parts),
        zeros_bytes=chance.choice((16 * KIB, 16 * KIB, 1 << 20)),
    )
