"""`python -m tests.store.filters`: how many messages a second a filter answers, by the number of distinct texts."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable

from stratalog.store.filters.given import check_filter
from stratalog.store.filters.message_filter import MessageFilter
from stratalog.store.format.blobs import Blobs, ExtraColumns

FILTER = "tag = 't5' OR (price BETWEEN 100 AND 500 AND region STARTSWITH 'eu')"


def batches_of(distinct: int, rows: int, count: int, chance: random.Random) -> list[ExtraColumns]:
    """`count` batches, with messages of some distinct texts in any order."""
    texts = [
        json.dumps({"tag": f"t{at}", "price": str(at * 7 % 1000), "region": "eu-west"}, separators=(",", ":")).encode()
        for at in range(distinct)
    ]
    return [ExtraColumns(rows, None, None, Blobs.of(chance.choices(texts, k=rows))) for _ in range(count)]


def rate(wanted: MessageFilter, batches: list[ExtraColumns], messages: int, now_s: Callable[[], float]) -> float:
    """Messages a second, of one run over about so many."""
    began_s, done = now_s(), 0
    while done < messages:
        for batch in batches:
            wanted.mask(batch, len(batch))
            done += len(batch)
    return done / (now_s() - began_s)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.store.filters", description=__doc__)
    parser.add_argument("--rows", type=int, default=16_384, help="of a batch")
    parser.add_argument("--messages", type=int, default=5_000_000, help="of a run")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=29)
    given = parser.parse_args()
    print(f"{FILTER}; batches of {given.rows:,}; median of {given.runs} runs, in brackets the least and the most")
    for distinct in (1, 100, 1_000, 9_000):
        batches = batches_of(distinct, given.rows, 8, random.Random(given.seed))
        wanted = MessageFilter(check_filter(FILTER) or "")
        rate(wanted, batches, given.rows * 8, time.perf_counter)
        found = sorted(rate(wanted, batches, given.messages, time.perf_counter) for _ in range(given.runs))
        used = sorted(rate(wanted, batches, given.messages, time.process_time) for _ in range(given.runs))
        print(
            f"{distinct:>6,} distinct texts: {statistics.median(found) / 1e6:5.1f} million messages a second "
            f"({found[0] / 1e6:.1f} to {found[-1] / 1e6:.1f}); by processor time {statistics.median(used) / 1e6:.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
