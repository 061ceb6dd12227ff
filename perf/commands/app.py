"""The commands of `python -m perf NAME` and `stratalog bench NAME`: one for each experiment."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from ..experiments.delayed import Delayed
from ..experiments.endpoint import Endpoint
from ..experiments.everything import All
from ..experiments.growth import Growth
from ..experiments.host import Host
from ..experiments.hotcold import HotCold
from ..experiments.latency import Latency
from ..experiments.memory import Memory
from ..experiments.metrics import Metrics
from ..experiments.peers import Peers
from ..experiments.purgatory import Purgatory
from ..experiments.readers import Readers
from ..experiments.reported import Reported
from ..experiments.spark import Spark
from ..experiments.subscriptions import Subscriptions
from ..experiments.tail_catchup import TailCatchup
from ..experiments.transactions import Transactions
from ..experiments.turns import Turns
from ..machine.folders import run_folder
from ..machine.usage import describe
from ..references.device import write_call
from ..report.figures import console, messages_console, write_json
from ..report.progress import Run
from ..report.terminal import show
from .compared import compare_command
from .end import WRONG
from .json_option import JsonGroup
from .options import asked, made, parameters

EXPERIMENTS: tuple[type[Reported], ...] = (
    Host, Latency, All, Peers, HotCold, Memory, TailCatchup, Readers, Purgatory, Delayed, Spark,
    Subscriptions, Transactions, Growth, Metrics, Turns, Endpoint,
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


def how(experiment: Reported, command: str, base: Path) -> str:
    """The method of a measurement, in a line."""
    repeat = getattr(experiment, "repeat", 1)
    rounds = f"medians of {repeat} rounds by turns" if repeat > 1 else "one round"
    return (
        f"measured by `{command}`: {rounds}; {experiment.METHOD}; forced writes by {write_call(base)}; "
        f"{describe(base)}; {datetime.now(UTC):%Y-%m-%d}"
    )


def measure(experiment: Reported, command: str, where: Path | None, json: Path | None) -> None:
    """Run it in a fresh folder; show the report, how it was measured and the verdict; write the JSON and the files."""
    run = Run(experiment.NAME, messages_console())
    with run_folder(where, experiment.need_bytes()) as base:
        report = experiment.reported(base, run)
        report = dataclasses.replace(report, how=how(experiment, command, base))
    kept = experiment.keep(report)  # before it is shown: who reads the first lines alone, as `head` does, has the files
    write_json(json, report.as_dict())
    if str(json) != "-":
        out = console()
        show(report, out, tables=not experiment.WRITES_HERE)  # hundreds of lines: the answer would scroll away
        out.print(report.how, highlight=False)
        for path in kept:
            out.print(f"written: {path}", highlight=False, soft_wrap=True)
        out.print(report.verdict, style="green" if report.right else "bold red", highlight=False)
    if not report.right:
        raise typer.Exit(WRONG)


def command_of(experiment: type[Reported]) -> Callable[..., None]:
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
