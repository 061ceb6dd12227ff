"""What the figures of `host` say: the first lines of its report, and the settings that fit the host."""

from __future__ import annotations

import re
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
from ..workload.timed import BATCH_MESSAGES
from .host_device import BATCH, name_of
from .host_store import BUFFER_BYTES, MANY, SEGMENT_BYTES

Made = TypeVar("Made")
WORTH = 1.1  # a setting is recommended if it gives a tenth more in each round
CHEAP = 0.8  # a cache is recommended if appends keep so much of their rate with it
FEW_SEGMENTS = 16  # on a disk with less room than so many full segments, smaller ones are better
TIER, PAGED = "store.read.persistent.p50", "store.read.paged.p50"
TIER_COST = "setting.cache_persistent.per_s"
CALLS = re.compile(r"\bof ([0-9,]+) calls?\b")  # in the meaning of a latency: the round with the fewest
NEEDED = {"p50": 1, "p99": 100, "p99.9": 1000}  # calls, for a mark that says more than the slowest of them
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

    def rate(self, name: str) -> str:
        """The figure as a whole number."""
        return f"{self.value(name):,.0f}"

    def took(self, name: str) -> str:
        """The figure, of microseconds, as a time."""
        return took(self.value(name))

    def percent(self, name: str) -> str:
        """The share of the reference. Raises KeyError if the reference is missing."""
        return percent(self.share(name))

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
    rate, share, took = found.rate, found.percent, found.took
    many, one, batch, device = f"store.append.{MANY}", "store.append.1", "store.batch", name_of(Writes(BATCH))
    force = name_of(Writes(4 << 10))
    lines = [
        lambda: (
            f"Durable messages of 1 KiB a second: {rate(f'{many}.per_s')} by {MANY} threads that append one at a time, "
            f"{rate(f'store.async.{MANY}.per_s')} by {MANY} coroutines, {rate(f'{batch}.per_s')} by one thread in "
            f"batches of {BATCH_MESSAGES}, {rate(f'{one}.per_s')} by one thread that appends one at a time. "
            "(Durable: the call returns when the disk has the message.)"
        ),
        lambda: (
            f"One append takes, beside {MANY - 1} other threads, {_marks(found, many)}; of a thread alone "
            f"{_marks(found, one)}. (p50: half of the calls are quicker; p99: 99 of 100; p99.9: 999 of 1,000; us: "
            "microseconds.)"
        ),
        lambda: (
            f"Share of the device: batches write {found.told(f'{batch}.mb_per_s')} of messages, "
            f"{share(f'{batch}.mb_per_s')} of the {found.told(f'{device}.mb_per_s')} that writes of 256 KiB reach here "
            f"without a store, if each waits for the disk. {MANY} threads reach {share(f'{many}.per_s')} of the rate "
            "of as many that wait for such writes without a store."
        ),
        lambda: (
            f"The device without a store: a write of 4 KiB that waits for the disk takes {took(f'{force}.p50')} (p50) "
            f"and {took(f'{force}.p99')} (p99), a read of 4 KiB at a random place {took('read.random.1.p50')} (p50)."
        ),
        lambda: (
            f"A read of one message takes (p50) {took('store.read.ring.p50')} while the store's own memory has it, as "
            f"of the newest ones; {took(PAGED)} while the system keeps the file in memory (page cache); "
            f"{took('store.read.device.p50')} from the disk."
        ),
        lambda: (
            f"A job queue: one thread receives {rate('store.jobs.per_s')} messages a second, 32 a call, and each "
            "acknowledgement is durable."
        ),
    ]
    if found.pmem is not None:
        lines.append(partial(_tier_line, found))
    return known(*lines) + _settings(advice(found))


def _tier_line(found: HostFigures) -> str:
    """What a tier of the cache in --pmem changes, and whether to have one."""
    line = (
        f"A cache for old messages in {found.pmem}: a read takes {found.took(TIER)} (p50), in place of "
        f"{found.took(PAGED)} from the page cache and {found.took('store.read.device.p50')} from the disk; batches "
        f"are appended at {found.percent(TIER_COST)} of the rate without it."
    )
    if not _is_quick(found):
        return f"{line} It is not quicker than the disk in each round: leave it out."
    if found.share(TIER_COST) < CHEAP:
        return f"{line} It costs the appends more than a fifth: leave it out."
    if not found.value(TIER) < found.value(PAGED):
        return f"{line} The page cache is as quick and needs no setting: leave it out."
    return f"{line} It is worth having where consumers come back to old messages."


def _is_quick(found: HostFigures) -> bool:
    """Whether a tier in --pmem was quicker than the device by a tenth, in each round."""
    return found.worst_share(TIER) < 1 / WORTH


def percent(share: float) -> str:
    """ "5 %", "117 %"; what is below 1 % has two digits."""
    return f"{100 * share:.0f} %" if share >= 0.01 or not share else f"{100 * share:.2g} %"


def took(us: float) -> str:
    """A time for a reader in a hurry: "2.3 us", "48 us", "0.93 ms", "80 ms", "1.2 s"."""
    value, unit = (us, "us") if us < 500 else (us / 1e3, "ms") if us < 500_000 else (us / 1e6, "s")
    return f"{value:.2g} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def _settings(advised: Sequence[Advice]) -> tuple[str, ...]:
    """The line with all settings that are no defaults. Defaults are said to fit only if each setting was tried."""
    changed = [f"{one.setting}={one.value}" for one in advised if one.value != DEFAULT_VALUES[one.setting]]
    if changed:
        return (f"Set here: StoreConfig({', '.join(changed)}); the reasons are below.",)
    return (
        ("The default StoreConfig fits this host: what its settings are worth here is below.",)
        if len(advised) == len(DEFAULT_VALUES)
        else ()
    )


