"""The resources that the process used, and the machine in a few words."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROCESS_IO = Path("/proc/self/io")
MOUNTS = Path("/proc/self/mounts")


def cpu_seconds() -> float:
    """User and system seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Turns(NamedTuple):
    """The processor time of a process's threads so far, in ns: `ran`, and `waited` while they could run.

    Ended threads do not count.
    """

    ran: int
    waited: int


def turns_of(pid: int) -> Turns | None:
    """The turns of a process; None if the kernel does not tell."""
    ran = waited = 0
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            times = (thread / "schedstat").read_text().split()
            ran, waited = ran + int(times[0]), waited + int(times[1])
    except OSError:
        return None
    return Turns(ran, waited)


def ran_by_thread() -> dict[int, int]:
    """The processor time of each thread of this process so far, in ns, by its number of the system; {} if the kernel
    does not tell."""
    found = {}
    with suppress(OSError):  # a thread that ends meanwhile has no file any more
        for thread in Path("/proc/self/task").iterdir():
            found[int(thread.name)] = int((thread / "schedstat").read_text().split()[0])
    return found


def peak_rss_mb() -> float:
    """The process's peak resident memory in MB (10^6 bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def resident_bytes() -> int:
    """The process's resident memory now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def give_back_free_memory() -> None:
    """Let the C library give unused pages back to the system, so that resident memory is memory in use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def device_bytes(what: str) -> int | None:
    """Bytes that the kernel has moved between devices and this process: "read_bytes" or "write_bytes".

    None if the kernel does not tell.
    """
    try:
        lines = PROCESS_IO.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{what}:")), None)


def moved_mb(before: int | None, after: int | None) -> float | None:
    """MB between two answers of `device_bytes`; None if one is missing."""
    return None if before is None or after is None else (after - before) / 1e6


def file_system_of(folder: Path) -> str:
    """The type of the file system that a folder is on ("ext4")."""
    best, found = -1, "unknown file system"
    try:
        lines = MOUNTS.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, mounted, kind, *_ = line.split()
        if folder.resolve().is_relative_to(mounted) and len(mounted) > best:
            best, found = len(mounted), kind
    return found


def describe(folder: Path) -> str:
    """The machine in one line: CPUs, interpreter, kernel, file system of the run."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    interpreter = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{cpus} CPUs, {interpreter}, {platform.system()} {platform.release()}, {file_system_of(folder)}"
