"""The parts of `host` without a store: the device, memory, wake-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from ..machine.folders import human_bytes, sub_folder
from ..references import memory_speeds, wakes
from ..references.device_calls import Reads, Writes
from .parts import Count, Part, latencies

KIB, MIB = 1 << 10, 1 << 20
SIZES, FEW_SIZES = (4 * KIB, 64 * KIB, 256 * KIB, MIB), (4 * KIB, 256 * KIB)
WRITERS = (1, 4)
BATCH = 256 * KIB  # about what a batch of 256 messages of 1 KiB is
TASKS = 40


def size_name(size_bytes: int) -> str:
    """ "4k", "1m": a size in the name of a measure."""
    return f"{size_bytes // MIB}m" if size_bytes >= MIB else f"{size_bytes // KIB}k"


def device_parts(base: Path, seconds: float, file_bytes: int, sizes: Sequence[int]) -> list[Part]:
    """Writes and reads of the disk."""
    parts = []
    for size in sizes:
        for writers in WRITERS:
            parts.append(_writes(base, seconds, Writes(size, writers, file_bytes=file_bytes)))
        parts.append(_writes(base, seconds, Writes(size, direct=False, file_bytes=file_bytes)))
    size = BATCH
    parts += [
        _writes(base, seconds, Writes(size, preparation="fallocated", file_bytes=file_bytes)),
        _writes(base, seconds, Writes(size, preparation="growing", file_bytes=file_bytes)),
        _writes(base, seconds, Writes(size, forced=False, file_bytes=file_bytes)),
        _writes(base, seconds, Writes(size, forced=False, direct=False, file_bytes=file_bytes)),
        _reads(
            base,
            seconds,
            "read.random.1",
            "random reads of 4 KiB, one thread",
            Reads(4 * KIB, 1, file_bytes=file_bytes),
            "a message that no memory has costs at least this",
        ),
        _reads(
            base,
            seconds,
            "read.random.4",
            "random reads of 4 KiB, four threads",
            Reads(4 * KIB, 4, file_bytes=file_bytes),
            "more than one thread's: the device works on several at once",
        ),
        _reads(
            base,
            seconds,
            "read.sequential",
            "reads of 1 MiB one after the other",
            Reads(MIB, at_random=False, file_bytes=file_bytes),
            "a scan of a store, and its recovery, end here",
        ),
        _reads(
            base,
            seconds,
            "read.paged",
            "the same out of the page cache",
            Reads(MIB, direct=False, at_random=False, file_bytes=file_bytes),
            "what the kernel keeps is as fast as this",
        ),
    ]
    return parts


def name_of(writes: Writes) -> str:
    """The name of a part: "write.forced.64k.1", with what is not the usual way."""
    kind = "forced" if writes.forced else "unforced"
    ways = [] if writes.direct else ["paged"]
    ways += [] if writes.preparation == "prewritten" else [writes.preparation]
    return ".".join(["write", kind, size_name(writes.size_bytes), str(writes.writers), *ways])


def _writes(base: Path, seconds: float, writes: Writes) -> Part:
    size, forced = human_bytes(writes.size_bytes), "forced" if writes.forced else "unforced"
    file = {
        "prewritten": "pre-written file",
        "fallocated": "reserved file, not written",
        "growing": "new file",
    }
    what = (
        f"{forced} writes of {size}, {writes.writers} writer{'s' if writes.writers > 1 else ''}, "
        f"{'O_DIRECT' if writes.direct else 'page cache'}, {file[writes.preparation]}"
    )
    usual = name_of(Writes(writes.size_bytes, writes.writers))
    beside = "" if usual == name_of(writes) else f"{usual}.mb_per_s"
    meaning = "a durable write of one caller takes p50" if writes.forced else "not durable: for scale alone"
    if writes.preparation != "prewritten":
        meaning = "why segments are written once before they are used"
    return Part(
        name_of(writes),
        partial(_in_folder, base, writes.measure, seconds),
        (
            Count(
                figure="mb_per_s",
                what=what,
                unit="MB/s",
                meaning=meaning,
                beside=beside,
                beside_what="O_DIRECT, forced, pre-written",
            ),
            *latencies(what, "the time of one call"),
        ),
        of_machine=True,
    )


def _reads(base: Path, seconds: float, name: str, what: str, reads: Reads, meaning: str) -> Part:
    return Part(
        name,
        partial(_in_folder, base, reads.measure, seconds),
        (Count(figure="mb_per_s", what=what, unit="MB/s", meaning=meaning), *latencies(what, "the time of one call")),
        of_machine=True,
    )


def _in_folder(base: Path, measure: Callable[[Path, float], dict[str, float]], seconds: float) -> dict[str, float]:
    """The figures, and how many KiB a second they are: what messages of that size stand beside."""
    with sub_folder(base, "device") as folder:
        found = measure(folder, seconds)
    return {**found, "kib_per_s": 1e6 * found["mb_per_s"] / 1024}


def memory_parts(base: Path, pmem: Path | None, seconds: float, tier_bytes: int) -> list[Part]:
    """Each kind of memory that a tier of the cache may be."""
    kinds: dict[str, tuple[str, Callable[[], AbstractContextManager[memoryview]]]] = {
        "heap": ("the heap", partial(memory_speeds.heap, tier_bytes)),
        "off_heap": ("memory off the heap", partial(memory_speeds.anonymous, tier_bytes)),
        "private_file": ("a mapped file on the disk", partial(memory_speeds.mapped_file, base, tier_bytes)),
    }
    if pmem is not None:
        kinds["persistent"] = ("a mapped file in --pmem", partial(memory_speeds.mapped_file, pmem, tier_bytes))
    return [_memory(name, what, opened, seconds) for name, (what, opened) in kinds.items()]


def _memory(name: str, what: str, opened: Callable[[], AbstractContextManager[memoryview]], seconds: float) -> Part:
    def run() -> Mapping[str, float]:
        with opened() as view:
            touch = {} if name == "heap" else {"map": memory_speeds.first_touch(view)}
            return {**touch, **memory_speeds.speeds(view, seconds)}

    beside, told = ("", "") if name == "heap" else ("memory.heap", "the heap")
    speed = {"fill": "copies of 1 MiB into it", "read": "copies of 1 MiB out of it"}
    if name != "heap":
        speed["map"] = "first touch of its pages"
    rates = tuple(
        Count(
            figure=figure,
            what=f"{what}: {done}",
            unit="MB/s",
            beside=f"{beside}.{figure}" if beside and figure != "map" else "",
            beside_what=told,
            noise=0.25,
            meaning=f"the tier `{name}_bytes` is made of this" if figure == "fill" else "",
        )
        for figure, done in speed.items()
    )
    small = Count(
        figure="small_us",
        what=f"{what}: a copy of 1 KiB out of it",
        unit="us",
        better="lower",
        noise=0.25,
        meaning="a message that this tier has costs at least this",
        beside=f"{beside}.small_us" if beside else "",
        beside_what=told,
    )
    return Part(f"memory.{name}", run, (*rates, small), of_machine=True)


def wake_parts(seconds: float) -> list[Part]:
    """Wake-ups of threads and of coroutines."""
    ways: dict[str, tuple[str, str, Callable[[], dict[str, float]]]] = {
        "thread": (
            "a thread wakes another one",
            "a lone append pays two of these beside its force",
            partial(wakes.thread_to_thread, seconds),
        ),
        "threads": (
            f"one thread wakes {TASKS}, each",
            f"{TASKS} blocking producers are no faster than one a turn of this",
            partial(wakes.many_threads, TASKS, seconds),
        ),
        "coroutines": (
            f"another thread answers {TASKS} coroutines, each",
            f"{TASKS} `append_async` pay this instead",
            partial(wakes.coroutines, TASKS, seconds),
        ),
        "sleep": (
            "a sleep of 1 ms ends late by",
            "how exact a wait with a time-out can be",
            partial(wakes.late, 1e-3, seconds),
        ),
    }
    return [
        Part(
            f"wake.{name}",
            run,
            (Count(figure="us", what=what, unit="us", better="lower", meaning=meaning, noise=0.3),),
            of_machine=True,
        )
        for name, (what, meaning, run) in ways.items()
    ]
