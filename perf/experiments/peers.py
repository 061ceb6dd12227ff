"""The store beside its peers, on the same work, all durable alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..machine.folders import sub_folder
from ..peers.found import NAMES, Found, found
from ..peers.messages import Messages
from ..peers.nats import Nats
from ..peers.redis import Redis
from ..peers.rocksdb import WARM_LOGS
from ..report.progress import Run
from ..workload.contest import Sizes
from ..workload.latencies import Latencies
from ..workload.settings import space_bytes
from .experiment import repeats, setting
from .parts import Part, measured
from .peers_appends import PREPARED_BATCH_BYTES, batch_works, blocking_works, pipelined_works
from .peers_jobs import job_works
from .peers_reads import raw_part, scan_works, tail_works
from .peers_recovery import Crashed, recovery_works
from .peers_told import CHAPTERS, PRODUCERS, SIZES, TEXTS, Subject, beside_the_best, chapter, who
from .peers_work import Filled, Work, parts_of
from .reported import Reported, Study

FASTEST = 2e9  # bytes that a peer appends a second, at the most
OF_ALL = 12  # peers at most, with a copy of what is measured
OF_MESSAGES = 4  # times the messages that a peer's folder takes at the most


@dataclass(frozen=True, kw_only=True)
class Peers(Reported):
    """The store beside RocksDB, LMDB, SQLite, queue libraries, Redis Streams and NATS JetStream, all durable alike."""

    NAME: ClassVar[str] = "peers"
    TITLE: ClassVar[str] = "This store beside its peers"
    METHOD: ClassVar[str] = (
        "each peer with the same messages in a fresh folder, durable before it answers, set up as its manual advises, "
        "the store by its defaults; before the clock starts threads are connected, RocksDB's recycled logs, which its "
        "manual advises, are written once, and nothing is prepared for the store or any other peer; "
        "what was written is read back and compared"
    )

    only: str | None = setting(None, f"one chapter: {', '.join(CHAPTERS)} (default: all)")
    peers: str | None = setting(None, f"these peers, with commas between: {', '.join(NAMES)} (default: all)")
    sizes: str | None = setting(None, f"one size of messages: {', '.join(SIZES)} (default: all)", short="small")
    seconds: float = setting(0.4, "seconds of a part that appends", short=0.01, least=0.001)
    most: int = setting(40, "producers and workers at the most", short=2, least=1)
    tail_bytes: int = setting(64 << 20, "messages of the reads just after the write", short=1 << 20)
    scan_bytes: int = setting(128 << 20, "messages of the reads of everything", short=1 << 20)
    recovery_bytes: int = setting(256 << 20, "messages before the kill", short=1 << 19)
    redis_server: Path | None = setting(None, "the server of Redis (default: redis-server on PATH)")
    nats_server: Path | None = setting(None, "the server of NATS (default: nats-server on PATH)")
    repeat: int = repeats()

    def __post_init__(self) -> None:
        Reported.__post_init__(self)
        for option, given, known in (
            ("only", [self.only], CHAPTERS), ("sizes", [self.sizes], tuple(SIZES)), ("peers", self._wanted(), NAMES)
        ):  # fmt: skip
            for one in given:
                if one is not None and one not in known:
                    raise ValueError(f"--{option}: {one!r} is none of {', '.join(known)}")

    def _wanted(self) -> Sequence[str]:
        return NAMES if self.peers is None else [name for name in self.peers.split(",") if name]

    def need_bytes(self) -> float:
        """The space of what stays or runs together: two chapters keep all peers' folders, the others one peer's.

        Some peers take four times the messages. RocksDB writes logs of as many bytes as a part is prepared
        for, and their messages to tables.
        """
        kept = OF_ALL * 2.5 * max(self.scan_bytes, self.recovery_bytes)
        prepared = 2 * WARM_LOGS * max(self.tail_bytes, PREPARED_BATCH_BYTES)
        return max(kept, OF_MESSAGES * self.tail_bytes) + prepared + space_bytes(FASTEST * self.seconds)

    def study(self, base: Path, run: Run) -> Study:
        """One chapter after the other, in each all peers by turns."""
        Latencies()  # raises before the work if its package is missing
        here, missing = found(self._wanted(), {Redis: self.redis_server, Nats: self.nats_server})
        chapters, lines = [], []
        for name in CHAPTERS if self.only is None else [self.only]:
            with sub_folder(base, name) as folder:
                subject = self._subject(name, folder, run, here[0])
                failed: dict[str, str] = {}
                measures = measured([*subject.more, *parts_of(subject.works, here)], self.repeat, run, failed)
            chapters.append(chapter(subject, here, measures, failed))
            lines.append(beside_the_best(subject, here, measures))
        return Study(summary=(*filter(None, lines), *missing), chapters=(who(here, missing), *chapters))

    def _subject(self, name: str, base: Path, run: Run, store: Found) -> Subject:
        """A chapter before it is measured."""
        sizes = {one: Messages(self.seed, Sizes.parse(one)) for one in SIZES if self.sizes in (None, one)}
        producers = tuple(dict.fromkeys(min(one, self.most) for one in PRODUCERS))
        first = next(iter(sizes.values()))
        more: tuple[Part, ...] = ()
        works: Iterable[Work]
        match name:
            case "append":
                works = blocking_works(base, run, self.seconds, sizes, producers)
            case "pipelined":
                works = pipelined_works(base, run, self.seconds, sizes)
            case "batch":
                works = batch_works(base, run, self.seconds, sizes)
            case "tail":
                works = tail_works(base, run, self.tail_bytes, self.seed, sizes)
            case "scan":
                filled = Filled(base, first, self.scan_bytes)
                works, more = scan_works(filled, run, self.seed), (raw_part(filled, store),)
            case "recovery":
                crashed = Crashed(base, first, self.recovery_bytes)
                works, more = recovery_works(crashed, run), (crashed.raw_part(store),)
            case _:
                works = job_works(base, run, self.seconds, Messages(self.seed, Sizes.parse("small")), producers)
        return Subject(*TEXTS[name], tuple(works), more)
