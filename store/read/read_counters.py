"""The counts of reads."""

from __future__ import annotations

from collections.abc import Sequence


class ReadCounters:
    """The counts of reads; plain numbers, approximate when threads race."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.recent_messages = 0  # of the ring
        self.recent_bytes = 0
        self.cached_messages = 0  # of the message cache
        self.cached_bytes = 0
        self.read_ahead_messages = 0  # of the read cache
        self.read_ahead_bytes = 0
        self.unsound_messages = 0  # of a cache, and not what the log has: read from the log then
        self.device_messages = 0
        self.device_payload_bytes = 0
        self.device_least_bytes: int | None = None  # the shortest of these messages
        self.device_bytes = 0  # with the gaps between those that were read together
        self.device_reads = 0

    def count_memory(self, lengths: list[int], mapped: int) -> None:
        """Messages of these lengths came without a system call: the first `mapped` from a mapping, others the ring."""
        if mapped:
            self.count_mapped(mapped, sum(lengths[:mapped]), min(lengths[:mapped]))
        if mapped < len(lengths):
            self.count_recent(len(lengths) - mapped, sum(lengths[mapped:]))

    def count_recent(self, count: int, size: int) -> None:
        """So many messages of the ring, and their bytes."""
        self.messages += count
        self.bytes += size
        self.recent_messages += count
        self.recent_bytes += size

    def count_mapped(self, count: int, size: int, least: int) -> None:
        """So many messages of a mapping, their bytes, and those of the shortest one."""
        self.messages += count
        self.bytes += size
        self.device_messages += count
        self.device_payload_bytes += size
        self.device_bytes += size
        if self.device_least_bytes is None or least < self.device_least_bytes:
            self.device_least_bytes = least

    def count_device(self, lengths: Sequence[int], least: int, size: int, calls: int) -> None:
        """Count `calls` system calls for messages of these lengths: `size` bytes with gaps. `least`: the shortest."""
        self.device_messages += len(lengths)
        self.device_payload_bytes += sum(lengths)
        if self.device_least_bytes is None or least < self.device_least_bytes:
            self.device_least_bytes = least
        self.device_bytes += size
        self.device_reads += calls
