"""Damaged stores by the thousand: `python -m tests.fuzz damage --stores 10000 --jobs 2 --crashes 2000`.

With `--pairs` each store has two damages, half of them close to each other, and most stores have subscriptions, delays,
bulk commits and trims. With `--work-queues` the stores are work queues, and the checks are those of their consumers
(`work_story`, `work_cases`).

Makes a few dozen stores, harms copies of them (`faults`), and checks that damage costs what is damaged and nothing
else (`cases`, `checks`; `places` knows what is damaged), also if the repair itself is interrupted (`cuts`). Every
case has a number; `--seed N --only NUMBER` runs one again. A finding is made smaller by leaving faults out.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple, overload

from tests.seeds import draw_seed
from tests.store.helpers import memory_folder

from .cases import Case, damage
from .checks import Broken
from .cuts import run_cuts
from .faults import Fault, draw_faults, draw_pair
from .orders import Order, Seen
from .places import Places, locate
from .stories import Maker, plans
from .work_cases import WorkCase
from .work_story import WorkMaker, WorkPlan, work_plans

STORIES = 36
EXAMPLES = 3  # of each kind of finding that are printed whole
CUTS_A_REPAIR = 4
MOST_TEXT = 1500
AT_HAND = "at-hand"  # the file that says which case a worker is at


class Finding(NamedTuple):
    """A promise that was broken: which case, what kind, and the steps."""

    number: int
    kind: str
    text: str


class Result(NamedTuple):
    """What a case came to."""

    finding: Finding | None
    seen: Seen
    crashes: int = 0


class Stock(Sequence[Places]):
    """The stores to harm, each made when it is first asked for: to run one case again takes one or two of them."""

    def __init__(
        self, seed: int, count: int, folder: Path, say: Callable[[str], None], *, pairs: bool = False,
        work_queues: bool = False,
    ) -> None:  # fmt: skip
        self.plans = work_plans(seed, count) if work_queues else plans(seed, count, records=pairs)
        self.pairs = pairs  # each store gets two damages
        self.work_queues = work_queues
        self._folder = folder
        self._say = say
        self._made: dict[int, Places] = {}

    def __len__(self) -> int:
        return len(self.plans)

    @overload
    def __getitem__(self, index: int) -> Places: ...

    @overload
    def __getitem__(self, index: slice) -> list[Places]: ...

    def __getitem__(self, index: int | slice) -> Places | list[Places]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if index >= len(self):
            raise IndexError(index)
        if index not in self._made:
            home = self._folder / f"story-{index}"
            home.mkdir()
            plan = self.plans[index]
            story = WorkMaker(plan, home).make() if isinstance(plan, WorkPlan) else Maker(plan, home).make()
            made = self._made[index] = locate(story, home)
            self._say(f"store {index}: {plan}, {len(made.files)} segments")
        return self._made[index]

    def draw(self, chance: random.Random) -> Places:
        """One of them, those with very many messages less often."""
        weights = [(0.1 if self.pairs else 0.4) if plan.bulk else 1.0 for plan in self.plans]
        return self[chance.choices(range(len(self)), weights)[0]]


class Fuzzer:
    """Runs cases by their numbers; the same seed and number is the same case."""

    def __init__(self, seed: int, stock: Stock, folder: Path) -> None:
        self.seed = seed
        self.stock = stock
        self.folder = folder

    def run(self, number: int, *, cuts: int = 0) -> Result:
        """One case; with `cuts`, the repair is interrupted so many times, and only what that leaves is checked."""
        pairs = self.stock.pairs
        chance = random.Random(f"{self.seed}:{number}:{'cuts' if cuts else 'pair' if pairs else 'whole'}")
        places = self.stock.draw(chance)
        faults: Sequence[Fault] = (draw_pair if pairs else draw_faults)(places, self.stock, chance)
        order = Order.draw(chance, bulk=places.story.plan.bulk)
        if self.stock.work_queues:
            order = order._replace(retire=chance.random() < 0.5)
        elif places.story.plan.records:
            order = order._replace(retire=False)  # what is pending keeps its segments
        broken, seen, crashes = self.attempt(places, faults, order, cuts)
        if broken is None:
            return Result(None, seen, crashes)
        faults = self.smaller(places, faults, order, cuts, broken.kind)
        steps = "\n".join(f"    {fault.text}" for fault in faults)
        where = f"  store: {places.story.plan}\n{steps}\n    {order}"
        text = str(broken).replace(f"{self.folder}/{'w' if self.stock.work_queues else 's'}/", "")
        return Result(Finding(number, broken.kind, f"{where}\n  {text[:MOST_TEXT]}"), seen, crashes)

    def attempt(
        self, places: Places, faults: Sequence[Fault], order: Order, cuts: int
    ) -> tuple[Broken | None, Seen, int]:
        """Run the checks: what broke, if anything did."""
        case_of = WorkCase if self.stock.work_queues else Case
        case = case_of(places, damage(places, faults), order, self.folder)
        crashes = 0
        try:
            if cuts and isinstance(case, Case):
                crashes = run_cuts(case, cuts)
            else:
                case.run()
        except Broken as broken:
            return broken, case.seen, crashes
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} in {Path(place.filename).name}, {place.name}"
            return Broken(kind, "".join(traceback.format_exception(error)[-3:])), case.seen, crashes
        return None, case.seen, crashes

    def smaller(self, places: Places, faults: Sequence[Fault], order: Order, cuts: int, kind: str) -> Sequence[Fault]:
        """The same finding with fewer faults, if there is one."""
        for index in range(len(faults)):
            fewer = [*faults[:index], *faults[index + 1 :]]
            broken = self.attempt(places, fewer, order, cuts)[0] if fewer else None
            if broken is not None and broken.kind == kind:
                return self.smaller(places, fewer, order, cuts, kind)
        return faults


_FUZZER: list[Fuzzer] = []  # of a worker process: it has the stores from its parent


def _work(task: tuple[int, int]) -> Result:
    number, cuts = task
    fuzzer = _FUZZER[0]
    (fuzzer.folder / AT_HAND).write_text(f"{number}{' --cut' if cuts else ''}")
    return fuzzer.run(number, cuts=cuts)


def _start(seed: int, stock: Stock, folder: Path) -> None:
    mine = folder / f"worker-{os.getpid()}"
    mine.mkdir(exist_ok=True)
    _FUZZER[:] = [Fuzzer(seed, stock, mine)]
    gc.freeze()  # the made stores are for good: each collection would go through them
    gc.set_threshold(100_000)


def run_all(seed: int, stock: Stock, folder: Path, tasks: Sequence[tuple[int, int]], jobs: int) -> Iterator[Result]:
    """Run (number, cuts) tasks in so many processes. A process that dies ends the run, as a finding."""
    if jobs == 1:
        _start(seed, stock, folder)
        yield from map(_work, tasks)
        return
    stock[:]  # before the processes part
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, context, _start, (seed, stock, folder)) as pool:
        try:
            yield from pool.map(_work, tasks, chunksize=4)
        except BrokenProcessPool:
            cases = [path.read_text() for path in sorted(folder.glob(f"worker-*/{AT_HAND}"))]
            text = f"  one of these ended its process; run it by `python -X faulthandler ..`: {', '.join(cases)}"
            yield Result(Finding(-1, "a process died", text), Seen())


class Summary:
    """Counts what came of the cases, and prints findings as they come."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.kinds: Counter[str] = Counter()
        self.stores = self.crashes = self.refused = self.missing = 0
        self._began = time.monotonic()

    def add(self, result: Result, *, every: int = 200) -> None:
        """Count a case."""
        self.stores += 1
        self.crashes += result.crashes
        self.refused += result.seen.refused
        self.missing += result.seen.missing
        finding = result.finding
        if finding is not None:
            self.kinds[finding.kind] += 1
            if self.kinds[finding.kind] <= EXAMPLES:
                self.say(f"case {finding.number}: {finding.text}\n")
        if self.stores % every == 0:
            self.say(f".. {self}")

    def __str__(self) -> str:
        rate = f"{time.monotonic() - self._began:.0f} s"
        found = f"{sum(self.kinds.values())} findings"
        return (
            f"{self.stores} damaged stores, {self.refused} refused by a plain opening, {self.missing} messages lost, "
            f"{self.crashes} crashes inside repairs, {found}, {rate}"
        )

    def close(self) -> int:
        """Print the kinds; the exit code."""
        for kind, count in self.kinds.most_common():
            self.say(f"{count:6}  {kind}")
        self.say(str(self))
        return 1 if self.kinds else 0


