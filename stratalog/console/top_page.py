"""`stratalog top --web`: the frames as a page for a browser on this machine."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from ..perf.report.figures import Figures
from ..store import StoreUnusable, watch_folder
from .frames import frames
from .web import Page, WebServer, serving

HTML = Path(__file__).with_name("top.html")
AGAIN_S = 0.5  # after the store's process has ended: another one may come
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class TopPage:
    """Watches a store and serves its newest frame, until a signal comes; a thread watches, the event loop serves."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._frame: Figures | None = None
        self._why: str | None = None
        self._ended = threading.Event()
        pages = {"/": self._html, "/frame.json": self._json}
        self._server = WebServer(pages, "127.0.0.1", port, local_names=True)

    async def run(self, ready: Callable[[str], object]) -> None:
        """Returns after a signal; `ready` gets the address. Raises StoreUnusable, OSError: it cannot begin."""
        with watch_folder(self._folder):
            pass  # nobody has it open: an error now, not on the page
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        for one in SIGNALS:
            loop.add_signal_handler(one, over.set)
        async with serving(self._server):
            watching = threading.Thread(target=self._watch, name="stratalog-watching", daemon=True)
            watching.start()
            ready(self._server.address)
            await over.wait()
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.is_set():
            try:
                with watch_folder(self._folder) as watch:
                    for frame in frames(watch):
                        self._frame, self._why = frame, None
                        if self._ended.is_set():
                            return
            except StoreUnusable as error:
                self._why = str(error)
            except Exception as error:  # the page says so, and it tries again
                self._why = f"{type(error).__name__}: {error}"
            self._ended.wait(AGAIN_S)

    def _html(self) -> Page:
        return Page("text/html; charset=utf-8", HTML.read_bytes())

    def _json(self) -> Page:
        """The newest frame, or why there is none."""
        frame, why = self._frame, self._why
        told = {"why": why or "waiting for the first figures"} if frame is None or why is not None else frame
        return Page("application/json", json.dumps(told).encode())
