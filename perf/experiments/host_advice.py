"""What the figures of `host` say: the first lines of its report, and the settings that fit the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...store import StoreConfig
from ..machine.folders import human_bytes
from ..references.device_calls import Writes
from ..report.record import Advice, Measure
from ..report.words import amount
from .host_device import BATCH, name_of
from .host_store import BUFFER_BYTES, MANY, SEGMENT_BYTES

Made = TypeVar("Made")
WORTH = 1.1  # a setting is recommended if it gives a tenth more in each round
CHEAP = 0.8  # a cache is recommended if appends keep so much of their rate with it
FEW_SEGMENTS = 16  # on a disk with less room than so many full segments, smaller ones are better
TIER, PAGED = "store.read.persistent.p50", "store.read.paged.p50"
TIER_STEP_BYTES = 64 << 20  # a recommended size of a tier is a multiple of it
DEFAULTS = StoreConfig()
DEFAULT_VALUES = {
    "lanes": "1",
    "durability": '"force"',
    "segment_bytes": str(DEFAULTS.segment_bytes),
    "publish_buffer_bytes": str(DEFAULTS.publish_buffer_bytes),
    "memory_limit_bytes": "None",
    "cache": "None",
}


@dataclass(frozen=True)
class HostFigures:
    """The measures of a host by their names, the free bytes of its disk, and of its --pmem, if one is given.

    `pmem_memory_bytes`: the memory that is available, if --pmem is made of memory (a tmpfs); else None.
    """

    measures: Mapping[str, Measure]
    free_bytes: int
    pmem: Path | None = None
    pmem_free_bytes: int = 0
    pmem_memory_bytes: int | None = None

    def told(self, name: str) -> str:
        """The figure with its unit."""
        measure = self.measures[name]
        return amount(measure.value, measure.unit)

    def share(self, name: str) -> float:
        """The figure over its reference. Raises KeyError if the reference is missing."""
        return self._beside(name).share or 0.0

    def worst_share(self, name: str) -> float:
        """The share of the worst of its rounds: what can be counted on."""
        measure = self._beside(name)
        worst = measure.low if measure.better == "higher" else measure.high
        return worst / measure.reference if measure.reference else 0.0

    def _beside(self, name: str) -> Measure:
        measure = self.measures[name]
        if measure.reference is None:
            raise KeyError(f"{name} has no reference")
        return measure

    def value(self, name: str) -> float:
        """The figure."""
        return self.measures[name].value


def known(*makers: Callable[[], Made]) -> tuple[Made, ...]:
    """What can be made; one that needs a figure of a part that failed is left out."""
    found = []
    for make in makers:
        with suppress(KeyError):
            found.append(make())
    return tuple(found)


def summary(found: HostFigures) -> tuple[str, ...]:
    """The first lines: what this host can do, each number with its meaning. At most nine."""
    told, share = found.told, found.share
    many, one, batch, device = f"store.append.{MANY}", "store.append.1", "store.batch", name_of(Writes(BATCH))
    force = name_of(Writes(4 << 10))
    lines = [
        lambda: (
            f"Durable messages of 1 KiB: {told(f'{many}.per_s')} by {MANY} threads that wait for each, "
            f"{told(f'store.async.{MANY}.per_s')} by {MANY} coroutines, {told(f'{batch}.per_s')} in batches of 256, "
            f"{told(f'{one}.per_s')} by one caller alone."
        ),
        lambda: (
            f"One of {MANY} threads waits {_marks(found, many)}; a caller alone waits {_marks(found, one)}. "
            "(p50: half of the calls are quicker; p99: 99 of 100; p99.9: 999 of 1,000.)"
        ),
        lambda: (
            f"Share of the device: batches write {told(f'{batch}.mb_per_s')} of payload, "
            f"{share(f'{batch}.mb_per_s'):.2f} of the {told(f'{device}.mb_per_s')} of bare forced writes of 256 KiB; "
            f"{MANY} threads reach {share(f'{many}.per_s'):.2f} of the same threads without a store."
        ),
        lambda: (
            f"The device: a forced write of 4 KiB takes {told(f'{force}.p50')} (p50) and {told(f'{force}.p99')} (p99), "
            f"a random read of 4 KiB {told('read.random.1.p50')} (p50)."
        ),
        lambda: (
            f"A read of one message takes {told('store.read.ring.p50')} from the store's memory, "
            f"{told(PAGED)} from the page cache, {told('store.read.device.p50')} from the device (p50)."
        ),
        lambda: (
            f"Jobs: {told('store.jobs.per_s')} are received in groups of 32 and acknowledged durably, by one thread."
        ),
    ]
    if found.pmem is not None:
        lines.append(
            lambda: (
                f"A tier in {found.pmem} has a message in {told(TIER)}, {share(TIER):.2f} of the device's time and "
                f"{found.value(TIER) / (found.value(PAGED) or 1.0):.2f} of the page cache's."
            )
        )
    return known(*lines) + _settings(advice(found))


def _settings(advised: Sequence[Advice]) -> tuple[str, ...]:
    """The line with all settings that are no defaults. Defaults are said to fit only if each setting was tried."""
    changed = [f"{one.setting}={one.value}" for one in advised if one.value != DEFAULT_VALUES[one.setting]]
    if changed:
        return (f"Set here: StoreConfig({', '.join(changed)}).",)
    return ("The default StoreConfig fits this host.",) if len(advised) == len(DEFAULT_VALUES) else ()


def _marks(found: HostFigures, part: str) -> str:
    p50, p99, p999 = (found.told(f"{part}.{mark}") for mark in ("p50", "p99", "p99.9"))
    return f"p50 {p50}, p99 {p99}, p99.9 {p999}"


def advice(found: HostFigures) -> tuple[Advice, ...]:
    """A value for each setting whose figures are there, with the reason and what it gave here."""
    makers = (_lanes, _durability, _segments, _buffer, _memory, _cache)
    return known(*(partial(make, found) for make in makers))


def _durability(found: HostFigures) -> Advice:
    return Advice(
        setting="durability",
        value='"force"',
        why='"os" answers before the device has the message: a power cut takes answered ones',
        worth=f'"os" gives one caller {found.share("setting.durability_os.per_s"):.1f} x '
        f"({found.told('setting.durability_os.per_s')})",
    )


def _buffer(found: HostFigures) -> Advice:
    share = found.share("setting.publish_buffer_bytes.per_s")
    return Advice(
        setting="publish_buffer_bytes",
        value=DEFAULT_VALUES["publish_buffer_bytes"],
        why="the bytes that are accepted and not yet durable: a caller that runs ahead waits at this cap",
        worth=f"with {human_bytes(BUFFER_BYTES)} `submit` has {share:.2f} of its rate",
    )


def _memory(found: HostFigures) -> Advice:
    return Advice(
        setting="memory_limit_bytes",
        value="None",
        why="a quarter of the memory that is available; give a number where other programs need that memory",
        worth=f"a message from memory takes {found.told('store.read.ring.p50')}, from the device "
        f"{found.told('store.read.device.p50')}",
    )


def _lanes(found: HostFigures) -> Advice:
    rates = {1: found.value(f"store.append.{MANY}.per_s")}
    rates |= {lanes: found.value(f"setting.lanes_{lanes}.per_s") for lanes in (2, 4)}
    shares = {lanes: found.worst_share(f"setting.lanes_{lanes}.per_s") for lanes in (2, 4)}
    best = max(shares, key=lambda lanes: shares[lanes])
    more = shares[best] >= WORTH
    tried = ", ".join(f"{amount(rate, 'msg/s')} with {lanes}" for lanes, rate in rates.items())
    return Advice(
        setting="lanes",
        value=str(best) if more else "1",
        why="several logs force at the same time; it is for good, and order is kept in a queue alone"
        if more
        else "more logs mean smaller forces, and here they give less than a tenth",
        worth=f"{MANY} threads: {tried}",
    )


def _segments(found: HostFigures) -> Advice:
    share = found.share("setting.segment_bytes.per_s")
    room = found.free_bytes < FEW_SEGMENTS * DEFAULTS.segment_bytes
    small = room or found.worst_share("setting.segment_bytes.per_s") >= WORTH
    why = (
        "the disk has little room: retention frees whole segments, and spares are written ahead"
        if room
        else ("smaller segments are quicker here" if small else "larger segments mean fewer files and fewer footers")
    )
    return Advice(
        setting="segment_bytes",
        value=str(SEGMENT_BYTES if small else DEFAULTS.segment_bytes),
        why=why,
        worth=f"batches with segments of {human_bytes(SEGMENT_BYTES)} have {share:.2f} of the default's rate",
    )


def _cache(found: HostFigures) -> Advice:
    cost = found.share("setting.cache_plan.per_s" if found.pmem is None else "setting.cache_persistent.per_s")
    tiers = ["off_heap"] + ["persistent"] * (found.pmem is not None)
    parts = {tier: f"store.read.{tier}.p50" for tier in tiers}
    reads = ", ".join(
        f"{found.told(part)} from {tier}_bytes ({found.share(part):.2f} of the device's time)"
        for tier, part in parts.items()
    )
    worth = f"a message takes {reads}; batches have {cost:.2f} of their rate with a cache"
    why = 'readers that keep up are served from the ring; "plan" is for those that come back to old messages'
    if found.pmem is not None and cost >= CHEAP and found.worst_share(TIER) < 1 / WORTH:
        worth += f"; from the page cache it takes {found.told(PAGED)}"
        if found.value(TIER) < found.value(PAGED):
            return _tier(found, worth)
        why = "the page cache is no slower than a tier in --pmem, and takes only the memory that nobody else needs"
    return Advice(setting="cache", value="None", why=why, worth=worth)


def _tier(found: HostFigures, worth: str) -> Advice:
    """A cache in --pmem: of half of what is free there, and of no more than half of the memory that it is made of."""
    free, memory = found.pmem_free_bytes, found.pmem_memory_bytes
    half = (free if memory is None else min(free, memory)) // 2
    size = max(1, half // TIER_STEP_BYTES) * TIER_STEP_BYTES
    kind = (
        "half of what --pmem has free"
        if memory is None
        else "a tmpfs is memory, which programs then lack: half of what is available now"
    )
    return Advice(
        setting="cache",
        value=f"CacheConfig(off_heap_bytes=0, persistent_bytes={size}, persistent_folder={str(found.pmem)!r})",
        why=f"old messages that are read again, after they have left the ring; {kind}",
        worth=worth,
    )
