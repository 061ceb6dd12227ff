"""A browser without a window, driven by its debugging pipe: for tests of pages. Without a browser they are skipped."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .store.helpers import PATIENCE_S

NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "chrome")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
           "--disable-background-networking", "--disable-dev-shm-usage", "--remote-debugging-pipe")  # fmt: skip
DESKTOP, PHONE = (1280, 900), (390, 844)
LOADED = "!window.isBefore && location.href !== 'about:blank' && document.readyState === 'complete'"
PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


# The numbers of the charts that have no coloured pixel.
EMPTY_CHARTS = """[...document.querySelectorAll(".chart")].flatMap((place, number) => {
  const one = place.querySelector("canvas");
  if (!one) return [number];
  const pixels = one.getContext("2d").getImageData(0, 0, one.width, one.height).data;
  for (let at = 0; at < pixels.length; at += 4)
    if (pixels[at + 3] > 0 && Math.abs(pixels[at] - pixels[at + 2]) > 60) return [];
  return [number];
})"""
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"


class Tab:
    """One page of a browser.

    Attributes:
        errors: what its console said of errors and warnings, and exceptions that no script took.
        asked: the addresses that it asked for.
    """

    def __init__(self, to: int, of: int) -> None:
        self._to, self._of, self._left, self._number = to, of, b"", 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.asked: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{part}.enable")

    def send(self, method: str, **given: Any) -> dict[str, Any]:
        """The answer to a command."""
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": given}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, (method, told)
                found: dict[str, Any] = told["result"]
                return found
            self._note(told)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            assert select.select([self._of], [], [], PATIENCE_S)[0], "the browser says nothing"
            part = os.read(self._of, 1 << 16)
            assert part, "the browser has ended"
            self._left += part
        one, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(one)
        return found

    def _note(self, told: dict[str, Any]) -> None:
        method, given = told.get("method"), told.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(given["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.errors.append(str(given["args"]))
        elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.errors.append(str(given["entry"]))
        elif method == "Network.requestWillBeSent":
            self.asked.append(given["request"]["url"])

    def load(self, url: str) -> None:
        """Go to a page; returns once its scripts have run and it is painted."""
        self.value("window.isBefore = true")  # the page that is left may be looked at once more
        self.send("Page.navigate", url=url)
        self.until(LOADED)
        self.value(PAINTED)

    def value(self, script: str) -> Any:
        """The value of an expression of the page's; of a promise, what it gives."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, script: str, right: Callable[[Any], bool] = bool) -> Any:
        """The value of an expression once it is right."""
        deadline = time.monotonic() + PATIENCE_S
        while not right(found := self.value(script)):
            assert time.monotonic() < deadline, (script, found)
            time.sleep(0.05)  # so that the browser has the processor
        return found

    def shape(self, width: int, height: int, *, scheme: str = "light", mobile: bool = False) -> None:
        """Set the size of the page, and whether it is light or dark."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        """Write a picture of the whole page, PNG."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def print_to(self, path: Path) -> None:
        """Print the page to a PDF."""
        path.write_bytes(base64.b64decode(self.send("Page.printToPDF")["data"]))


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A browser with one page, whose files are in a folder. Skips the test if there is no browser."""
    name = next((found for found in map(shutil.which, NAMES) if found), None)
    if name is None:
        pytest.skip("no Chromium is installed")
    to_read, to = os.pipe()
    of, of_write = os.pipe()
    # The browser reads its descriptor 3 and writes 4; the shell moves the pipes there.
    script = f'exec "$0" "$@" 3<&{to_read} 4>&{of_write}'
    command = ["bash", "-c", script, name, *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    child = subprocess.Popen(
        command, pass_fds=(to_read, of_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_read)
    os.close(of_write)
    try:
        yield Tab(to, of)
    finally:
        os.close(to)  # it ends with its pipe
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        os.close(of)


def complaints(url: str, folder: Path, size: tuple[int, int] = DESKTOP) -> list[str]:
    """What is wrong with a page in so many pixels: complaints of the browser and of the page's scripts, charts
    without a line, and a page that is wider than the screen.
    """
    with tab(folder) as page:
        page.shape(*size)
        page.load(url)
        deadline = time.monotonic() + PATIENCE_S
        while (empty := page.value(EMPTY_CHARTS)) and not page.errors and time.monotonic() < deadline:
            time.sleep(0.05)  # a chart is drawn soon after the page is there
        wide, room = page.value(WIDTHS)
        found = [f"chart {number} is empty" for number in empty]
        return page.errors + found + [f"{wide} pixels wide, of {room}"] * (wide > min(room, size[0]))
