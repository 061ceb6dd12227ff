"""`stratalog top`: what a store that another process has open does now, a frame a second."""

from __future__ import annotations

import asyncio
import json as json_module
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.live import Live

from ..perf.commands.options import Json
from ..perf.report import figures as report
from ..store import FolderWatch, watch_folder
from .changes import Folder
from .ends import console, told
from .frames import frames
from .serve import output_of
from .top_page import TopPage
from .top_screen import screen_of

PORT = 8082


def top_command(
    folder: Folder,
    once: Annotated[bool, typer.Option("--once", help="print one frame, of about a second, and end")] = False,
    web: Annotated[bool, typer.Option("--web", help="serve a page for a browser on this machine")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="of that page; 0: any free one")] = PORT,
    json: Json = None,
) -> None:
    """Show what a store does that another process has open: rates, times, backlogs, memory. It changes no message.

    A frame comes about once a second, until Ctrl-C. That process tells its figures as long as somebody watches.
    """
    if web and (once or json is not None):
        raise typer.BadParameter("--web serves a page; give it without --once and --json")
    with told():
        if web:
            asyncio.run(TopPage(folder, port).run(lambda address: typer.echo(f"ready http://{address}/")))
            return
        with watch_folder(folder) as watch:
            if once:
                frame = next(frames(watch))
                if str(json) != "-":
                    console().print(screen_of(frame, None))
                report.write_json(json, frame)
            elif json is not None:
                with output_of(json) as out:
                    for frame in frames(watch):
                        out.write(f"{json_module.dumps(frame)}\n")
                        out.flush()
            else:
                _show(watch)


def _show(watch: FolderWatch) -> None:
    """Show frames on the terminal until Ctrl-C; where there is none, one after another."""
    shown = console()
    with _live(shown.is_terminal) as live:
        for frame in frames(watch):
            if live is None:
                shown.print(screen_of(frame, None))
            else:
                live.update(screen_of(frame, shown.height), refresh=True)


@contextmanager
def _live(is_terminal: bool) -> Iterator[Live | None]:
    if not is_terminal:
        yield None
        return
    with Live(console=console(), auto_refresh=False, screen=True) as live:
        yield live
