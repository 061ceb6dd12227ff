"""`python -m tests.mutation --sample 300 --seed 1 --jobs 2`: how many small changes of the code do the tests see?

The first run of a state of the code takes the time of the suite as well; a run that was broken off goes on where
it was, with the same seed. Needs `pip install -e '.[mutation]'`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..checkout import ROOT, copy_of_the_checkout
from .child import folder_in_memory
from .contexts import Contexts, measure, sources_hash
from .judged import Judged, judgements
from .mutants import Mutant, draw
from .run import Outcome, by_file, load, run_all


def say(text: str) -> None:
    """Print a line at once: two processes do, and their lines stay whole."""
    print(text, flush=True)


def main() -> int:
    """The command; 0 if the share of killed mutants is reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=300, help="mutants")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(24), help="of the sample")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", default="", help="files whose path begins so, such as cache/")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tests a mutant, at the most")
    parser.add_argument("--least", type=float, default=85.0, help="per cent that have to be killed")
    parser.add_argument("--state", type=Path, default=ROOT / ".mutation", help="contexts and results of earlier runs")
    parser.add_argument("--contexts", type=Path, help="of an earlier run, though the code has changed since")
    given = parser.parse_args()
    began = time.monotonic()
    state = given.state.resolve() / sources_hash()
    state.mkdir(parents=True, exist_ok=True)
    say(f"seed {given.seed}; state in {state}")
    contexts = Contexts.load(given.contexts) if given.contexts is not None else contexts_of(state, given.jobs)
    say(f"{len(contexts.seconds)} tests, left out {contexts.left_out}; {time.monotonic() - began:.0f} s")
    mutants = sample_of(state, given.sample, given.seed, given.only)
    results = state / f"results-{given.seed}.jsonl"
    run_all(mutants, contexts, results, given.jobs, given.budget, say)
    names = {mutant.name for mutant in mutants}
    return report([one for one in load(results) if one.name in names], given.least, time.monotonic() - began)


def contexts_of(state: Path, jobs: int) -> Contexts:
    """Which test runs which line: from an earlier run on the same code, or measured now."""
    kept = state / "contexts.json"
    if not kept.exists():
        work = folder_in_memory()
        try:
            with copy_of_the_checkout(work / "tree") as tree:
                measure(tree, work / "data", jobs, say).save(kept)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return Contexts.load(kept)


def sample_of(state: Path, count: int, seed: int, only: str) -> list[Mutant]:
    """The sample, which takes a minute to draw: from an earlier run on the same code, or drawn now."""
    kept = state / f"sample-{count}-{seed}-{only.replace('/', '-')}.json"
    if not kept.exists():
        kept.write_text(json.dumps([mutant._asdict() for mutant in draw(ROOT, count, seed, only)]))
    return [Mutant(**one) for one in json.loads(kept.read_text())]


def report(outcomes: Sequence[Outcome], least: float, seconds: float) -> int:
    """Print the survivors, the table and the figure."""
    judged, classes = judgements(), Counter[str]()
    for outcome in sorted(outcomes):
        if outcome.result == "killed":
            continue
        judgement: Judged | None = next((one for one in judged if one.fits(outcome)), None)
        classes[judgement.kind if judgement is not None else "not looked at"] += 1
        say(f"\n{outcome.result}: {outcome.name} {outcome.by} ({outcome.tests} tests)\n{outcome.diff}")
        say(f"  {judgement.kind}: {judgement.why}" if judgement is not None else "  not looked at")
    say("")
    for path, counts in sorted(by_file(outcomes).items()):
        say(f"{path:32} {counts['killed']:4} of {counts.total():4}")
    killed = sum(outcome.result == "killed" for outcome in outcomes)
    stuck = sum(outcome.by.startswith("stuck") for outcome in outcomes)
    share = 100 * killed / max(1, len(outcomes))
    equivalent = classes["equivalent"]
    say(f"\nkilled {killed} of {len(outcomes)} = {share:.1f} % ({stuck} by a time-out), in {seconds / 60:.0f} minutes")
    say(f"survivors by class: {dict(classes)}; without the equivalent ones "
        f"{100 * killed / max(1, len(outcomes) - equivalent):.1f} %")  # fmt: skip
    return 0 if share >= least else 1


if __name__ == "__main__":
    sys.exit(main())
