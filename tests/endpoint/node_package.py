"""The official Node client, as it is installed from the package index."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE = "rocketmq-client-nodejs@1.0.8"
INSTALL_S = 120


def installed(folder: Path) -> str:
    """Install the client into this folder, once, whichever processes ask; the reason why it cannot be had, or ""."""
    if not (shutil.which("node") and shutil.which("npm")):
        return "there is no node or no npm"
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / "installed"
    with _alone(folder / "lock"):
        if not told.exists():
            (folder / "package.json").write_text("{}")
            told.write_text(_install(folder))
    failed = told.read_text()
    return f"{PACKAGE} cannot be installed: {failed}" if failed else ""


def _install(folder: Path) -> str:
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        return f"it took more than {INSTALL_S} s"
    return done.stderr[-500:] if done.returncode else ""


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
