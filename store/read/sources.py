"""Sources of bytes: the places that a found message's bytes may be read from, and the order in which they are asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..errors import OffsetOutOfRange, StoreCorrupt
from ..format.layout import checksum64
from ..log.streams import Stream
from ..segment.run import Run
from .finder import Finder

LOW_32 = 0xFFFFFFFF  # of a checksum: what a message keeps


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
        count, size = len(lengths), sum(lengths)
        if not mapped:
            self.count_recent(count, size)
        elif mapped == count:
            self.count_mapped(count, size, min(lengths))
        else:
            recent = sum(lengths[mapped:])
            self.count_both(mapped, size - recent, min(lengths[:mapped]), count - mapped, recent)

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

    def count_both(self, mapped: int, mapped_bytes: int, least: int, recent: int, recent_bytes: int) -> None:
        """So many messages of a mapping and of the ring, which one call has read."""
        self.messages += mapped + recent
        self.bytes += mapped_bytes + recent_bytes
        self.recent_messages += recent
        self.recent_bytes += recent_bytes
        self.device_messages += mapped
        self.device_payload_bytes += mapped_bytes
        self.device_bytes += mapped_bytes
        if mapped and (self.device_least_bytes is None or least < self.device_least_bytes):
            self.device_least_bytes = least

    def count_device(self, lengths: Sequence[int], least: int, size: int, calls: int) -> None:
        """Count `calls` system calls for messages of these lengths: `size` bytes with gaps. `least`: the shortest."""
        self.device_messages += len(lengths)
        self.device_payload_bytes += sum(lengths)
        if self.device_least_bytes is None or least < self.device_least_bytes:
            self.device_least_bytes = least
        self.device_bytes += size
        self.device_reads += calls


class Source(ABC):
    """A place that may have the bytes of messages that were found in the log. Any number of threads may use it.

    Attributes:
        is_log: it is the log itself, on the device or on its way there, and no cache of it.
    """

    is_log = False

    def tells_damage(self, stream: Stream) -> bool:
        """Whether wrong bytes are damage. In place of others the next sources are asked."""
        return self.is_log

    @abstractmethod
    def payloads(self, stream: Stream, run: Run) -> list[bytes] | dict[int, bytes] | None:
        """The bytes of a run's messages, not checked yet: of all, of some by their index in the run, or of none (None).

        It counts what it gives.
        """


class RingSource(Source):
    """The ring of recent frames: it has all of a run, or nothing of it."""

    is_log = True

    def __init__(self, counters: ReadCounters) -> None:
        self._counters = counters

    def tells_damage(self, stream: Stream) -> bool:
        """Not if another process fills the ring: the file has the bytes as well."""
        return stream.lane.ring.is_own

    def payloads(self, stream: Stream, run: Run) -> list[bytes] | None:
        """Copies, or None if the ring does not have the first message any more."""
        base = run.segment.base
        if base is None:
            return None
        ring, (starts, lengths, _) = stream.lane.ring, run.places
        begin = base + starts[0]
        if begin < ring.low:
            return None
        found = ring.copies(base, starts, lengths)
        if begin < ring.low:
            return None  # overtaken while it was copied
        counters = self._counters
        counters.recent_messages += len(found)
        counters.recent_bytes += sum(lengths)
        return found


class DeviceSource(Source):
    """The segments' files: they have everything."""

    is_log = True

    def __init__(self, counters: ReadCounters) -> None:
        self._counters = counters

    def payloads(self, stream: Stream, run: Run, sizes: Sequence[int] | None = None) -> list[bytes]:
        """All of the run. `sizes` are the messages', where the run's places are only parts of them. Raises OSError."""
        starts, lengths, _ = run.places
        found, size, calls = run.segment.read_places(starts, lengths)
        self._counters.count_device(lengths, min(sizes or lengths), size, calls)
        return found


class Sources:
    """Sources in the order in which they are asked, each for the messages that the ones before did not have.

    Invariants:
        * the last one has everything;
        * no message leaves without a look at its checksum, wherever its bytes come from;
        * the last one tells damage.
    """

    def __init__(self, sources: Sequence[Source], finder: Finder, counters: ReadCounters) -> None:
        self.each = tuple(sources)
        self.finder = finder
        self.counters = counters

    @property
    def are_log(self) -> bool:
        """True if no cache is asked."""
        return all(source.is_log for source in self.each)

    @classmethod
    def of_the_log(cls) -> Sources:
        """The ring and the device: what a store without caches reads from."""
        counters = ReadCounters()
        return cls([RingSource(counters), DeviceSource(counters)], Finder(), counters)

    def payloads(self, stream: Stream, run: Run) -> list[bytes]:
        """The bytes of a run's messages. Raises StoreCorrupt, OSError, and OffsetOutOfRange if retention took them."""
        for source in self.each:
            found = source.payloads(stream, run)
            if found is None:
                continue
            if not isinstance(found, dict):
                if [whole & LOW_32 for whole in map(checksum64, found)] == run.places[2]:
                    return found
                if source.tells_damage(stream):
                    raise self._damage(stream, run, found)
                found = dict(enumerate(found))
            return self._completed(stream, run, found, self.each.index(source) + 1)
        raise AssertionError("the last source has everything")

    def _completed(self, stream: Stream, run: Run, found: dict[int, bytes], begin: int) -> list[bytes]:
        """A run of which some messages are found, the others from the sources from `begin` on."""
        missing = []
        for index, checksum in enumerate(run.places[2]):
            if index not in found:
                missing.append(index)
            elif checksum64(found[index]) & LOW_32 != checksum:
                missing.append(index)
                self.counters.unsound_messages += 1
        rest = Sources(self.each[begin:], self.finder, self.counters)
        for low, high in _stretches(missing):
            found.update(enumerate(rest.payloads(stream, run.part(low, high)), low))
        return [found[index] for index in range(len(run))]

    def _damage(self, stream: Stream, run: Run, datas: list[bytes]) -> Exception:
        """The error for bytes that are not those that were written."""
        segment = run.segment
        segment.check_open()
        if segment.removed:  # retention took the segment while it was read
            return OffsetOutOfRange(stream.topic, stream.queue_id, run.offsets[0], *self.finder.bounds(stream))
        places = zip(run.places[0], run.places[2], datas, strict=True)
        wrong = [start for start, checksum, data in places if checksum64(data) & LOW_32 != checksum]
        position = min(wrong, default=run.places[0][0])
        return StoreCorrupt("a message's bytes do not match their checksum", segment.path, position)


def _stretches(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """[low, high) of each stretch of neighbours; the indexes ascend."""
    found: list[tuple[int, int]] = []
    for index in indexes:
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found
