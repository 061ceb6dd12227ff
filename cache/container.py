"""The memory for this process: the machine's free memory, or the limit of its container if that is less."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

SYSTEM_ROOT = Path("/")
UNTOLD_PART = 2  # half of the memory that there is, where the kernel does not say how much is available
UNLIMITED_BYTES = 1 << 60  # version 1 says "no limit" with a huge number


def available_bytes(root: Path = SYSTEM_ROOT, machine: Callable[[], int] | None = None) -> int:
    """The bytes that this process can still take without harm to itself or others.

    The least of the machine's available bytes (those of the kernel, unless `machine` gives them) and, for each control
    group above this process, version 1 or 2, the rest of its limit. Pages of files that a group can give back at once
    count as free, as in the kernel's number for the machine. `root` is the folder of the system's files, for tests.
    """
    least = machine() if machine is not None else _of_the_machine(root)
    for limit, used, reclaimable in _groups(root):
        if limit < UNLIMITED_BYTES:
            least = min(least, max(limit - max(used - reclaimable, 0), 0))
    return least


def _of_the_machine(root: Path) -> int:
    """The kernel's MemAvailable. A container's own meminfo may say more than there is in all: then what is free."""
    fields = {line.partition(":")[0]: line.split() for line in _text(root / "proc/meminfo").splitlines()}
    available, total, free = (
        int(fields[name][1]) << 10 if name in fields else None for name in ("MemAvailable", "MemTotal", "MemFree")
    )
    if available is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // UNTOLD_PART
    return available if total is None or free is None or available <= total else free


def _groups(root: Path) -> Iterator[tuple[int, int, int]]:
    """(limit, used, reclaimable) of each memory control group that holds this process and has a limit."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, names, key = root / "sys/fs/cgroup", ("memory.max", "memory.current"), "inactive_file"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names, key = ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_inactive_file"
        else:
            continue
        for folder in _upwards(base, path):
            limit, used = (_text(folder / name).strip() for name in names)
            if limit.isdigit():  # "max" is no limit
                yield int(limit), int(used) if used.isdigit() else 0, _field(folder / "memory.stat", key)


def _upwards(base: Path, path: str) -> Iterator[Path]:
    """The group's folder and all above it. In a container the path may be the host's: then only `base` exists."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for count in range(len(parts), -1, -1):
        yield base.joinpath(*parts[:count])


def _field(path: Path, key: str) -> int:
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.strip().isdigit():
            return int(value)
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
