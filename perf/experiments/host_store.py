"""The parts of `host` with a store: appends, reads by what has the message, jobs; and settings beside the default."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter_ns

from ...store import CacheConfig, MessageStore, StoreConfig
from ...testing import TunedConfig
from ..machine.folders import drop_page_cache, sub_folder
from ..references.device import Seconds, SecondsOrCalls
from ..references.device_calls import Writes
from ..references.no_engine import threads_without_engine
from ..report import layers
from ..report.progress import Run
from ..workload import timed
from ..workload.checker import WrongResult
from ..workload.contest import Sizes
from ..workload.latencies import Latencies
from ..workload.memory import Memory
from ..workload.timed import HEAD, TOPIC, Appended, Over
from .host_device import BATCH, name_of
from .parts import TAILS, Count, Part, latencies

MESSAGE_BYTES = 1024
THREADS = (1, 10, 40)
MANY = THREADS[-1]
JOBS = 32
SEGMENT_BYTES, BUFFER_BYTES = 32 << 20, 4 << 20
Way = Callable[[MessageStore, Over], Appended]
DEVICE = name_of(Writes(BATCH))  # without a store
MEANINGS = {
    "append.1": "one caller alone: each message waits for a force of its own",
    f"append.{MANY}": "callers that wait share a force: this is what many requests at once get",
    f"async.{MANY}": "the same as coroutines, which wake cheaper than threads",
    "submit": "a caller that goes on and looks at the answer later",
    "batch": "a caller that has many messages at once",
}
TIER_ROOM = 4  # a tier has so many times the bytes of the messages
LEAST_READS = 16
COLD_STEP = 256  # messages: what the kernel reads ahead of one has no other one that is read


@dataclass
class Stores:
    """What the parts share: where stores are made, for how long each is used, and with how many messages."""

    base: Path
    run: Run
    seconds: float
    messages: int  # of a store that is read
    seed: int
    pmem: Path | None = None
    file_bytes: int = 64 << 20  # of what stands beside a store
    most_bytes: int = 2 << 30  # a part that appends ends after so many bytes of payload, however long it may take
    body: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.body = random.Random(self.seed).randbytes(MESSAGE_BYTES - HEAD.size)

    def append(self, way: Way, messages: int, config: StoreConfig | None = None) -> dict[str, float]:
        """Append in a fresh store, so many messages a call, for some seconds; and compare all of its messages."""
        over = SecondsOrCalls(self.seconds, self.most_bytes // (messages * MESSAGE_BYTES))
        with sub_folder(self.base, "store") as folder, MessageStore.open(folder, config or StoreConfig()) as store:
            done = way(store, over)
            self.run.checked(done.check(store))
        return done.figures()

    def ways(self) -> dict[str, tuple[str, Way, int]]:
        """Each way to append, by its name: in words, as a call, and the messages that it appends at once."""
        found: dict[str, tuple[str, Way, int]] = {}
        for threads in THREADS:
            words = f"`append` by {threads} thread{'s' if threads > 1 else ''}"
            found[f"append.{threads}"] = (words, partial(timed.blocking, threads, self.body), 1)
        found[f"async.{MANY}"] = (f"`append_async` by {MANY} tasks", partial(timed.asynchronous, MANY, self.body), 1)
        found["submit"] = ("`submit` by one thread", partial(timed.pipelined, self.body), 1)
        words = f"`append_batch` of {timed.BATCH_MESSAGES} by one thread"
        found["batch"] = (words, partial(timed.batches, self.body), timed.BATCH_MESSAGES)
        return found


def append_parts(stores: Stores) -> list[Part]:
    """Ways to append, and the floors of the blocking one."""
    parts = [_floor_part(stores, threads) for threads in THREADS]
    for name, (what, way, messages) in stores.ways().items():
        rate, wait, told = _beside(name)
        counts = [
            Count(
                figure="per_s",
                what=f"{what}, durable",
                unit="msg/s",
                meaning=MEANINGS.get(name, ""),
                beside=rate,
                beside_what=told,
            )
        ]
        if name == "batch":
            counts.append(
                Count(
                    figure="mb_per_s",
                    what=f"{what}, payload",
                    unit="MB/s",
                    beside=f"{DEVICE}.mb_per_s",
                    beside_what=told,
                    meaning="the share of the device",
                )
            )
        waits = latencies(f"{what}, one call", "what a caller waits", *TAILS)
        if wait:
            told = "a wait of these threads without a store, on average"
            waits = (replace(waits[0], beside=wait, beside_what=told), *waits[1:])
        parts.append(Part(f"store.{name}", partial(stores.append, way, messages), (*counts, *waits)))
    return parts


def _beside(name: str) -> tuple[str, str, str]:
    """What a way to append stands beside: the figure of its rate, that of its waits (or none), and in words."""
    way, _, threads = name.partition(".")
    if way == "append":
        return f"floor.{threads}.per_s", f"floor.{threads}.us", "the threads without a store"
    if way == "async":
        return f"floor.{threads}.per_s", "", "as many threads without a store"
    return f"{DEVICE}.kib_per_s", "", "the device alone, forced writes of 256 KiB"


def _floor_part(stores: Stores, threads: int) -> Part:
    words = f"{threads} thread{'s wait' if threads > 1 else ' waits'} for a real forced write, without a store"
    meaning = "what the wake-ups and the device leave to any store"
    count = Count(figure="per_s", what=words, unit="msg/s", meaning=meaning)
    return Part(f"floor.{threads}", partial(_floor, stores, threads), (count,), of_machine=True)


def _floor(stores: Stores, threads: int) -> Mapping[str, float]:
    """The rate, and the mean wait in us."""
    sizes = Sizes.parse(str(MESSAGE_BYTES))
    with sub_folder(stores.base, "floor") as folder:
        rate = threads_without_engine(
            folder,
            threads,
            sizes,
            stores.seconds,
            Seconds(stores.seconds),
            bare=True,
            seed=stores.seed,
            file_bytes=stores.file_bytes,
        )
    return {"per_s": rate.messages_per_s, "us": 1e6 * threads / rate.messages_per_s}


def setting_parts(stores: Stores) -> list[Part]:
    """One setting changed: the same work as with the default, which is a part of `append_parts`."""
    ways = stores.ways()
    tried: dict[str, tuple[str, StoreConfig, str]] = {
        "lanes_2": ("lanes=2", StoreConfig(lanes=2), f"append.{MANY}"),
        "lanes_4": ("lanes=4", StoreConfig(lanes=4), f"append.{MANY}"),
        "durability_os": ('durability="os"', StoreConfig(durability="os"), "append.1"),
        "segment_bytes": ("segment_bytes of 32 MiB", StoreConfig(segment_bytes=SEGMENT_BYTES), "batch"),
        "publish_buffer_bytes": (
            "publish_buffer_bytes of 4 MiB",
            StoreConfig(publish_buffer_bytes=BUFFER_BYTES),
            "submit",
        ),
        "cache_plan": ('cache="plan"', StoreConfig(cache="plan"), "batch"),
    }
    if stores.pmem is not None:
        tier = CacheConfig(
            off_heap_bytes=0,
            persistent_bytes=TIER_ROOM * stores.messages * MESSAGE_BYTES,
            persistent_folder=stores.pmem,
        )
        tried["cache_persistent"] = ("a cache in --pmem", StoreConfig(cache=tier), "batch")
    parts = []
    for name, (what, config, work) in tried.items():
        count = Count(
            figure="per_s",
            what=f"{what}: {ways[work][0]}",
            unit="msg/s",
            beside=f"store.{work}.per_s",
            beside_what="the default",
            meaning="above 1.00 the setting helps this work",
        )
        _, way, messages = ways[work]
        parts.append(Part(f"setting.{name}", partial(stores.append, way, messages, config), (count,)))
    return parts


def read_parts(stores: Stores) -> list[Part]:
    """One message a call at random places, by what has it; a queue in columns; jobs."""
    kinds: dict[str, tuple[str, Memory | None, bool]] = {
        "ring": ("the ring of recent frames", None, False),
        "paged": ("the page cache, after an opening", Memory(), False),
        "device": ("the device, after an opening with a cold page cache", Memory(), True),
    }
    room = TIER_ROOM * stores.messages * MESSAGE_BYTES
    no_ring = Memory(recent_bytes=0, largest_message_bytes=64 << 10, limit_bytes=0)
    tiers = {"off_heap": replace(no_ring, off_heap_bytes=room)}
    if stores.pmem is not None:
        tiers["persistent"] = replace(no_ring, persistent_bytes=room, persistent_folder=stores.pmem)
    parts = [
        _read(stores, name, what, partial(_read_store, stores, memory, cold))
        for name, (what, memory, cold) in kinds.items()
    ]
    for name, memory in tiers.items():
        what = f"the tier `{name}_bytes` of a cache, the page cache cold"
        parts.append(_read(stores, name, what, partial(_read_tier, stores, memory)))
    jobs = Count(
        figure="per_s",
        what=f"jobs: `receive` of {JOBS}, `ack_batch`, one thread",
        unit="msg/s",
        meaning="each acknowledgement is durable",
    )
    return [
        *parts,
        Part("store.jobs", partial(_jobs, stores), (jobs, *latencies("a receive and its acknowledgements", ""))),
    ]


def _read(stores: Stores, name: str, what: str, run: Callable[[], dict[str, float]]) -> Part:
    beside = "" if name in ("ring", "device") else "store.read.device.p50"
    return Part(
        f"store.read.{name}",
        run,
        (
            Count(
                figure="p50",
                what=f"`get_range` of one message from {what}, p50",
                unit="us",
                better="lower",
                noise=0.2,
                beside=beside,
                beside_what="from the device",
                meaning="a share below 1.00 is what this memory saves" if beside else "",
            ),
            Count(figure="p99", what=f"the same from {what}, p99", unit="us", better="lower", noise=0.5),
        ),
    )


def _reading(stores: Stores, store: MessageStore, step: int = 1) -> dict[str, float]:
    """Read each `step`th message in random order until the time or the messages are over; each is compared.

    A first read has costs of its own, so there are a few of them even if the time is over at once.
    """
    places = list(range(0, stores.messages, step))
    random.Random(stores.seed).shuffle(places)
    over, times, clock, wrong, read = Seconds(stores.seconds), array("q"), perf_counter_ns, 0, 0
    for place in places:
        began = clock()
        found = store.get_range(TOPIC, 0, place, 1)
        times.append(clock() - began)
        wrong += next(iter(found.values()), b"") != HEAD.pack(place) + stores.body
        read += 1
        if over() and read >= LEAST_READS:
            break
    if wrong:
        raise WrongResult(f"{wrong:,} of {read:,} messages that were read are not what was written")
    stores.run.checked(read)
    latencies_ns = Latencies()
    latencies_ns.add(times)
    return {**latencies_ns.marks_us(), "calls": read}


def _read_store(stores: Stores, memory: Memory | None, cold: bool) -> dict[str, float]:
    with sub_folder(stores.base, "store") as folder:
        with MessageStore.open(folder) as store:
            timed.filled(store, stores.messages, stores.body)
            if memory is None:
                return _reading(stores, store)
        if cold:
            drop_page_cache(folder)
        with MessageStore.open(folder) as store:
            return _reading(stores, store, COLD_STEP if cold else 1)


def _read_tier(stores: Stores, memory: Memory) -> dict[str, float]:
    config = TunedConfig(**memory.settings(stores.base))
    with sub_folder(stores.base, "store") as folder, MessageStore.open(folder, config) as store:
        timed.filled(store, stores.messages, stores.body)
        layers.cached_all(store)
        drop_page_cache(folder)
        return _reading(stores, store)


def _jobs(stores: Stores) -> dict[str, float]:
    with sub_folder(stores.base, "store") as folder, MessageStore.open(folder) as store:
        timed.filled(store, stores.messages, stores.body)
        times, done, wrong, over = array("q"), 0, 0, Seconds(stores.seconds)
        with store.subscribe(TOPIC, "host") as subscription:
            while done < stores.messages and (not over() or not times):
                began = perf_counter_ns()
                taken = subscription.receive(max_messages=JOBS)
                subscription.ack_batch(list(taken))
                times.append(perf_counter_ns() - began)  # the comparison below is not in it, nor in the rate
                done += len(taken)
                wrong += sum(one.message.data != HEAD.pack(one.message.offset) + stores.body for one in taken)
            left = subscription.backlog()
        if wrong:
            raise WrongResult(f"{wrong:,} of {done:,} messages that were received are not what was written")
        if left.total != stores.messages - done:
            raise WrongResult(
                f"{done:,} of {stores.messages:,} messages were acknowledged, and {left.total:,} are left"
            )
        stores.run.checked(done)
    found = Latencies()
    found.add(times)
    return {"per_s": done / (sum(times) / 1e9), "calls": found.count, **found.marks_us()}
