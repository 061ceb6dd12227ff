"""The commands of `python -m perf NAME` and `stratalog bench NAME`: one for each experiment."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from ..experiments.alignment import Alignment
from ..experiments.apis import Apis
from ..experiments.batch import Batch
from ..experiments.cache import Cache
from ..experiments.columns import Columns
from ..experiments.connections import Connections
from ..experiments.delayed import Delayed
from ..experiments.endpoint import Endpoint
from ..experiments.everything import All
from ..experiments.experiment import Experiment
from ..experiments.growth import Growth
from ..experiments.host import Host
from ..experiments.hotcold import HotCold
from ..experiments.lanes import Lanes
from ..experiments.latency import Latency
from ..experiments.memory import Memory
from ..experiments.prewrite import Prewrite
from ..experiments.purgatory import Purgatory
from ..experiments.readers import Readers
from ..experiments.reads import Reads
from ..experiments.recovery import Recovery
from ..experiments.remote import Remote
from ..experiments.reported import Reported
from ..experiments.spark_reads import SparkReads
from ..experiments.spark_scale import SparkScale
from ..experiments.spark_writes import SparkWrites
from ..experiments.subscriptions import Subscriptions
from ..experiments.tail_catchup import TailCatchup
from ..experiments.timers import TimerRates
from ..experiments.transactions import Transactions
from ..experiments.turns import Turns
from ..experiments.waits import Waits
from ..machine.folders import run_folder
from ..machine.usage import describe
from ..references.device import write_call
from ..report.figures import console, messages_console, write_json
from ..report.progress import Run
from .compared import compare_command
from .end import WRONG
from .json_option import JsonGroup
from .options import asked, made, parameters

EXPERIMENTS: tuple[type[Experiment], ...] = (
    Host, Latency, All, HotCold, Apis, Alignment, Prewrite, Lanes, Recovery, Batch, Columns, Reads, Memory, Cache,
    TailCatchup, Readers, Waits, Purgatory, TimerRates, Delayed, SparkReads, SparkScale, SparkWrites,
    Subscriptions, Transactions, Growth, Turns, Connections, Endpoint, Remote,
)  # fmt: skip


class Commands(JsonGroup):
    """The commands: `compare` takes two files, neither of them that of `--json`."""

    without_file = frozenset({"compare"})


app = typer.Typer(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measurements. Each makes a fresh folder in --dir and removes it at the end.",
    no_args_is_help=True,
    add_completion=False,
)


def how(experiment: Experiment, command: str, base: Path, run: Run) -> str:
    """The method of a measurement, in a line."""
    repeat = getattr(experiment, "repeat", 1) if run.rounds is None else run.rounds
    rounds = f"medians of {repeat} rounds by turns" if repeat > 1 else "one round"
    return (
        f"measured by `{command}`: {rounds}; {experiment.METHOD}; forced writes by {write_call(base)}; "
        f"{describe(base)}; {datetime.now(UTC):%Y-%m-%d}"
    )


def measure(experiment: Experiment, command: str, where: Path | None, json: Path | None) -> None:
    """Run it in a fresh folder; show the tables, how it was measured and the verdict; write the JSON."""
    run = Run(experiment.NAME, messages_console())
    with run_folder(where, experiment.need_bytes()) as base:
        measured = experiment.measure(base, run)
        told = how(experiment, command, base, run)
    figures = {**measured, "checked_messages": run.checked_messages, "how": told}
    if not isinstance(experiment, Reported):
        figures = {"config": dataclasses.asdict(experiment), "seed": experiment.seed, **figures}
    right, verdict = experiment.verdict(figures)
    out = None if str(json) == "-" else console()
    if out is not None:
        experiment.show(figures, out)
    write_json(json, figures)
    kept = experiment.keep(figures)
    if out is not None:
        out.print(told, highlight=False)
        for path in kept:
            out.print(f"written: {path}", highlight=False, soft_wrap=True)
        out.print(verdict, style="green" if right else "bold red", highlight=False)
    if not right:
        raise typer.Exit(WRONG)


def command_of(experiment: type[Experiment]) -> Callable[..., None]:
    """The function that typer calls: its signature is made from the experiment's fields."""

    def command(*, context: typer.Context, where: Path | None, json: Path | None, short: bool, **given: Any) -> None:
        typed = asked(experiment, given, context.command_path, where, short=short)
        measure(made(experiment, given, short=short), typed, where, json)

    context_of = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    listed = [context_of, *parameters(experiment)]
    command.__doc__ = experiment.__doc__
    command.__annotations__ = {one.name: one.annotation for one in listed}
    command.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]  # for typer; mypy does not know it
    return command


for _experiment in EXPERIMENTS:
    app.command(_experiment.NAME)(command_of(_experiment))
app.command("compare")(compare_command)
