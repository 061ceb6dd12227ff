"""Mutants one after the other: the tests that run the changed line, the quickest first, until one fails."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..checkout import copy_checkout
from .child import Stuck, folder_in_memory, forget_bytecode, run_tests, share, warm_up
from .contexts import Contexts
from .mutants import Mutant

FIRST_TESTS = 30  # a run of their own: most mutants fall here, and only a few files are collected
LEAST_S, SLOWER = 20.0, 10.0  # a test is stuck after LEAST_S and SLOWER times what it took
OWN_TEST = 0.2  # a module's own test file comes earlier than its time says
TEST_FAILED, COLLECTION_FAILED = 1, 2


class Outcome(NamedTuple):
    """What became of a mutant: killed by a test, an import or a time-out, or survived."""

    name: str
    result: str  # "killed", "survived" or "untested"
    by: str
    seconds: float
    tests: int
    diff: str


def covering_tests(mutant: Mutant, contexts: Contexts, budget_s: float) -> list[str]:
    """The tests that run the mutant's line, in the order in which they are tried, as far as the budget goes."""
    found = contexts.tests_of(mutant.path, range(mutant.line, mutant.last_line + 1))
    if not found and mutant.function is not None:
        found = contexts.tests_of(mutant.path, range(mutant.function[0], mutant.function[1] + 1))
    elif not found:  # a constant: read wherever the module is used
        found = {test for tests in contexts.lines.get(mutant.path, {}).values() for test in tests}
    stem, same = Path(mutant.path).stem, Counter[str]()
    if not found:  # in a process that a test has started, where probes note nothing
        found = {test for test in contexts.seconds if f"/test_{stem}.py::" in test}
    weights: dict[str, float] = {}
    for test in sorted(found, key=lambda test: (contexts.seconds.get(test, 0.0), test)):
        function = test.partition("[")[0]
        same[function] += 1  # another variant of a test sees less that is new
        own = OWN_TEST if f"test_{stem}" in function.partition("::")[0] else 1.0
        weights[test] = (contexts.seconds.get(test, 0.0) + 0.002) * same[function] * own
    chosen = list[str]()
    spent = 0.0
    for test in sorted(weights, key=lambda test: weights[test]):
        spent += contexts.seconds.get(test, 0.0)
        if chosen and spent > budget_s:
            continue
        chosen.append(test)
    return chosen


def try_mutant(tree: Path, mutant: Mutant, contexts: Contexts, budget_s: float) -> Outcome:
    """Run the tests of a mutant in a copy of the checkout."""
    began = time.monotonic()
    order = covering_tests(mutant, contexts, budget_s)

    def outcome(result: str, by: str) -> Outcome:
        return Outcome(mutant.name, result, by, round(time.monotonic() - began, 2), len(order), mutant.diff)

    def limit_s(test: str) -> float:
        return LEAST_S + SLOWER * contexts.seconds.get(test, 0.0)

    if not order:
        return outcome("untested", "no test runs the line")
    path = tree / mutant.path
    sound = path.read_text()
    forget_bytecode(path)
    path.write_text(mutant.source)
    try:
        for part in (order[:FIRST_TESTS], order[FIRST_TESTS:]):
            if not part:
                break
            files = sorted({test.partition("::")[0] for test in part})
            base = f"--basetemp={tree.parent / 'tests-of'}-{tree.name}"
            try:
                code, events = run_tests(tree, ["-x", base, *files], part, limit_s)
            except Stuck as stuck:
                return outcome("killed", f"stuck in {stuck}")
            if code == TEST_FAILED:
                return outcome("killed", next((e["fails"] for e in events if "fails" in e and not e["skipped"]), "?"))
            if code == COLLECTION_FAILED:
                return outcome("killed", "the import fails")
            ran = len({event["begins"] for event in events if "begins" in event})
            if code or ran < len(part):
                return outcome("killed" if code else "untested", f"exit code {code}, {ran} of {len(part)} tests ran")
        return outcome("survived", "")
    finally:
        path.write_text(sound)
        forget_bytecode(path)  # a process that a test has started may have written it


def run_all(
    mutants: Sequence[Mutant],
    contexts: Contexts,
    results: Path,
    jobs: int,
    budget_s: float,
    tell: Callable[[str], None],
) -> None:
    """Try all mutants that `results` (lines of JSON) has no outcome of, and add these."""
    done = {outcome.name for outcome in load(results)}
    left = [mutant for mutant in mutants if mutant.name not in done]
    tell(f"{len(mutants)} mutants, {len(mutants) - len(left)} of them were tried before")
    work = folder_in_memory()
    trees: dict[int, Path] = {}

    def one(job: int, index: int) -> None:
        if job not in trees:
            trees[job] = copy_checkout(work / str(job))
            warm_up(trees[job])
        outcome = try_mutant(trees[job], left[index], contexts, budget_s)
        with results.open("a") as file:
            file.write(json.dumps(outcome._asdict()) + "\n")
        tell(f"{index + 1}/{len(left)} {outcome.result} in {outcome.seconds} s: {outcome.name} {outcome.by}")

    try:
        share(jobs, len(left), one)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def load(results: Path) -> list[Outcome]:
    """The outcomes that are known."""
    if not results.exists():
        return []
    return [Outcome(**json.loads(line)) for line in results.read_text().splitlines()]


def by_file(outcomes: Sequence[Outcome]) -> dict[str, Counter[str]]:
    """How many of each result, by source file."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        found[outcome.name.partition(":")[0]][outcome.result] += 1
    return found