def _marks(found: HostFigures, part: str) -> str:
    """The latencies of a part; without those of more calls than there were."""
    calls = CALLS.search(found.measures[f"{part}.p50"].meaning)
    count = int(calls[1].replace(",", "")) if calls else max(NEEDED.values())
    return ", ".join(f"{mark} {found.took(f'{part}.{mark}')}" for mark, least in NEEDED.items() if count >= least)


def advice(found: HostFigures) -> tuple[Advice, ...]:
    """A value for each setting whose figures are there, with the reason and what it gave here."""
    makers = (_lanes, _durability, _segments, _buffer, _memory, _cache)
    return known(*(partial(make, found) for make in makers))


def _durability(found: HostFigures) -> Advice:
    return Advice(
        setting="durability",
        value='"force"',
        why='an append returns when the disk has the message; with "os" it returns before, and a power cut takes '
        "messages that were answered",
        worth=f'one thread that appends one at a time: "os" gives {found.share("setting.durability_os.per_s"):.1f} '
        f"times the rate ({found.told('setting.durability_os.per_s')})",
    )


def _buffer(found: HostFigures) -> Advice:
    return Advice(
        setting="publish_buffer_bytes",
        value=DEFAULT_VALUES["publish_buffer_bytes"],
        why=f"so many bytes ({human_bytes(DEFAULTS.publish_buffer_bytes)}) may wait for the disk; then `submit`, which "
        "returns before its message is durable, waits too",
        worth=f"`submit` by one thread: {human_bytes(BUFFER_BYTES)} give "
        f"{found.percent('setting.publish_buffer_bytes.per_s')} of the default's rate",
    )


def _memory(found: HostFigures) -> Advice:
    return Advice(
        setting="memory_limit_bytes",
        value="None",
        why="the store takes a quarter of the memory that is available; give a number where other programs need it",
        worth=f"a message from memory takes {found.took('store.read.ring.p50')}, from the disk "
        f"{found.took('store.read.device.p50')} (p50)",
    )


def _lanes(found: HostFigures) -> Advice:
    rates = {1: found.value(f"store.append.{MANY}.per_s")}
    rates |= {lanes: found.value(f"setting.lanes_{lanes}.per_s") for lanes in (2, 4)}
    shares = {lanes: found.worst_share(f"setting.lanes_{lanes}.per_s") for lanes in (2, 4)}
    best = max(shares, key=lambda lanes: shares[lanes])
    if shares[best] >= WORTH:
        why = "so many logs wait for the disk at the same time; the number is for good, and order is kept in a queue"
    elif max(rates.values()) >= WORTH * rates[1]:
        why = "more logs gave more, but not in each round: measure again when the machine is quiet, before you set it"
    else:
        why = "callers that wait for one log share a write; more logs give less than a tenth here"
    tried = ", ".join(f"{amount(rate, 'msg/s')} with {lanes}" for lanes, rate in rates.items())
    return Advice(
        setting="lanes",
        value=str(best) if shares[best] >= WORTH else "1",
        why=why,
        worth=f"{MANY} threads that append one at a time: {tried}",
    )


def _segments(found: HostFigures) -> Advice:
    room = found.free_bytes < FEW_SEGMENTS * DEFAULTS.segment_bytes
    small = room or found.worst_share("setting.segment_bytes.per_s") >= WORTH
    if room:
        why = "the disk has little room: old messages are removed a file of this size at a time"
    elif small:
        why = "the log is a row of files of this size; smaller ones are quicker here"
    else:
        why = f"the log is a row of files of this size ({human_bytes(DEFAULTS.segment_bytes)}); large ones are few"
    return Advice(
        setting="segment_bytes",
        value=str(SEGMENT_BYTES if small else DEFAULTS.segment_bytes),
        why=why,
        worth=f"batches: files of {human_bytes(SEGMENT_BYTES)} give {found.percent('setting.segment_bytes.per_s')} of "
        "the default's rate",
    )


def _cache(found: HostFigures) -> Advice:
    cost = TIER_COST if found.pmem is not None else "setting.cache_plan.per_s"
    tiers = {"a cache in memory (off_heap_bytes)": "store.read.off_heap.p50"}
    if found.pmem is not None:
        tiers["a cache in --pmem (persistent_bytes)"] = TIER
    reads = ", ".join(f"{found.took(part)} from {tier}" for tier, part in tiers.items())
    worth = (
        f"an old message takes {reads}, {found.took(PAGED)} from the page cache, "
        f"{found.took('store.read.device.p50')} from the disk (p50); with a cache batches have {found.percent(cost)} "
        "of their rate"
    )
    why = (
        "consumers that keep up get messages from the store's own memory (the ring); a cache is for those that come "
        'back to old ones: "plan" makes one'
    )
    if found.pmem is not None and found.share(cost) >= CHEAP and _is_quick(found):
        if found.value(TIER) < found.value(PAGED):
            return _tier(found, worth)
        why = "the page cache is no slower than a cache in --pmem, and takes only memory that nobody else needs"
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
        why=f"for old messages that are read again, after they have left the store's own memory; {kind}",
        worth=worth,
    )
