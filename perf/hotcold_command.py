"""The command `hotcold`: options in; tables, JSON and exit code out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from perf import options as opts
from perf import report, served
from perf.hotcold import COUNT_NAMES, PHASE_1_PART, Options, clean, run
from perf.options import Json, Repeat, Seed, Short, Where
from perf.phases import Api, Drive
from perf.producers import BATCH_MESSAGES, WINDOW_BYTES, WINDOW_MESSAGES
from perf.report import Figures
from perf.tiers import BLOCK_BYTES, SHARED_MEMORY, Memory
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
    "thread_floor_all_cpus_messages_per_s",
    "thread_floor_all_cpus_ratio",
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
    show_memory(figures, console)
    if "raw_device_ratio" in figures:
        compared = {name: figures[name] for name in REFERENCE_NAMES if figures[name] is not None}
        console.print(report.pairs("references of this run", compared))
    style = "green" if clean(figures) else "bold red"
    console.print("  ".join(f"{name} {figures[name]}" for name in COUNT_NAMES), style=style, highlight=False)


def show_memory(figures: Figures, console: Console) -> None:
    """Who served the reads, and what the message cache held, if there is one."""
    ring = report.human_bytes(figures["stats"]["recent_bytes"])
    console.print(report.table(f"reads of phase 2, by layer (ring: {ring})", served.rows(figures["served"])))
    console.print(report.pairs("below the ring", served.device_pairs(figures["served"])))
    if held := figures["cache_after_phase1"]:
        tiers = [{"tier": name, **tier} for name, tier in held["tiers"].items()]
        console.print(report.table("tiers after phase 1", tiers))
        whole = {name: value for name, value in held.items() if name != "tiers"}
        console.print(report.pairs("message cache after phase 1", whole))


def memory_option(
    size_bytes: int, memory: Memory, dram: str | None, pmem: str | None, *, contest: bool, expected: bool
) -> Memory:
    """The tiers that a command's options ask for; the contest's first, so that single sizes can be changed."""
    if contest:
        memory = memory.as_in_the_contest(size_bytes)
    if dram is not None:
        memory = memory.with_dram(opts.bytes_option(dram, 0))
    if pmem is not None:
        memory = replace(memory, persistent_bytes=opts.bytes_option(pmem, 0))
    return replace(memory, expected_bytes=int(size_bytes * PHASE_1_PART)) if expected or contest else memory


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
    contest_memory: Annotated[
        bool, typer.Option("--contest-memory", help="DRAM 5.6 % of the data, persistent memory 49 %")
    ] = False,
    dram: Annotated[str | None, typer.Option(help="bytes of the message cache's DRAM tiers")] = None,
    pmem: Annotated[str | None, typer.Option(help="bytes of its persistent memory tier")] = None,
    pmem_dir: Annotated[Path, typer.Option(help="where that tier's file is")] = SHARED_MEMORY,
    edge: Annotated[str | None, typer.Option(help="bytes for edges of messages on the device")] = None,
    block: Annotated[str | None, typer.Option(help="bytes a block of the message cache (32KiB)")] = None,
    expected: Annotated[bool, typer.Option("--expected", help="admission computed from phase 1")] = False,
    release: Annotated[bool, typer.Option("--release", help="release what was read")] = False,
    recent: Annotated[str | None, typer.Option(help="bytes of the ring of recent frames")] = None,
    read_cache: Annotated[str | None, typer.Option(help="bytes of the read cache")] = None,
    memory_limit: Annotated[str | None, typer.Option(help="bytes that the store plans with")] = None,
    short: Short = False,
) -> None:
    """The contest's hot/cold workload, every message checked; exit code 1 when anything is amiss."""
    drive = Drive(api, opts.bytes_option(window, WINDOW_BYTES), WINDOW_MESSAGES, batch_messages, readers)
    given = {"lanes": lanes, "alignment": alignment, "durability": durability}
    size_bytes = opts.bytes_option(size, opts.either(short, 8 << 20, 1 << 30))
    memory = Memory(
        persistent_folder=pmem_dir,
        edge_bytes=opts.bytes_option(edge, 0),
        block_bytes=opts.bytes_option(block, BLOCK_BYTES),
        recent_bytes=opts.maybe_bytes(recent),
        read_cache_bytes=opts.maybe_bytes(read_cache),
        limit_bytes=opts.maybe_bytes(memory_limit),
        release_on_read=release,
    )
    chosen = Options(
        size_bytes=size_bytes,
        threads=min(threads, 8) if short else threads,
        sizes=opts.sizes_option(sizes),
        drive=drive,
        seed=seed,
        topics=min(opts.either(short, 10, CONTEST_TOPICS), queues or CONTEST_QUEUES),
        queues=queues or opts.either(short, opts.SHORT_QUEUES, CONTEST_QUEUES),
        prewrite=prewrite,
        cpus=(cpus if cpus is not None else int(api == "blocking")) or None,
        reference_s=0.1 if short else 1.5,
        reference_file_bytes=opts.either(short, 16, 256) << 20,
        memory=memory_option(size_bytes, memory, dram, pmem, contest=contest_memory, expected=expected),
        settings={name: value for name, value in given.items() if value is not None},
    )
    figures = run(chosen, where, report.messages_console(), repeat or 1, reference)
    opts.finish(figures, json, show)
    if not clean(figures):
        raise typer.Exit(1)
