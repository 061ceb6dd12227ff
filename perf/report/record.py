"""A report: what was measured, in records that a page, a table and a comparison read.

A `Report` has chapters, a chapter has measures and charts. The JSON of a report is all that is known of it: a page that
is made of it again is the same page.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args

FORMAT = 1
NOISE = 0.1
ADDED = frozenset(
    {"reference_is_store", "right", "verdict", "checked_messages"}
)  # fields that the first reports did not have: they keep their defaults
Better = Literal["higher", "lower", "neither"]
BETTER = get_args(Better)
# What a value of the JSON has to be, by the type of its field; the others are made of parts.
KINDS: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "str": str, "bool": bool, "int": int, "float": (int, float), "float | None": (int, float, type(None)),
    "Better": str, "Mapping[str, str]": dict, "Mapping[str, float]": dict,
}  # fmt: skip


class NoReport(Exception):
    """A file holds no report that can be read; the sentence says which and why."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One figure: the median of its rounds, with what it means.

    Attributes:
        name: its key, the same in each report: "append.threads.40.rate". Comparisons go by it.
        what: in words, for a row of a table.
        unit: "msg/s", "MB/s", "us", "B".
        values: one for each round, in the order of the rounds.
        better: whether a higher or a lower value is the better one.
        reference: what the figure stands beside, in the same unit and of the same rounds; None without one.
        reference_what: that, in words.
        reference_is_store: whether the reference is a figure of the store itself: then it does not tell the machine's
            speed.
        meaning: what the figure tells a reader who knows no other part of the report.
        noise: the part by which two equal runs may differ although their rounds are close together: a process has
            its own memory, hash seed and threads.
    """

    name: str
    what: str
    unit: str
    values: tuple[float, ...]
    better: Better = "higher"
    reference: float | None = None
    reference_what: str = ""
    meaning: str = ""
    noise: float = NOISE
    reference_is_store: bool = False

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"{self.name}: a measure has at least one value")
        if self.better not in BETTER:
            raise ValueError(f"{self.name}: better is one of {BETTER}, not {self.better!r}")
        known = (*self.values, self.noise) if self.reference is None else (*self.values, self.noise, self.reference)
        if not all(math.isfinite(value) for value in known):
            raise ValueError(f"{self.name}: a value is no finite number: {known}")

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The smallest round."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest round."""
        return max(self.values)

    @property
    def share(self) -> float | None:
        """The figure over its reference; None without one."""
        return self.value / self.reference if self.reference else None


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over one axis. `lines`: name -> y of each x, None where nothing was measured.

    `x` ascends. An axis with `log` shows no value that is zero or less. `marks` are horizontal lines: name -> y.
    """

    title: str
    x_what: str
    y_what: str
    x: tuple[float, ...]
    lines: Mapping[str, tuple[float | None, ...]]
    log_x: bool = False
    log_y: bool = False
    meaning: str = ""
    marks: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if any(len(line) != len(self.x) for line in self.lines.values()):
            raise ValueError(f"{self.title}: each line has one value for each x")
        if any(earlier >= later for earlier, later in zip(self.x, self.x[1:], strict=False)):
            raise ValueError(f"{self.title}: x ascends")
        known = [*self.x, *self.marks.values(), *(y for line in self.lines.values() for y in line if y is not None)]
        if not all(math.isfinite(value) for value in known):
            raise ValueError(f"{self.title}: a value is no finite number")


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A setting that is recommended here. `worth` says what it gives, by figures of this report."""

    setting: str
    value: str
    why: str
    worth: str


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """Measures and charts of one subject. `text` says what was done, for a reader who sees this chapter alone."""

    title: str
    text: str
    measures: tuple[Measure, ...] = ()
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """All of one run.

    Attributes:
        name: of its files: "host".
        title: of its page.
        summary: the first lines that a reader sees, the answer first.
        advice: settings that are recommended here.
        chapters: the figures.
        machine: what it was measured on and with, in the order in which it is shown.
        how: the command, the method, the date.
        right: whether nothing that was measured broke a promise.
        verdict: what was compared, and what of it was wrong: the last line on a terminal.
        checked_messages: how many were compared with what was written.
    """

    name: str
    title: str
    summary: tuple[str, ...]
    advice: tuple[Advice, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    how: str = ""
    right: bool = True
    verdict: str = ""
    checked_messages: int = 0

    def measures(self) -> dict[str, Measure]:
        """All measures by their names. Raises ValueError if two have the same one."""
        found: dict[str, Measure] = {}
        for chapter in self.chapters:
            for measure in chapter.measures:
                if measure.name in found:
                    raise ValueError(f"two measures have the name {measure.name}")
                found[measure.name] = measure
        return found

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON. Each measure also has its `value`, `low` and `high`."""
        made = {"format": FORMAT, **asdict(self)}
        for chapter, shown in zip(self.chapters, made["chapters"], strict=True):
            for measure, row in zip(chapter.measures, shown["measures"], strict=True):
                row.update(value=measure.value, low=measure.low, high=measure.high)
        return made


Record = TypeVar("Record", Advice, Measure, Chart, Chapter, Report)


def report_of(read: object, source: str) -> Report:
    """The report that `as_dict` gave, from its JSON. Raises NoReport, which names the `source`."""
    if not isinstance(read, dict) or "chapters" not in read:
        raise NoReport(f"{source} is no report: it has no chapters. A report is the NAME.json of a `bench .. --report`")
    if read.get("format") != FORMAT:
        raise NoReport(f"{source} has the format {read.get('format')!r}; this version reads {FORMAT}")
    try:
        if not all(isinstance(text, str) for text in (*read["summary"], *read["machine"].values())):
            raise TypeError("a line of the summary or of the machine is no text")
        chapters = tuple(_chapter(one) for one in read["chapters"])
        made = _made(
            Report, read, summary=tuple(read["summary"]), chapters=chapters,
            advice=tuple(_made(Advice, one) for one in read["advice"]),
        )  # fmt: skip
        made.measures()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise NoReport(f"{source} is no whole report: {type(error).__name__}: {error}") from None
    return made


def _chapter(read: Mapping[str, Any]) -> Chapter:
    measures = tuple(_made(Measure, one, values=tuple(map(float, one["values"]))) for one in read["measures"])
    lines = [{name: tuple(line) for name, line in one["lines"].items()} for one in read["charts"]]
    charts = tuple(
        _made(Chart, one, x=tuple(one["x"]), lines=each) for one, each in zip(read["charts"], lines, strict=True)
    )
    return _made(Chapter, read, measures=measures, charts=charts)


def _made(kind: type[Record], read: Mapping[str, Any], **parts: object) -> Record:
    """One record of the fields that the JSON has, with these parts in place of its own. Raises TypeError."""
    values = {one.name: read[one.name] for one in fields(kind) if one.name in read or one.name not in ADDED} | parts
    for one in fields(kind):
        wanted = KINDS.get(str(one.type))
        if wanted is not None and one.name in values and not isinstance(values[one.name], wanted):
            raise TypeError(f"{one.name} is {values[one.name]!r:.40}, no {one.type}")
    return kind(**values)
