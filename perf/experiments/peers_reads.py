"""Reads of the store and its peers: just written, everything from a cold page cache, and ranges from a warm one."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from time import perf_counter

from ..machine.folders import drop_page_cache, files_of, sub_folder
from ..peers.found import Found
from ..peers.messages import Messages
from ..peers.peer import RANGES, SCAN, Chunk
from ..references.rawfile import read_sequential
from ..report.progress import Run
from ..workload.checker import WrongResult
from .parts import Count, Part
from .peers_appends import check_first
from .peers_work import QUEUES, Figures, Filled, Work

PER_QUEUE = 32  # messages of a queue and round of a tail
KEEP_EVERY = 8  # calls of a timed read whose result is compared after it
RAW = "raw.scan"
PER_S = Count(figure="per_s", what="", unit="msg/s", meaning="one thread; the first read of each message counts")
FIRST_PER_S = Count(
    figure="first_per_s", what="first pass", unit="msg/s", noise=0.3,
    meaning=f"the first {QUEUES * PER_QUEUE:,} messages that this opening reads: nothing is warm yet",
)  # fmt: skip
MB_PER_S = Count(figure="mb_per_s", what="", unit="MB/s", meaning="payload; nothing of the files was in the page cache")
Step = tuple[int, int, int]  # queue, number, messages


def tail_works(base: Path, run: Run, size_bytes: int, seed: int, sizes: Mapping[str, Messages]) -> Iterator[Work]:
    """Rounds of a write of 32 messages of each queue, and then reads of all of them."""
    for name, messages in sizes.items():
        what = f"{name}, {'1 to 32' if messages.varies else '32'} a call"
        yield Work(
            f"tail.{name}", RANGES, what, partial(_tail, base, run, size_bytes, seed, messages), (PER_S, FIRST_PER_S),
            beside=f"lmdb.tail.{name}", beside_what="LMDB",
        )  # fmt: skip


def scan_works(filled: Filled, run: Run, seed: int) -> Iterator[Work]:
    """Everything from a cold page cache; then ranges in no order from a warm one."""
    yield Work(
        "scan", SCAN, "everything, cold page cache", partial(_scan, filled, run), (MB_PER_S,),
        beside=RAW, beside_what="the raw device",
    )  # fmt: skip
    yield Work(
        "ranges", RANGES, "1 to 32 a call in no order, warm page cache", partial(_ranges, filled, run, seed), (PER_S,),
        beside="lmdb.ranges", beside_what="LMDB",
    )  # fmt: skip


def raw_part(filled: Filled, store: Found) -> Part:
    """As many bytes as the store's log has, read from its files without the page cache."""

    def raw() -> Figures:
        folder = filled.folder(store)
        drop_page_cache(folder)
        files = sorted(files_of(folder), key=lambda path: path.stat().st_size, reverse=True)
        wanted = filled.payload_bytes
        began = perf_counter()
        got = read_sequential(files, wanted, direct=True)
        return {"mb_per_s": got / (perf_counter() - began) / 1e6}

    meaning = "one thread that reads the store's files from their beginning, with O_DIRECT"
    return Part(RAW, raw, (Count(figure="mb_per_s", what="the raw device", unit="MB/s", meaning=meaning),))


def _tail(base: Path, run: Run, size_bytes: int, seed: int, messages: Messages, found: Found) -> Figures:
    rng = random.Random(seed)
    rounds = max(1, size_bytes // messages.mean_bytes // (QUEUES * PER_QUEUE))
    rows, total, firsts = messages.rows(QUEUES), 0.0, 0.0
    with sub_folder(base, "peer") as folder, closing(found.open(folder, size_bytes)) as peer:
        for number in range(rounds):
            peer.append_batch(peer.batch_of([next(rows) for _ in range(QUEUES * PER_QUEUE)]))
            steps = [
                step
                for queue in range(QUEUES)
                for step in cut(queue, number * PER_QUEUE, PER_QUEUE, rng if messages.varies else None)
            ]
            took = timed(peer.read, steps, messages, run)
            total += took
            firsts = firsts or took
        check_first(peer, messages, rounds * QUEUES * PER_QUEUE, run)
    return {"per_s": rounds * QUEUES * PER_QUEUE / total, "first_per_s": QUEUES * PER_QUEUE / firsts}


def cut(queue: int, first: int, count: int, rng: random.Random | None) -> Iterator[Step]:
    """Steps over messages of one queue, each once: 1 to 32 a step, or 32 without `rng`."""
    done = 0
    while done < count:
        size = min(count - done, PER_QUEUE if rng is None else rng.randint(1, PER_QUEUE))
        yield queue, first + done, size
        done += size


def timed(read: Callable[[int, int, int], Collection[bytes]], steps: list[Step], messages: Messages, run: Run) -> float:
    """Seconds of all reads. The number of each is compared, and the bytes of each eighth, both outside of the time."""
    kept, short = [], 0
    began = perf_counter()
    for index, step in enumerate(steps):
        found = read(*step)
        short += step[2] - len(found)
        if index % KEEP_EVERY == 0:
            kept.append((step, found))
    took = perf_counter() - began
    if short:
        raise WrongResult(f"{short} messages did not come")
    for (queue, number, count), came in kept:
        if not all(messages.matches(bytes(data), queue, number + at) for at, data in enumerate(came)):
            raise WrongResult(f"queue {queue}: what came from message {number} on is not what was written")
        run.checked(count)
    return took


def _scan(filled: Filled, run: Run, found: Found) -> Figures:
    folder = filled.folder(found)
    drop_page_cache(folder)
    with closing(found.open(folder, 0)) as peer:
        began = perf_counter()
        count = counted(peer.read_all())
        took = perf_counter() - began
        if count != sum(filled.written.values()):
            raise WrongResult(f"{found.kind.TITLE} gave {count} of {sum(filled.written.values())} messages")
        run.checked(filled.messages.check(peer.read_all(), filled.written))
    return {"mb_per_s": filled.payload_bytes / took / 1e6}


def counted(chunks: Iterator[Chunk]) -> int:
    """Read everything, and count it."""
    return sum(map(len, chunks))


def _ranges(filled: Filled, run: Run, seed: int, found: Found) -> Figures:
    folder, rng = filled.folder(found), random.Random(seed)
    steps = [step for queue, count in filled.written.items() for step in cut(queue, 0, count, rng)]
    rng.shuffle(steps)
    for path in files_of(folder):
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass
    with closing(found.open(folder, 0)) as peer:
        took = timed(peer.read, steps, filled.messages, run)
    return {"per_s": sum(filled.written.values()) / took}
