"""A work that the store and its peers do alike, and the parts that it makes: one for each peer that can do it."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter

from ...store import StoreError
from ..machine.folders import drop_page_cache
from ..machine.threads import run_together
from ..peers.found import OURS, Found
from ..peers.messages import Messages
from ..peers.peer import BATCH, Peer
from ..peers.store import Store
from ..workload.checker import WrongResult
from .parts import Count, Part

Figures = dict[str, float]
QUEUES = 32
FILL_BYTES = 1 << 20  # of a batch that fills a peer
MOST_IN_BATCH = 1000


class PeerFailed(OSError):
    """A peer raised an error of its own; the report goes on without it."""


@dataclass(frozen=True)
class Work:
    """What is measured of each peer that can do it.

    Attributes:
        name: of its parts, after the peer's name.
        needs: what a peer has to be able to do, of its WORKS.
        what: the work in words.
        run: measures one peer, in a folder that it makes and removes.
        counts: its figures; their `what` follows the work's.
        beside: the reference of the store's figures: a part's name. The peers' figures stand beside the store's.
        beside_what: that, in words.
        of_store: the store's work that the peers' stands beside, where that has another name.
        how: what makes it another way of the same peer, after the peer's name in words.
    """

    name: str
    needs: str
    what: str
    run: Callable[[Found], Figures]
    counts: tuple[Count, ...]
    beside: str = ""
    beside_what: str = ""
    of_store: str = ""
    how: str = ""

    def part(self, found: Found) -> Part:
        """The part of one peer."""
        kind = found.kind
        title = kind.TITLE + self.how
        counts = []
        for count in self.counts:
            beside, words = f"{Store.NAME}.{self.of_store or self.name}.{count.figure}", Store.TITLE
            if kind is Store:
                beside, words = (f"{self.beside}.{count.figure}", self.beside_what) if self.beside else ("", "")
            what = ", ".join(filter(None, (f"{title}: {self.what}", count.what)))
            counts.append(dataclasses.replace(count, what=what, beside=beside, beside_what=words))
        measure = partial(_run, title, partial(self.run, found))
        return Part(f"{kind.NAME}.{self.name}", measure, tuple(counts), must=kind in OURS)


def parts_of(works: Iterable[Work], peers: Sequence[Found]) -> list[Part]:
    """Each work by each peer that can do it."""
    return [work.part(found) for work in works for found in peers if work.needs in found.kind.WORKS]


def _run(title: str, run: Callable[[], Figures]) -> Figures:
    try:
        return run()
    except (WrongResult, StoreError, OSError):
        raise
    except Exception as error:  # each peer has errors of its own
        raise PeerFailed(f"{title}: {type(error).__name__}: {error}") from error


def run_ready(peer: Peer, seconds: float, jobs: Sequence[Callable[[float], None]]) -> float:
    """Seconds of all jobs, each in a thread of its own that the peer is ready for before the clock starts.

    A job gets the time of `perf_counter` at which it is to end. Raises the first error of a job, or of `Peer.ready`.
    """
    began = 0.0

    def start() -> None:
        nonlocal began
        began = perf_counter()

    barrier = threading.Barrier(len(jobs), start)

    def body(job: Callable[[float], None]) -> None:
        try:
            peer.ready()
        except BaseException:  # the others must not wait for this one
            barrier.abort()
            raise
        try:
            barrier.wait()
        except threading.BrokenBarrierError:
            return  # another one raises the reason
        job(began + seconds)

    run_together([partial(body, job) for job in jobs])
    return perf_counter() - began


def batch_messages(messages: Messages) -> int:
    """How many messages make a batch of about a MiB, 1,000 at the most."""
    return max(1, min(MOST_IN_BATCH, FILL_BYTES // messages.mean_bytes))


def fill(peer: Peer, messages: Messages, size_bytes: int) -> dict[int, int]:
    """Write about so many bytes of messages, the queues by turns. Returns the number of each queue's."""
    count = max(QUEUES, size_bytes // messages.mean_bytes)
    rows = islice(messages.rows(QUEUES), count)
    size = batch_messages(messages)
    while some := list(islice(rows, size)):
        if BATCH in peer.WORKS:
            peer.append_batch(peer.batch_of(some))
        else:
            for row in some:
                peer.append(row)
    return messages.shares(count, QUEUES)


class Filled:
    """The folders of closed peers with the same messages, made once for all rounds."""

    def __init__(self, base: Path, messages: Messages, size_bytes: int) -> None:
        self._base, self.messages, self._size_bytes = base, messages, size_bytes
        self.written: dict[int, int] = {}

    def folder(self, found: Found) -> Path:
        """The folder of a peer."""
        made = self._base / f"filled-{found.kind.NAME}"
        if not made.exists():
            made.mkdir()
            try:
                with closing(found.open(made, 0)) as peer:
                    self.written = fill(peer, self.messages, self._size_bytes)
            except BaseException:  # also an interrupt: half of it would be measured
                shutil.rmtree(made, ignore_errors=True)
                raise
            drop_page_cache(made)
        return made

    @property
    def payload_bytes(self) -> int:
        """The bytes of all messages."""
        return self.messages.bytes_of(self.written)
