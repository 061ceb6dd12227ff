"""System calls that fail: strace refuses the Nth call of a kind, and the store must end as documented.

`python -m tests.faults.inject` is the long form: every kind of call that changes a file, refused in every way, at
every N that the run reaches. The tests draw a few of these. strace counts the calls of each thread for itself.
"""

from __future__ import annotations

import argparse
import functools
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stratalog.portable import POSIX_ALONE

from ..seeds import draw_seed
from .child import APIS, Order, Told
from .life import Life, check_recovered, live

# By which calls the store writes and forces: Linux's own, or POSIX's where the device has these alone.
WRITE, FORCE = ("pwrite64", "fsync") if POSIX_ALONE else ("pwritev2", "fdatasync")
SHORTEST = "retval=0"  # such a call has done nothing, and says so: the shortest of short writes
WAYS: dict[str, Sequence[str]] = {
    "fsync": ("error=EIO",),
    "fallocate": ("error=ENOSPC", "error=EIO", "error=EOPNOTSUPP"),
    "ftruncate": ("error=EIO", "error=ENOSPC"),
    "rename": ("error=EIO", "error=ENOSPC"),
    "unlink": ("error=EIO",),
    "pwrite64": ("error=EIO",),
    WRITE: ("error=EIO", "error=ENOSPC", SHORTEST),
    FORCE: ("error=EIO", "error=ENOSPC"),
}
if POSIX_ALONE:
    del WAYS["fallocate"]  # nothing makes it
SETTINGS = {"segment_bytes": 64 << 10, "max_message_bytes": 64 << 10, "max_frame_bytes": 64 << 10, "recent_bytes": 0}
SLACK = 1.2  # how many calls there are depends on the machine's speed


class Refusal(NamedTuple):
    """Which call (or calls, with commas) fails, and how; `every` refuses all from the Nth on; `file`: only its."""

    call: str
    way: str
    nth: int
    every: bool = False
    file: Path | None = None

    def arguments(self, log: Path) -> list[str]:
        """The command that runs another one with this fault in it."""
        when = f"{self.nth}{'+' if self.every else ''}"
        only = [] if self.file is None else ["-P", str(self.file)]
        return [*strace(log, self.call.split(",")), *only, "-e", f"inject={self.call}:{self.way}:when={when}", "--"]


def strace(log: Path, calls: Sequence[str]) -> list[str]:
    """strace of these calls, in all threads."""
    quiet = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "signal=none"]
    return [*quiet, "-o", str(log), "-e", f"trace={','.join(calls)}"]


@functools.cache
def why_not() -> str:
    """Why calls cannot be refused here; empty if they can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    command = ["strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "inject=fsync:error=EIO", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"strace cannot trace here: {done.stderr.strip()}" if done.returncode else ""


class Bench:
    """A folder to try refusals in, with a crashed store that half of the lives begin with."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.path = folder / "store"
        self._log = folder / "log"
        self._crashed = folder / "crashed"
        self._crashed_told = live(Order(str(self._crashed), SETTINGS, abandon=True, seed=seed)).told

    def order(self, seed: int) -> Order:
        """What a life does: segments roll and are sealed meanwhile."""
        chance = random.Random(seed)
        lanes = chance.choice((1, 1, 2))
        config = {
            **SETTINGS,
            "durability": chance.choice(("force", "os")),
            "alignment": chance.choice(("pad", "trim", "adaptive")),
            "lanes": None if self.path.exists() else lanes,  # a store keeps its own
            "flush_interval_ms": 20,
        }
        return Order(str(self.path), config, messages=70, api=chance.choice(APIS), seed=seed)

    def begin(self, seed: int) -> list[Told]:
        """The folder as a life finds it, and what was acknowledged in it before."""
        shutil.rmtree(self.path, ignore_errors=True)
        if seed % 2:
            return []
        shutil.copytree(self._crashed, self.path)
        return self._crashed_told

    def count_calls(self) -> dict[str, int]:
        """How often each kind of call is made by one thread at the most, when nothing is refused."""
        most: Counter[str] = Counter()
        for seed in (0, 1):
            self.begin(seed)
            order = self.order(self.seed)
            live(replace(order, api="append"), [*strace(self._log, list(WAYS)), "--"])
            made = Counter(re.findall(r"^(\d+) +(\w+)\(", self._log.read_text(), re.MULTILINE))
            for (_, call), count in made.items():
                most[call] = max(most[call], count)
        return {call: most[call] for call in WAYS}

    def refuse(self, refusal: Refusal, seed: int) -> tuple[Life, int]:
        """One life with a refused call, and the recovery after it; how often the fault struck."""
        before = self.begin(seed)
        life = live(self.order(seed), refusal.arguments(self._log))
        lines = [line for line in self._log.read_text().splitlines() if "(INJECTED" in line]
        if any("DSYNC" in line and "error=" in refusal.way for line in lines):
            # The write that a close or a quiet lane makes fails behind the last answer: there is nobody to be told.
            told = len(life.told) == self.order(seed).messages
            assert told or life.poisoned, (refusal, life.errors, "a forced write failed")
        if refusal.way == SHORTEST and not refusal.every:
            assert not life.errors, (refusal, life.errors, "a short write is no failure")
        check_recovered(self.path, [*before, *life.told])
        return life, len(lines)


def main() -> None:
    """Every kind, every way, every N."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--step", type=int, default=1, help="try every so manieth N only")
    parser.add_argument("--dir", type=Path, default=None)
    given = parser.parse_args()
    given.seed = draw_seed() if given.seed is None else given.seed
    if why_not():
        sys.exit(why_not())
    chance, ends, struck = random.Random(given.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        bench = Bench(Path(name), given.seed)
        for call, count in bench.count_calls().items():
            for way in WAYS[call]:
                for nth in range(1, int(count * SLACK) + 1, given.step):
                    seed = chance.getrandbits(32)
                    life, strikes = bench.refuse(Refusal(call, way, nth), seed)
                    struck += strikes
                    ends.update([f"{stage}: {error}" for stage, error, _ in life.errors[:1]] or ["no error"])
                print(f"{call} {way}: {count} calls, {struck} refusals in all", flush=True)
    print(f"{sum(ends.values())} lives, {struck} refusals struck; the first error of each: {dict(ends)}")


if __name__ == "__main__":
    main()
