"""Which test runs which line, and for how long: one run of the suite with probes, a child for each test file."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..checkout import ROOT
from . import probes
from .child import TESTS, Event, Reporter, Stuck, run_tests, share
from .mutants import files_under_test
from .probes import Probe

LIMIT_S = 20  # of one test: longer ones are left out
LONG = ("tests/faults/test_closed_loop.py", "tests/faults/test_two_processes.py", "tests/faults/test_recycled.py",
        "tests/simulation/test_planted.py", "tests/simulation/test_kept.py")  # children and long loops  # fmt: skip
HANGING_MAX = 3  # of one file

Lines = dict[str, dict[int, list[str]]]  # file -> line -> tests


class Contexts(NamedTuple):
    """`lines` names the tests that run a line; `seconds` how long each test takes (with probes); `left_out` failed."""

    lines: Lines
    seconds: dict[str, float]
    left_out: list[str]

    def tests_of(self, path: str, lines: range) -> set[str]:
        """The tests that run one of the lines."""
        known = self.lines.get(path, {})
        return {test for line in lines for test in known.get(line, ())}

    def save(self, path: Path) -> None:
        """Write as JSON; tests stand there by number, as most lines are run by many."""
        numbers = {test: number for number, test in enumerate(sorted(self.seconds))}
        lines = {
            file: {line: [numbers[test] for test in tests if test in numbers] for line, tests in of.items()}
            for file, of in self.lines.items()
        }
        kept = {"tests": sorted(self.seconds), "lines": lines, "seconds": self.seconds, "left_out": self.left_out}
        path.write_text(json.dumps(kept))

    @staticmethod
    def load(path: Path) -> Contexts:
        """Read what `save` has written."""
        given = json.loads(path.read_text())
        names = given["tests"]
        lines = {
            file: {int(line): [names[number] for number in tests] for line, tests in of.items()}
            for file, of in given["lines"].items()
        }
        return Contexts(lines, given["seconds"], given["left_out"])


def sources_hash(root: Path = ROOT) -> str:
    """Changes with every source and test: contexts and results belong to one state of the code."""
    digest = hashlib.sha256()
    for package in ("store", "cache", "index", *TESTS):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _probed(data: Path) -> Callable[[Reporter], Callable[[], None]]:
    """Note in a child which probes each test runs."""

    def begin(reporter: Reporter) -> Callable[[], None]:
        hits, found = probes.hits(), dict[str, list[int]]()
        running = [""]

        def following(test: str) -> None:
            found[running[0]] = [number for number, hit in enumerate(hits) if hit]
            running[0] = test
            hits[:] = bytes(len(hits))

        reporter.on_test = following

        def end() -> None:
            following("")
            data.write_text(json.dumps(found))

        return end

    return begin


def measure(tree: Path, work: Path, jobs: int, tell: Callable[[str], None]) -> Contexts:
    """Run the test files of `tree` with probes, `jobs` at once. Tests that fail, hang or take long so are left out."""
    names = sorted(str(path.relative_to(tree)) for folder in TESTS for path in (tree / folder).rglob("test_*.py"))
    names = [name for name in names if name not in LONG]
    work.mkdir(parents=True, exist_ok=True)
    shorten = tree / "tests" / "conftest.py"
    shorten.write_text(re.sub(r"^LIMIT_S = .*$", f"LIMIT_S = {LIMIT_S}", shorten.read_text(), flags=re.MULTILINE))
    planted = probes.plant(tree, files_under_test(tree))

    def one(_job: int, index: int) -> None:
        name, place = names[index], work / names[index].replace("/", "-")
        hanging: list[str] = []
        events: list[Event] = []
        while not events and len(hanging) < HANGING_MAX:
            without = [f"--deselect={test}" for test in hanging]
            probed = _probed(Path(f"{place}.data"))
            try:
                _code, events = run_tests(tree, [name, *without], None, lambda _test: LIMIT_S + 5, probed)
            except Stuck as stuck:
                hanging.append(str(stuck))
        events += [{"fails": test} for test in hanging]
        Path(f"{place}.events").write_text(json.dumps(events))
        failed = [event["fails"] for event in events if "fails" in event and not event.get("skipped")]
        tell(f"{name}: {sum('ends' in event for event in events)} tests" + (f", failed: {failed}" if failed else ""))

    share(jobs, len(names), one)
    lines: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    seconds: dict[str, float] = {}
    left_out: list[str] = list(LONG)
    for name in names:
        place = work / name.replace("/", "-")
        events = json.loads(Path(f"{place}.events").read_text())
        bad = {event["fails"] for event in events if "fails" in event}
        left_out += sorted(bad)
        seconds.update((event["ends"], event["seconds"]) for event in events if "ends" in event)
        _collect(Path(f"{place}.data"), planted, bad, lines)
    return Contexts({file: dict(of) for file, of in lines.items()}, seconds, left_out)


def _collect(data: Path, planted: list[Probe], bad: set[str], into: dict[str, dict[int, list[str]]]) -> None:
    if not data.exists():
        return  # its process was ended
    for test, numbers in json.loads(data.read_text()).items():
        if test and test not in bad:
            for path, first, last in (planted[number] for number in numbers):
                for line in range(first, last + 1):
                    into[path][line].append(test)
