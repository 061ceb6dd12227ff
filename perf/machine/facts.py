"""The machine and the versions of a run, for its report; and how busy others kept the machine meanwhile."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil

from .checkouts import HERE
from .folders import human_bytes
from .usage import file_system_of

CPU_INFO, BLOCK_DEVICES = Path("/proc/cpuinfo"), Path("/sys/dev/block")
PACKAGES = ("stratalog", "numpy", "xxhash", "pyroaring", "hdrhistogram")
SECTOR_BYTES = 512
GIT_S = 5.0
MAX_WORDS = 80
LEAST_S = 1.0  # of a look at the CPUs: a shorter one says nothing


def facts(folder: Path) -> dict[str, str]:
    """The machine in words, with the disk of `folder`; what the system does not tell is left out or "unknown"."""
    versions = [f"{name} {found}" for name in PACKAGES if (found := _version(name)) is not None]
    memory = psutil.virtual_memory()
    disk = shutil.disk_usage(folder)
    return {
        "CPU": f"{cpu_model()}, {len(psutil.Process().cpu_affinity() or [1])} CPUs for this process",
        "memory": f"{human_bytes(memory.total)}, {human_bytes(memory.available)} available at the start",
        "disk": f"{device_model(folder)}; {file_system_of(folder)}, {human_bytes(disk.total)}, "
        f"{human_bytes(disk.free)} free",
        "system": f"{platform.system()} {platform.release()} on {platform.machine()}",
        "interpreter": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": ", ".join(versions),
        "commit": commit() or "none: an installed package",
    }


def cpu_model() -> str:
    """The processor's name."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:  # a system without this file
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return _words(next(named, "") or platform.processor() or "unknown processor")


def device_model(folder: Path) -> str:
    """The block device below a folder, in words: its name, model, kind and blocks; "no block device" for a tmpfs."""
    number = folder.stat().st_dev
    found = BLOCK_DEVICES / f"{os.major(number)}:{os.minor(number)}"
    if not found.exists():
        return "no block device"
    whole = found.resolve()
    if (whole / "partition").exists():
        whole = whole.parent
    turning = {"0": "does not turn", "1": "turns"}.get(_text(whole / "queue" / "rotational"), "")
    blocks = _text(whole / "queue" / "logical_block_size")
    size = _text(whole / "size")
    parts = [
        f"/dev/{whole.name}",
        _text(whole / "device" / "model"),
        human_bytes(int(size) * SECTOR_BYTES) if size.isdigit() else "",
        turning,
        f"blocks of {blocks} B" if blocks else "",
    ]
    return _words(", ".join(part for part in parts if part))


def commit() -> str | None:
    """The commit of the checkout that the code runs from, "changed" if files differ from it; None elsewhere."""
    if not (HERE / ".git").exists():
        return None
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    return f"{head}, changed" if _git("status", "--porcelain", "--untracked-files=no") else head


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(HERE), *words], capture_output=True, text=True, check=False, timeout=GIT_S
        )
    except (OSError, subprocess.TimeoutExpired):  # no git here, or one that hangs: a report goes without a commit
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # an extra that is not installed has no version to tell
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # what the system does not tell is left out
        return ""


def _words(text: str) -> str:
    return " ".join(text.split())[:MAX_WORDS]


class Others:
    """How busy others keep the CPUs from now on: the processes of this machine but this one and its ended children."""

    def __init__(self) -> None:
        self._began = self._seconds()

    @staticmethod
    def _seconds() -> tuple[float, float, float]:
        """Seconds of all CPUs so far: all of them, those that were busy, and those of this process."""
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # A guest's time is in `user` as well.
        whole = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        own = sum(os.times()[:4])
        return whole, whole - idle, own

    def share(self) -> float:
        """The part of the CPUs' time that others used, 0 to 1; 0 where less than a second was looked at."""
        whole, busy, own = (now - then for now, then in zip(self._seconds(), self._began, strict=True))
        return min(1.0, max(0.0, busy - own) / whole) if whole >= LEAST_S * (os.cpu_count() or 1) else 0.0

    def told(self) -> str:
        """The share in words, with the load of the last minute."""
        return f"others used {100 * self.share():.0f} % of all CPUs; load {os.getloadavg()[0]:.1f} in the last minute"