def parse(options: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz damage", description=__doc__)
    parser.add_argument("--stores", type=int, default=1000, help="damaged stores to check")
    parser.add_argument("--crashes", type=int, default=0, help="crashes inside repairs to check, at the least")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--stories", type=int, default=STORIES, help="different stores that copies of are harmed")
    parser.add_argument("--pairs", action="store_true", help="two damages in each store, over stores with records")
    parser.add_argument("--work-queues", action="store_true", help="work queues with ids, settings and transactions")
    parser.add_argument("--only", type=int, default=None, help="the number of one case")
    parser.add_argument("--cut", action="store_true", help="with --only: a case of a crash inside the repair")
    given = parser.parse_args(list(options))
    if given.work_queues and (given.crashes or given.cut):
        parser.error("repairs of work queues are not interrupted")
    return given


def main(options: Sequence[str]) -> int:
    """The command; 0 if nothing was found."""
    given = parse(options)
    seed = draw_seed() if given.seed is None else given.seed
    print("seed", seed, flush=True)
    summary = Summary(lambda text: print(text, flush=True))
    with memory_folder() as folder:
        stock = Stock(seed, given.stories, folder, summary.say, pairs=given.pairs, work_queues=given.work_queues)
        tasks = [(number, 0) for number in range(given.stores)]
        tasks += [(number, CUTS_A_REPAIR) for number in range(-(-given.crashes // CUTS_A_REPAIR))]
        if given.only is not None:
            tasks = [(given.only, CUTS_A_REPAIR if given.cut else 0)]
        last = 0
        while tasks:
            for result in run_all(seed, stock, folder, tasks, given.jobs):
                summary.add(result)
            # Some repairs have fewer moments, or none: others make up for them.
            last = max(last, tasks[-1][0] + 1)
            left = given.crashes - summary.crashes if given.only is None and not summary.kinds else 0
            tasks = [(last + number, CUTS_A_REPAIR) for number in range(-(-left // CUTS_A_REPAIR))]
    return summary.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
