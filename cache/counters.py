"""The counts of a cache, per tier."""

from __future__ import annotations


class TierCounters:
    """Plain numbers, approximate when readers race."""

    __slots__ = ("evicted_blocks", "filled_bytes", "filled_messages", "hit_bytes", "hit_messages", "released_blocks")

    def __init__(self) -> None:
        self.filled_messages = 0
        self.filled_bytes = 0
        self.hit_messages = 0
        self.hit_bytes = 0
        self.released_blocks = 0
        self.evicted_blocks = 0

    def as_dict(self) -> dict[str, int]:
        """Name -> number."""
        return {name: getattr(self, name) for name in self.__slots__}
