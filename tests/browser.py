"""A page in headless Chromium, if there is one: what it says on its console, and what it looks like."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 60
DESKTOP, PHONE = (1280, 900), (390, 844)
CONSOLE = re.compile(r":CONSOLE[:(].*")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


# The browser has no window as narrow as a phone's, so each page is shown in a frame of its width.
FRAME = """<!doctype html><meta charset="utf-8"><title>frame</title><style>body {{ margin: 0 }}</style>
<iframe src="{url}" style="border: 0; width: {width}px; height: {height}px; display: block"></iframe>
<script>addEventListener("message", (told) => document.body.dataset.told = JSON.stringify(told.data));</script>
"""


@dataclass(frozen=True)
class Shown:
    """A page after its scripts have run."""

    told: Any  # what the page posted to its parent: `parent.postMessage(.., "*")`; None if nothing
    console: list[str]  # what its scripts and the browser complain about


def browser() -> str:
    """The browser's program. Skips the test if there is none."""
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return found
    pytest.skip("no Chromium is installed")


def shown(url: str, home: Path, size: tuple[int, int] = DESKTOP) -> Shown:
    """Load a page in a frame of so many pixels. `home` is a folder for the browser's own files."""
    options = ("--dump-dom", "--virtual-time-budget=3000", "--enable-logging=stderr", "--log-level=0")
    done = _run(_framed(url, home, size), home, size, *options)
    told = re.search(r'data-told="([^"]*)"', done.stdout)
    complaints = [line for line in done.stderr.splitlines() if CONSOLE.search(line)]
    return Shown(None if told is None else json.loads(unescape(told[1])), complaints)


def picture(url: str, home: Path, size: tuple[int, int], to: Path) -> None:
    """Write a screenshot of a page as PNG."""
    _run(_framed(url, home, size), home, size, f"--screenshot={to}", "--virtual-time-budget=3000")


def printed(url: str, home: Path, to: Path) -> None:
    """Print a page to a PDF."""
    _run(url, home, DESKTOP, f"--print-to-pdf={to}", "--virtual-time-budget=3000")


def _framed(url: str, home: Path, size: tuple[int, int]) -> str:
    home.mkdir(exist_ok=True)
    frame = home / "frame.html"
    frame.write_text(FRAME.format(url=url, width=size[0], height=size[1]))
    return frame.as_uri()


def _run(url: str, home: Path, size: tuple[int, int], *options: str) -> subprocess.CompletedProcess[str]:
    window = f"--window-size={size[0]},{size[1]}"
    command = [browser(), *QUIET, f"--user-data-dir={home}", window, *options, url]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return done
