"""Which test runs which line, and for how long: one instrumented run of the suite, a child for each test file."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import coverage

from ..checkout import ROOT
from .child import TESTS, Event, Reporter, Stuck, run_tests, share

LONGEST_S = 150.0  # of one test under the tracer
HANGING_MAX = 3  # of one file

Lines = dict[str, dict[int, list[str]]]  # file -> line -> tests


class Contexts(NamedTuple):
    """`lines` names the tests that run a line; `seconds` how long each test takes (traced); `left_out` failed."""

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
    for package in ("store", "cache", *TESTS):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _note(measured: coverage.Coverage, test: str) -> None:
    measured.switch_context(test)


def _traced(tree: Path, data: Path) -> Callable[[Reporter], Callable[[], None]]:
    """Begin to trace in a child; each test is a context of its own."""

    def begin(reporter: Reporter) -> Callable[[], None]:
        measured = coverage.Coverage(
            data_file=str(data), config_file=False, messages=False,
            source=[str(tree / "store"), str(tree / "cache")], concurrency=["thread"],
        )  # fmt: skip
        measured.start()
        reporter.on_test = lambda test: _note(measured, test)

        def end() -> None:
            measured.stop()
            measured.save()

        return end

    return begin


def measure(tree: Path, work: Path, jobs: int, tell: Callable[[str], None]) -> Contexts:
    """Run all test files of `tree` under the tracer, `jobs` at once. Tests that fail or hang so are left out."""
    names = sorted(str(path.relative_to(tree)) for folder in TESTS for path in (tree / folder).rglob("test_*.py"))
    work.mkdir(parents=True, exist_ok=True)

    def one(_job: int, index: int) -> None:
        name, place = names[index], work / names[index].replace("/", "-")
        hanging: list[str] = []
        events: list[Event] = []
        while not events and len(hanging) < HANGING_MAX:
            without = [f"--deselect={test}" for test in hanging]
            traced = _traced(tree, Path(f"{place}.data"))
            try:
                _code, events = run_tests(tree, [name, *without], None, lambda _test: LONGEST_S, traced)
            except Stuck as stuck:
                hanging.append(str(stuck))
        events += [{"fails": test} for test in hanging]
        Path(f"{place}.events").write_text(json.dumps(events))
        failed = [event["fails"] for event in events if "fails" in event and not event.get("skipped")]
        tell(f"{name}: {sum('ends' in event for event in events)} tests" + (f", failed: {failed}" if failed else ""))

    share(jobs, len(names), one)
    lines: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    seconds: dict[str, float] = {}
    left_out: list[str] = []
    for name in names:
        place = work / name.replace("/", "-")
        events = json.loads(Path(f"{place}.events").read_text())
        bad = {event["fails"] for event in events if "fails" in event}
        left_out += sorted(bad)
        seconds.update((event["ends"], event["seconds"]) for event in events if "ends" in event)
        _collect(Path(f"{place}.data"), tree, bad, lines)
    return Contexts({file: dict(of) for file, of in lines.items()}, seconds, left_out)


def _collect(data: Path, tree: Path, bad: set[str], into: dict[str, dict[int, list[str]]]) -> None:
    if not data.exists():
        return  # its process was ended
    measured = coverage.CoverageData(str(data))
    measured.read()
    for file in measured.measured_files():
        relative = str(Path(file).relative_to(tree))
        for line, tests in measured.contexts_by_lineno(file).items():
            into[relative][line] += [test for test in tests if test and test not in bad]
