"""The command `hotcold`: options in; tables, JSON and exit code out."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console

from perf import options as opts
from perf import report
from perf.hotcold import COUNT_NAMES, Options, clean, run
from perf.options import Json, Repeat, Seed, Short, Where
from perf.phases import Api, Drive
from perf.producers import BATCH_MESSAGES, WINDOW_BYTES, WINDOW_MESSAGES
from perf.report import Figures
from perf.workload import CONTEST_QUEUES, CONTEST_TOPICS

Alignment = Literal["pad", "trim", "adaptive"]
Durability = Literal["force", "os"]
RUN_NAMES = (
    "total_s",
    "prewrite_s",
    "write_amplification",
    "prewritten_mb",
    "forces",
    "mean_batch",
    "mean_write_bytes",
    "cpu_s",
    "peak_rss_mb",
)
REFERENCE_NAMES = (
    "raw_device_mb_per_s",
    "raw_device_ratio",
    "thread_floor_messages_per_s",
    "thread_floor_ratio",
    "thread_floor_bare_messages_per_s",
    "thread_floor_bare_ratio",
)


def _row(name: str, seconds: float, part: Figures) -> Figures:
    """A line of the first table: a phase, or phase 2's reads (which have no latencies)."""
    latency = part.get("latency_us", {})
    return {
        "phase": name,
        "s": seconds,
        "messages": part["messages"],
        "msg/s": part["messages_per_s"],
        "MB/s": part["mb_per_s"],
        "p50 us": latency.get("p50"),
        "p99 us": latency.get("p99"),
        "p99.9 us": latency.get("p999"),
    }


def show(figures: Figures, console: Console) -> None:
    """The tables of a run."""
    config, second_s = figures["config"], figures["phase2"]["seconds"]
    rows = [_row(name, figures[name]["seconds"], figures[name]) for name in ("phase1", "phase2")]
    rows.append(_row("reads in 2", second_s, figures["reads"]))
    size = report.human_bytes(config["size_bytes"])
    title = f"hot/cold, {size}, {config['drive']['api']}, {config['threads']} producers"
    console.print(report.table(title, rows))
    whole = {name: figures[name] for name in RUN_NAMES}
    console.print(report.pairs("whole run", {**whole, "device_read_mb": figures["reads"]["device_mb"]}))
    if "raw_device_ratio" in figures:
        compared = {name: figures[name] for name in REFERENCE_NAMES}
        console.print(report.pairs("references of this run", compared))
    style = "green" if clean(figures) else "bold red"
    console.print("  ".join(f"{name} {figures[name]}" for name in COUNT_NAMES), style=style, highlight=False)


def command(
    *,
    size: Annotated[str | None, typer.Option(help="payload of both phases, as 300MB (default 1GiB)")] = None,
    threads: Annotated[int, typer.Option(min=1, help="producers: threads, or tasks with --api asyncio")] = 40,
    api: Annotated[Api, typer.Option(help="how to append")] = "blocking",
    where: Where = None,
    json: Json = None,
    seed: Seed = 2021,
    lanes: Annotated[int | None, typer.Option(min=1, help="append lanes")] = None,
    alignment: Annotated[Alignment | None, typer.Option(help="of writes to blocks")] = None,
    durability: Annotated[Durability | None, typer.Option(help="what an answer means")] = None,
    sizes: Annotated[str, typer.Option(help='"contest", "small" (100 to 1,000 B) or one size')] = "contest",
    queues: Annotated[int | None, typer.Option(min=1, help="default 20,000")] = None,
    batch_messages: Annotated[int, typer.Option(min=1, help="messages a call, --api batch")] = BATCH_MESSAGES,
    window: Annotated[str | None, typer.Option(help="bytes outstanding, --api pipelined (8MiB)")] = None,
    readers: Annotated[int, typer.Option(min=1, help="reading threads, all but --api blocking")] = 1,
    cpus: Annotated[
        int | None, typer.Option(min=0, help="run on so many CPUs; 0: all (blocking: 1, else all)")
    ] = None,
    repeat: Repeat = 1,
    reference: Annotated[bool, typer.Option(help="measure the device and the floor too")] = True,
    prewrite: Annotated[bool, typer.Option(help="segments stand ready before the clock starts")] = True,
    short: Short = False,
) -> None:
    """The contest's hot/cold workload, every message checked; exit code 1 when anything is amiss."""
    drive = Drive(api, opts.bytes_option(window, WINDOW_BYTES), WINDOW_MESSAGES, batch_messages, readers)
    given = {"lanes": lanes, "alignment": alignment, "durability": durability}
    chosen = Options(
        size_bytes=opts.bytes_option(size, opts.either(short, 8 << 20, 1 << 30)),
        threads=min(threads, 8) if short else threads,
        sizes=opts.sizes_option(sizes),
        drive=drive,
        seed=seed,
        topics=opts.either(short, 10, CONTEST_TOPICS),
        queues=queues or opts.either(short, opts.SHORT_QUEUES, CONTEST_QUEUES),
        prewrite=prewrite,
        cpus=(cpus if cpus is not None else int(api == "blocking")) or None,
        reference_s=0.1 if short else 1.5,
        reference_file_bytes=opts.either(short, 16, 256) << 20,
        settings={name: value for name, value in given.items() if value is not None},
    )
    figures = run(chosen, where, Console(stderr=True), repeat or 1, reference)
    opts.finish(figures, json, show)
    if not clean(figures):
        raise typer.Exit(1)
