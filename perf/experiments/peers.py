"""The store beside its peers, on the same work, all durable alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..machine.folders import sub_folder
from ..peers.found import NAMES, OURS, Found, found
from ..peers.messages import Messages
from ..peers.nats import Nats
from ..peers.redis import Redis
from ..report.progress import Run
from ..report.record import Chapter, Chart, Measure
from ..report.words import amount
from ..workload.contest import Sizes
from ..workload.latencies import Latencies
from ..workload.settings import space_bytes
from .experiment import repeats, setting
from .parts import Part, measured
from .peers_appends import GROUPED_WHAT, batch_works, blocking_works, pipelined_works
from .peers_jobs import job_works
from .peers_reads import raw_part, scan_works, tail_works
from .peers_recovery import Crashed, recovery_works
from .peers_work import Filled, Work, parts_of
from .reported import Reported, Study

SIZES = {"contest": "100 B to 17 KiB", "1KiB": "1 KiB", "small": "100 to 1,000 B"}
PRODUCERS, WORKERS = (1, 10, 40), (1, 10, 40)
CHAPTERS = ("append", "pipelined", "batch", "tail", "scan", "recovery", "jobs")
OF_ALL = 12  # peers at most, with a copy of what is measured


@dataclass(frozen=True)
class Subject:
    """A chapter before it is measured. `more`: parts that are no peer's."""

    title: str
    text: str
    works: tuple[Work, ...]
    more: tuple[Part, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Peers(Reported):
    """The store beside RocksDB, LMDB, SQLite, queue libraries, Redis Streams and NATS JetStream, all durable alike."""

    NAME: ClassVar[str] = "peers"
    TITLE: ClassVar[str] = "This store beside its peers"
    METHOD: ClassVar[str] = (
        "each peer with the same messages in a fresh folder, durable before it answers, set up as its manual advises; "
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
        """The space of all peers with a chapter's messages, and of a copy of one; SQLite takes up to four times them."""
        return OF_ALL * 2.5 * max(self.scan_bytes, self.recovery_bytes) + space_bytes(1 << 30)

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
        sizes = {one: Messages(self.seed, Sizes.parse(one)) for one in SIZES if self.sizes in (None, one)}
        counts, workers = (tuple(dict.fromkeys(min(one, self.most) for one in all_)) for all_ in (PRODUCERS, WORKERS))
        one = Messages(self.seed, Sizes.parse(self.sizes or "contest"))
        jobs = Messages(self.seed, Sizes.parse(self.sizes or "small"))
        if name == "scan":
            filled = Filled(base, one, self.scan_bytes)
            return Subject(*TEXTS[name], tuple(scan_works(filled, run, self.seed)), (raw_part(filled, store),))
        if name == "recovery":
            crashed = Crashed(base, one, self.recovery_bytes)
            return Subject(*TEXTS[name], tuple(recovery_works(crashed, run)), (crashed.raw_part(store),))
        works: dict[str, Callable[[], Iterable[Work]]] = {
            "append": lambda: blocking_works(base, run, self.seconds, sizes, counts),
            "pipelined": lambda: pipelined_works(base, run, self.seconds, sizes),
            "batch": lambda: batch_works(base, run, self.seconds, sizes),
            "tail": lambda: tail_works(
                base, run, self.tail_bytes, self.seed, {name: kind for name, kind in sizes.items() if name != "small"}
                or sizes
            ),
            "jobs": lambda: job_works(base, run, self.seconds, jobs, workers),
        }  # fmt: skip
        return Subject(*TEXTS[name], tuple(works[name]()))


TEXTS = {
    "append": (
        "Appends, one at a time",
        "Threads append messages, each when its message before is durable: `append`. Sizes: "
        + "; ".join(f"{name}: {words}" for name, words in SIZES.items())
        + f'. "{GROUPED_WHAT.strip()}" is what a program can put around an engine: one thread that writes all messages '
        "that wait as one forced batch. A latency is of a caller that waits for each answer (coordinated omission); "
        "`latency` has fixed rates of arrival.",
    ),
    "pipelined": (
        "Appends, pipelined",
        "One producer that hands messages over without waiting for each; the time ends when all are durable. Here: "
        "`submit` with 4,096 tickets. An engine without such a call gets a thread that commits all messages that wait "
        "as one batch. Making a message counts.",
    ),
    "batch": (
        "Appends, in batches",
        "One producer, a batch a call, each durable when it returns: `append_batch`, `append_columns`. A batch is about a "
        "MiB. Its messages are made, and put in the form that the peer's program would have them in, outside of the time.",
    ),
    "tail": (
        "Reads just after the write",
        "Rounds: 32 messages of each of 32 queues are written, and then all of them read, a range of a queue a call "
        "(`get_range`). Only the reads are timed, from the first one on; every peer reads just after its own write.",
    ),
    "scan": (
        "Reads of everything",
        "A closed peer is opened. With nothing of its files in the page cache everything is read once, in the order in "
        "which it reads best: `scan` here, by keys there; and queue by queue here (`read_batch`). Then, with all files in "
        "the page cache, ranges of 1 to 32 messages of queues in no order: `get_range`. Redis has all in memory.",
    ),
    "recovery": (
        "Recovery after a kill",
        "A process, with its server if it has one, is killed by SIGKILL in the middle of a write. A copy of what it left "
        "is opened with nothing of it in the page cache. Every acknowledged message is there, or the run ends with an "
        "error. The raw device reads as many bytes.",
    ),
    "jobs": (
        "A queue of jobs",
        "Workers submit a job of 100 to 1,000 B, receive one and acknowledge it, each step durable before the next: "
        "`append`, `receive`, `ack`; or all in batches: `append_batch`, `receive_batch`, `ack_batch`. Every job comes "
        "exactly once. diskcache and huey delete a job when they give it out, and have nothing to acknowledge.",
    ),
}  # fmt: skip


def who(here: Sequence[Found], missing: Sequence[str]) -> Chapter:
    """The peers, their versions and settings, and what they promise otherwise."""
    lines = [
        f"{one.kind.TITLE} ({one.version}): {one.kind.SETUP}." + (f" See {one.kind.MANUAL}." if one.kind.MANUAL else "")
        for one in here
        if one.kind not in OURS[1:]
    ]
    return Chapter(title="The peers and their settings", text="\n".join([*lines, *missing]))


def chapter(
    subject: Subject, here: Sequence[Found], measures: Mapping[str, Measure], failed: Mapping[str, str]
) -> Chapter:
    """A chapter with its figures; who is left out and why."""
    needs = {work.needs for work in subject.works}
    reasons = {
        kind.TITLE: kind.LACKS for one in here if not needs & (kind := one.kind).WORKS and kind not in OURS
    }  # fmt: skip
    out = [f"Without {title}: {why}." for title, why in reasons.items()]
    out += [f"Failed: {name}: {why}." for name, why in failed.items()]
    charts = tuple(producer_charts(here, measures))
    return Chapter(
        title=subject.title, text="\n".join([subject.text, *out]), measures=tuple(measures.values()), charts=charts
    )


def producer_charts(here: Sequence[Found], measures: Mapping[str, Measure]) -> Iterable[Chart]:
    """Messages a second by producers, for each size."""
    for size, words in SIZES.items():
        lines: dict[str, dict[int, float]] = {}
        for kind, how in (("append", ""), ("grouped", GROUPED_WHAT)):
            for one in here:
                for count in PRODUCERS:
                    if known := measures.get(f"{one.kind.NAME}.{kind}.{size}.{count}.per_s"):
                        lines.setdefault(one.kind.TITLE + how, {})[count] = known.value
        counts = sorted({count for line in lines.values() for count in line})
        if len(counts) > 1:
            yield Chart(
                title=f"Messages of {words}: durable appends by producers", x_what="producers", y_what="msg/s", log_y=True,
                x=tuple(map(float, counts)),
                lines={name: tuple(line.get(count) for count in counts) for name, line in lines.items()},
                meaning="Where a line rises with the producers, they share their forces.",
            )  # fmt: skip


def beside_the_best(subject: Subject, here: Sequence[Found], measures: Mapping[str, Measure]) -> str:
    """A line: the store's figures, each with how many times the best peer's it is; below 1 it is behind."""
    said = []
    for work in subject.works:
        for count in work.counts:
            ours = measures.get(f"store.{work.name}.{count.figure}")
            best = best_peer(work, count.figure, subject, here, measures)
            if ours is None or best is None or ours.unit == "us":
                continue
            title, other = best
            times = ours.value / other if ours.better == "higher" else other / ours.value
            words = ", ".join(filter(None, (work.what, count.what)))
            said.append(f"{words} {amount(ours.value, ours.unit)}, {times:.2f} x {title}")
    return f"{subject.title}: {'; '.join(said)}." if said else ""


def best_peer(
    work: Work, figure: str, subject: Subject, here: Sequence[Found], measures: Mapping[str, Measure]
) -> tuple[str, float] | None:
    """The best of all peers, with those that have a group-commit thread."""
    known: list[tuple[float, str, Measure]] = [
        (measure.value if measure.better == "higher" else -measure.value, one.kind.TITLE + other.how, measure)
        for other in subject.works
        if other.name == work.name or other.of_store == work.name
        for one in here
        if one.kind not in OURS and (measure := measures.get(f"{one.kind.NAME}.{other.name}.{figure}"))
    ]
    if not known or work.of_store:
        return None
    _, title, measure = max(known, key=lambda one: one[0])
    return title, measure.value

