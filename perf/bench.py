"""The commands of `python -m perf NAME` and `stratalog bench NAME`."""

from __future__ import annotations

import random
from typing import Annotated

import typer

from perf import (
    alignment,
    batch,
    cache_command,
    hotcold_command,
    lanes,
    memory,
    prewrite,
    reads,
    recovery,
    soak,
    tail_catchup,
)
from perf.catchup import Load
from perf.folders import run_folder
from perf.options import (
    SHORT_QUEUES,
    WRONG,
    Json,
    Repeat,
    Seed,
    Short,
    Where,
    bytes_option,
    either,
    finish,
)
from perf.progress import Parts
from perf.report import messages_console
from perf.settings import space_bytes
from perf.workload import CONTEST_QUEUES

app = typer.Typer(
    help="Measurements. Each runs in a fresh folder below --dir, which is removed at the end.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("hotcold")(hotcold_command.command)
app.command("cache")(cache_command.command)


def _queues(short: bool) -> int:
    return either(short, SHORT_QUEUES, CONTEST_QUEUES)


@app.command("alignment")
def alignment_command(
    *,
    seconds: Annotated[float, typer.Option(help="about so long a cell")] = 1.5,
    where: Where = None,
    json: Json = None,
    seed: Seed = 2021,
    repeat: Repeat = None,
    short: Short = False,
) -> None:
    """pad / trim / adaptive at 1 to 200 producers, contest sizes and small messages."""
    with run_folder(where) as base:
        figures = alignment.run(
            base,
            seconds=0.05 if short else seconds,
            repeat=repeat or either(short, 1, 3),
            producers=(1, 4) if short else alignment.PRODUCERS,
            seed=seed,
            queues=_queues(short),
            parts=Parts("alignment"),
        )
    finish(figures, json, alignment.show)


@app.command("prewrite")
def prewrite_command(
    *,
    size: Annotated[str | None, typer.Option(help="bytes a row (512MiB)")] = None,
    threads: Annotated[int, typer.Option(min=1)] = 40,
    where: Where = None,
    json: Json = None,
    seed: Seed = 2021,
    repeat: Repeat = None,
    short: Short = False,
) -> None:
    """Pre-written against new files: the device alone and the store."""
    size_bytes = bytes_option(size, either(short, 4 << 20, 512 << 20))
    with run_folder(where, space_bytes(size_bytes)) as base:
        figures = prewrite.run(
            base,
            size_bytes=size_bytes,
            threads=min(threads, 4) if short else threads,
            seconds=0.05 if short else 1.5,
            repeat=repeat or either(short, 1, 3),
            seed=seed,
            queues=_queues(short),
            parts=Parts("prewrite"),
        )
    finish(figures, json, prewrite.show)


@app.command("lanes")
def lanes_command(
    *,
    size: Annotated[str | None, typer.Option(help="at most so many bytes a row (1GiB)")] = None,
    threads: Annotated[int, typer.Option(min=1)] = 40,
    where: Where = None,
    json: Json = None,
    seed: Seed = 2021,
    repeat: Repeat = None,
    short: Short = False,
) -> None:
    """1, 2 and 4 append lanes, beside the raw device with as many writers."""
    size_bytes = bytes_option(size, either(short, 4 << 20, 1 << 30))
    with run_folder(where, space_bytes(size_bytes)) as base:
        figures = lanes.run(
            base,
            size_bytes=size_bytes,
            threads=min(threads, 4) if short else threads,
            seconds=0.05 if short else 2.0,
            repeat=repeat or either(short, 1, 3),
            seed=seed,
            queues=_queues(short),
            parts=Parts("lanes"),
        )
    finish(figures, json, lanes.show)


@app.command("recovery")
def recovery_command(
    *,
    unsealed: Annotated[str | None, typer.Option(help="largest unsealed log (1GiB)")] = None,
    size: Annotated[str | None, typer.Option(help="largest closed store (4GiB)")] = None,
    where: Where = None,
    json: Json = None,
    seed: Seed = 2021,
    repeat: Repeat = None,
    short: Short = False,
) -> None:
    """Opening time against unsealed bytes and against the store's size, cold page cache."""
    top = bytes_option(unsealed, either(short, 4 << 20, 1 << 30))
    whole = bytes_option(size, either(short, 8 << 20, 4 << 30))
    with run_folder(where, space_bytes(max(top, whole))) as base:
        figures = recovery.run(
            base,
            unsealed_bytes=[top] if short else [top // 16, top // 4, top],
            store_bytes=[whole // 4, whole // 2, whole],
            repeat=repeat or either(short, 1, 3),
            seed=seed,
            queues=_queues(short),
            parts=Parts("recovery"),
        )
    finish(figures, json, recovery.show)


@app.command("batch")
def batch_command(
    *,
    messages: Annotated[int | None, typer.Option(min=1, help="a round (1,000,000)")] = None,
    size: Annotated[int, typer.Option(min=16, help="bytes a message")] = 100,
    batch_messages: Annotated[int, typer.Option(min=1, help="messages a call")] = 1000,
    queues: Annotated[int, typer.Option(min=1)] = 1000,
    where: Where = None,
    json: Json = None,
    seed: Seed = 2021,
    repeat: Repeat = None,
    short: Short = False,
) -> None:
    """append_batch and submit of small messages, beside RocksDB's forced write batches."""
    messages = messages or either(short, 5_000, 1_000_000)
    with run_folder(where, space_bytes(messages * size)) as base:
        figures = batch.run(
            base,
            messages=messages,
            size_bytes=size,
            batch_messages=batch_messages,
            queues=queues,
            repeat=repeat or either(short, 1, 3),
            seed=seed,
            parts=Parts("batch"),
        )
    finish(figures, json, batch.show)


@app.command("reads")
def reads_command(
    *,
    size: Annotated[str | None, typer.Option(help="the cold store's payload (1GiB)")] = None,
    where: Where = None,
    json: Json = None,
    seed: Seed = 2021,
    repeat: Repeat = None,
    short: Short = False,
) -> None:
    """Reads right after the write, in columns and from a cold page cache, beside LMDB and the raw device."""
    cold_bytes = bytes_option(size, either(short, 4 << 20, 1 << 30))
    with run_folder(where, space_bytes(cold_bytes)) as base:
        figures = reads.run(
            base,
            tail_bytes=either(short, 2, 256) << 20,
            cold_bytes=cold_bytes,
            queues=_queues(short),
            repeat=repeat or either(short, 1, 3),
            seed=seed,
            parts=Parts("reads"),
        )
    finish(figures, json, reads.show)


@app.command("memory")
def memory_command(
    *,
    messages: Annotated[int | None, typer.Option(min=1, help="default 10,000,000")] = None,
    size: Annotated[int, typer.Option(min=16, help="bytes a message")] = 100,
    where: Where = None,
    json: Json = None,
    seed: Seed = 2021,
    short: Short = False,
) -> None:
    """Metadata a message, on disk and in memory."""
    messages = messages or either(short, 20_000, 10_000_000)
    with run_folder(where, space_bytes(messages * size)) as base:
        figures = memory.run(
            base,
            messages=messages,
            size_bytes=size,
            queues=_queues(short),
            seed=seed,
            parts=Parts("memory"),
        )
    finish(figures, json, memory.show)


@app.command("tail_catchup")
def tail_catchup_command(
    *,
    write: Annotated[int, typer.Option(min=0, help="messages a second; 0: all that goes")] = 33_000,
    read: Annotated[int, typer.Option(min=1, help="messages a second of the catching-up reader")] = 5_000,
    size: Annotated[int, typer.Option(min=16, help="bytes a message")] = 1045,
    queues: Annotated[int, typer.Option(min=1)] = 4,
    backlog: Annotated[str | None, typer.Option(help="bytes written before (1GiB)")] = None,
    seconds: Annotated[float, typer.Option(help="a window")] = 4.0,
    read_cache: Annotated[str | None, typer.Option(help="bytes of the read cache (64MiB)")] = None,
    where: Where = None,
    json: Json = None,
    seed: Seed = 2021,
    repeat: Repeat = None,
    short: Short = False,
) -> None:
    """Tail read and catch-up read: who serves them, and what they cost the writers."""
    load = Load(
        write_per_s=min(write, 3_000) if short else write,
        read_per_s=min(read, 1_000) if short else read,
        message_bytes=size,
        queues=min(queues, 4) if short else queues,
        backlog_bytes=bytes_option(backlog, either(short, 2 << 20, 1 << 30)),
        window_s=0.3 if short else seconds,
        warm_messages=either(short, 100, 2000),
        seed=seed,
        read_cache_bytes=bytes_option(read_cache, either(short, 4, 64) << 20),
    )
    with run_folder(where, space_bytes(load.backlog_bytes)) as base:
        figures = tail_catchup.run(
            base,
            load,
            tail_cache_bytes=either(short, 4, 64) << 20,
            repeat=repeat or either(short, 1, 3),
            parts=Parts("tail_catchup"),
        )
    finish(figures, json, tail_catchup.show)


@app.command("soak")
def soak_command(
    *,
    minutes: Annotated[float, typer.Option(min=0, help="for so long, and at least one life of each kind")] = 10,
    where: Where = None,
    json: Json = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of what is tried (default: a new one, printed)")] = None,
    short: Short = False,
) -> None:
    """Random workload, kills and faults; everything acknowledged is checked after each. Exit code 1 on a violation."""
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    progress = messages_console()
    progress.print(f"seed {seed}", highlight=False)
    with run_folder(where) as base, progress.status("soak") as status:
        tally = soak.run(
            base,
            minutes=0 if short else minutes,
            seed=seed,
            life_s=0.4 if short else 1.5,
            tick=lambda tally: status.update(tally.line()),
        )
    finish(soak.figures_of(tally), json, soak.show)
    if tally.violations:
        raise typer.Exit(WRONG)
