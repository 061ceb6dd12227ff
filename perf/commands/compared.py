"""`compare A.json B.json`: what got better or worse from one report to the other, beyond the spread."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ..experiments.reported import BUSY
from ..report.comparing import Change, Comparison, Verdict, compare
from ..report.figures import Figures, console, counted, table, write_json
from ..report.files import read_report
from ..report.record import NoReport, Report
from ..report.tables import plain
from ..report.words import amount
from .options import Json

SAME_MACHINE = ("CPU", "memory", "disk", "system", "interpreter")  # words of these before the first comma
BESIDE = re.compile(r"others used (\d+) % of all CPUs")
MOVED: tuple[Verdict, ...] = ("worse", "better", "with the machine")


def compare_command(
    before: Annotated[Path, typer.Argument(metavar="A.json", help="the report before")],
    after: Annotated[Path, typer.Argument(metavar="B.json", help="the report after")],
    json: Json = None,
) -> None:
    """Say what got better or worse from report A to report B, beyond the spread of both.

    A and B are the JSON files of reports. A figure with a reference without a store counts as changed only if it
    changed against that, too: else the machine was faster or slower.
    """
    try:
        old, new = read_report(before), read_report(after)
    except NoReport as error:
        raise typer.BadParameter(str(error)) from error
    compared = compare(old, new)
    if str(json) != "-":
        out = console()
        for line in differences(old, new):
            out.print(plain(line), highlight=False)
        for verdict in MOVED:
            if rows := [row_of(change) for change in compared.of(verdict)]:
                out.print(table(verdict, rows))
        out.print(told(compared), highlight=False)
        for line in limits(compared, old, new):
            out.print(plain(line), highlight=False, soft_wrap=True)
    write_json(json, as_figures(compared, differences(old, new)))


def differences(before: Report, after: Report) -> list[str]:
    """Sentences on what is not the same about the machines and the code of both reports, and on busy machines."""
    found = [
        f"another {name}: {before.machine.get(name, 'unknown')} -> {after.machine.get(name, 'unknown')}"
        for name in (*SAME_MACHINE, "versions", "commit")
        if _key(before, name) != _key(after, name)
    ]
    for which, report in (("A", before), ("B", after)):
        if not report.right:
            found.append(f"{which} has a wrong result, so its figures mean little: {report.verdict}")
        share = BESIDE.search(report.machine.get("others", ""))
        if share is not None and int(share[1]) > 100 * BUSY:
            found.append(f"{which} was measured while {share[0]}: equal runs may differ by more than its rounds do")
    return [f"two kinds of reports: {before.name}, {after.name}", *found] if before.name != after.name else found


def _key(report: Report, name: str) -> str:
    told_of = report.machine.get(name, "")
    return told_of.partition(",")[0] if name in SAME_MACHINE else told_of


def row_of(change: Change) -> Figures:
    """A row of a table."""
    unit = change.measure.unit
    return {
        "what": change.measure.what,
        "before": amount(change.before, unit),
        "after": amount(change.after, unit),
        "change": _percent(change.change),
        "equal runs differ by": f"up to {100 * change.beyond:.0f} %",
    }


def _percent(part: float) -> str:
    return f"{100 * part:+.0f} %" if math.isfinite(part) else "from 0"


def told(compared: Comparison) -> str:
    """How many figures there are, and how many of them moved."""
    counts = ", ".join(f"{len(compared.of(verdict))} {verdict}" for verdict in MOVED)
    alone = [f"{len(names)} are only in {which}" for names, which in _alone(compared) if names]
    same = f"{len(compared.of('same'))} the same within the spread"
    return "; ".join([f"{counted(len(compared.changes), 'figure')}: {counts}, {same}", *alone])


def limits(compared: Comparison, before: Report, after: Report) -> Iterator[str]:
    """The last lines: which changes are too small to be seen, and what to do about reports of one round."""
    seen = [one for one in compared.changes if one.measure.better != "neither"]
    if not seen:
        return
    usual, widest = statistics.median(one.beyond for one in seen), max(seen, key=lambda one: one.beyond)
    yield (
        f"Changes below {100 * usual:.0f} % cannot be seen (the median over the figures; "
        f"the widest {100 * widest.beyond:.0f} %: {widest.measure.what})."
    )
    single = [which for which, report in (("A", before), ("B", after)) if _of_one_round(report)]
    if single:
        yield (
            f"{' and '.join(single)} {'has' if len(single) == 1 else 'have'} one round of most figures, "
            f"so their spread is a guess: measure with --repeat 3 or more."
        )


def _of_one_round(report: Report) -> bool:
    rounds = [len(one.values) for one in report.measures().values()]
    return bool(rounds) and statistics.median(rounds) < 2


def _alone(compared: Comparison) -> Iterator[tuple[Sequence[str], str]]:
    yield compared.only_before, "A"
    yield compared.only_after, "B"


def as_figures(compared: Comparison, differing: Sequence[str]) -> dict[str, Any]:
    """All of it, ready for JSON."""
    changes = [
        {**{name: value for name, value in asdict(one).items() if name != "measure"}, "name": one.measure.name,
         "unit": one.measure.unit, "change": one.change if math.isfinite(one.change) else None}
        for one in compared.changes
    ]  # fmt: skip
    return {
        "differences": list(differing), "changes": changes,
        "only_before": list(compared.only_before), "only_after": list(compared.only_after),
    }  # fmt: skip
