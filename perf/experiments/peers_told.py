"""What a report of peers says: its chapters' texts, who the peers are, the charts, and the best of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..peers.found import OURS, Found
from ..report.record import Chapter, Chart, Measure
from ..report.words import amount
from .parts import Part
from .peers_appends import WITH_GROUP_COMMIT
from .peers_work import Work

SIZES = {"contest": "100 B to 17 KiB", "1KiB": "1 KiB", "small": "100 to 1,000 B"}
PRODUCERS = 1, 10, 40


@dataclass(frozen=True)
class Subject:
    """A chapter before it is measured. `more`: parts that are no peer's."""

    title: str
    text: str
    works: tuple[Work, ...]
    more: tuple[Part, ...] = ()


TEXTS = {
    "append": (
        "Appends, one at a time",
        "Threads append messages, each when its message before is durable: `append`. Sizes: "
        + "; ".join(f"{name}: {words}" for name, words in SIZES.items())
        + f'. "{WITH_GROUP_COMMIT.strip()}" is what a program can put around an engine: one thread that writes all '
        "messages that wait as one forced batch. Latencies are of callers that wait for each answer "
        "(coordinated omission); `latency` has fixed rates of arrival.",
    ),
    "pipelined": (
        "Appends, pipelined",
        "One producer that hands messages over without waiting for each; the time ends when all are durable. Here: "
        "`submit` with 4,096 tickets. An engine without such a call gets a thread that commits all messages that wait "
        "as one batch. Making a message counts.",
    ),
    "batch": (
        "Appends, in batches",
        "One producer, a batch of about a MiB a call, durable when it returns: `append_batch`, `append_columns`. Its "
        "messages are made, and put in the form in which a program would have them for the peer, outside of the time.",
    ),
    "tail": (
        "Reads just after the write",
        "Rounds: 32 messages of each of 32 queues are written, and then all of them read, a range of a queue a call "
        "(`get_range`). Only the reads are timed, from the first one on; every peer reads just after its own write.",
    ),
    "scan": (
        "Reads of everything",
        "A closed peer is opened. With nothing of its files in the page cache everything is read once, in the order in "
        "which it reads best: `scan` here, by keys there; and queue by queue here (`read_batch`). Then, with all "
        "files in the page cache, ranges of 1 to 32 messages in no order: `get_range`. "
        "Every message comes out as bytes of its own, and none as a view. Redis has all in memory.",
    ),
    "recovery": (
        "Recovery after a kill",
        "A process, with its server if there is one, is killed by SIGKILL in the middle of a write. A copy of what is "
        "left is opened with nothing of it in the page cache. Every acknowledged message is there, or the run ends "
        "with an error. The raw device reads as many bytes.",
    ),
    "jobs": (
        "A queue of jobs",
        "Workers submit a job of 100 to 1,000 B, receive one and acknowledge it, each step durable before the next: "
        "`append`, `receive`, `ack`; or all in batches: `append_batch`, `receive_batch`, `ack_batch`. Every job comes "
        "exactly once. diskcache and huey delete a job when they give it out, so that a worker that dies loses it: two "
        "steps of three, and no measure for the others.",
    ),
}
CHAPTERS = tuple(TEXTS)


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
        for kind, how in (("append", ""), ("grouped", WITH_GROUP_COMMIT)):
            for one in here:
                begin, end = f"{one.kind.NAME}.{kind}.{size}.", ".per_s"
                line = {
                    int(name.removeprefix(begin).removesuffix(end)): measure.value
                    for name, measure in measures.items()
                    if name.startswith(begin) and name.endswith(end)
                }
                lines |= {one.kind.TITLE + how: line} if line else {}
        counts = sorted({count for line in lines.values() for count in line})
        if len(counts) > 1:
            yield Chart(
                title=f"Messages of {words}: durable appends by producers", x_what="producers", y_what="msg/s",
                log_y=True, x=tuple(map(float, counts)),
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
    """The best of the peers that promise as much, with those that have a group-commit thread."""
    known: list[tuple[float, str, Measure]] = [
        (measure.value if measure.better == "higher" else -measure.value, one.kind.TITLE + other.how, measure)
        for other in subject.works
        if work.name in {other.name, other.of_store}
        for one in here
        if one.kind not in OURS
        and other.needs not in one.kind.WEAKER
        and (measure := measures.get(f"{one.kind.NAME}.{other.name}.{figure}"))
    ]
    if not known or work.of_store:
        return None
    _, title, measure = max(known, key=lambda one: one[0])
    return title, measure.value
