"""Growth: the cost of calls and background steps while a store holds 10 and 100 times as many of one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from ..machine.folders import sub_folder
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..report.record import Chapter, Chart, Measure
from ..workload.in_turn import Rows, in_turn
from . import growth_consumers as consumers
from . import growth_log as log
from .experiment import repeats, setting
from .reported import Reported, Study

LINES = 8  # of one chart
NOISE = 0.3  # two equal runs, of one round each


@dataclass(frozen=True)
class Axis:
    """One thing that a store may hold many of, its numbers, and the measurement at each step."""

    title: str
    steps: tuple[int, ...]
    chapter: Callable[[Path, int], Rows]


@dataclass(frozen=True, kw_only=True)
class Growth(Reported):
    """The cost of calls and background work by the number of segments, streams, transactions and consumers."""

    NAME: ClassVar[str] = "growth"
    TITLE: ClassVar[str] = "What calls cost while a store grows"
    WRITES_HERE: ClassVar[bool] = True
    METHOD: ClassVar[str] = (
        "microseconds where nothing else is said; segments of 64 KiB; each step is a store of its own, and the stores "
        "of a chapter take each call in turn; medians of calls, means of processor time; in a --dir that is memory the "
        "disk does not matter"
    )

    segments: int = setting(10_000, "sealed segments of the largest store", short=20, least=2)
    streams: int = setting(1_000_000, "streams of the largest store", short=200, least=2)
    transactions: int = setting(1_000, "named transactions of the largest store", short=4, least=2)
    queues: int = setting(10_000, "queues of the largest topic that is consumed", short=20, least=2)
    consumers: int = setting(100, "consumers that wait, at the most", short=4, least=2)
    subscriptions: int = setting(1_000, "subscriptions of one topic, at the most", short=4, least=2)
    readers: int = setting(50, "read-only openings beside a writer, at the most", short=4, least=2)
    delayed: int = setting(1_000_000, "delayed messages", short=500, least=2)
    factor: int = setting(10, "each step holds so many times what the one before holds", short=2, least=2)
    seconds: float = setting(0.5, "seconds of a call's calls", short=0, least=0)
    only: str = setting("", "chapters whose name has this", short="")
    repeat: int = repeats(1)

    def need_bytes(self) -> float:
        """The space of the stores of segments, their footers, and the stores of streams."""
        return 3.5 * self.segments * (64 << 10) + 2_000.0 * self.streams + (512 << 20)

    def axes(self) -> dict[str, Axis]:
        """The chapters, by name."""

        def steps(most: int, count: int = 3) -> tuple[int, ...]:
            return tuple(sorted({max(1, most // self.factor**step) for step in range(count)}))

        every: dict[str, Axis] = {
            "segments": Axis("calls, by sealed segments", steps(self.segments), log.by_segments),
            "streams": Axis("calls, by streams that are alive", steps(self.streams), log.by_streams),
            "transactions": Axis("commits, by named transactions", steps(self.transactions), log.by_transactions),
            "readers": Axis("readers beside a writer", steps(self.readers), log.by_readers),
            "queues": Axis("consumers, by queues of the topic", steps(self.queues, 4), consumers.by_queues),
            "waiting": Axis("consumers that wait for one topic", steps(self.consumers), consumers.by_waiting),
            "subscriptions": Axis("subscriptions of one topic", steps(self.subscriptions), consumers.by_subscriptions),
            "delays": Axis(
                "delayed messages, one in so many", (1, 20, 1_000)[: 1 if self.delayed < 1_000 else 3],
                partial(consumers.by_density, self.delayed),
            ),
        }  # fmt: skip
        return {name: axis for name, axis in every.items() if self.only in name}

    def study(self, base: Path, run: Run) -> Study:
        """A chapter for each axis: a line and a measure for each call."""
        axes = self.axes()
        run.expect(len(axes) * self.repeat)
        rows = {name: self._rows(base, axis, run) for name, axis in axes.items()}
        chapters = tuple(chapter(name, axis.title, axis.steps, rows[name]) for name, axis in axes.items())
        return Study(summary=(most_grown([row for one in rows.values() for row in one]),), chapters=chapters)

    def _rows(self, base: Path, axis: Axis, run: Run) -> list[Figures]:
        rounds = []
        for _ in range(self.repeat):
            with ExitStack() as stack:
                folders = [stack.enter_context(sub_folder(base, f"store-{step}")) for step in axis.steps]
                sizes = [axis.chapter(folder, step) for folder, step in zip(folders, axis.steps, strict=True)]
                rounds.append(in_turn(sizes, self.seconds))
            run.one_done()
        return list(_by_call(axis.steps, [report.median_of(list(at)) for at in zip(*rounds, strict=True)]))


def chapter(name: str, title: str, steps: Sequence[int], rows: Sequence[Figures]) -> Chapter:
    """The curves of one axis, and each call's cost at the last step."""
    x = tuple(map(float, steps))
    lines = {row["what"]: tuple(row[f"{step:,}"] for step in steps) for row in rows}
    names = list(lines)
    groups = [names[at : at + LINES] for at in range(0, len(names), LINES)]
    charts = tuple(
        Chart(title=title.capitalize(), x_what=name, y_what="microseconds where a line says nothing else", x=x,
              log_x=True, log_y=True, lines={what: lines[what] for what in group},
              meaning="A line that is flat costs the same however much the store holds; both axes are logarithmic.")
        for group in groups
    )  # fmt: skip
    measures = tuple(
        Measure(name=f"growth.{name}.{row['what']}", what=f"{row['what']}, at {steps[-1]:,}", unit="", better="lower",
                values=(row[f"{steps[-1]:,}"],), noise=NOISE, reference_is_store=True,
                reference=None if row["growth"] is None else row[f"{steps[0]:,}"],
                reference_what=f"at {steps[0]:,}: the share is the growth")
        for row in rows
        if row[f"{steps[-1]:,}"] is not None
    )  # fmt: skip
    text = "Microseconds where a row says nothing else. Each step is a store of its own; all take each call in turn."
    return Chapter(title=f"Growth: {title}", text=text, measures=measures, charts=charts)


def most_grown(rows: Sequence[Figures]) -> str:
    """The row with the largest growth, in words."""
    grown = [row for row in rows if row["growth"] is not None]
    if not grown:
        return "Nothing was measured at two steps."
    most = max(grown, key=lambda row: float(row["growth"]))
    return f"Of what a store may hold more of, this costs most: {most['what']}, x {most['growth']:.1f}."


def _by_call(steps: Sequence[int], at: Sequence[Figures]) -> Iterator[Figures]:
    for what in at[0]:
        values = [found.get(what) for found in at]
        growth = values[-1] / values[0] if len(values) > 1 and values[0] and values[-1] is not None else None
        columns = {f"{step:,}": value for step, value in zip(steps, values, strict=True)}
        yield {"what": what, **columns, "growth": growth}
