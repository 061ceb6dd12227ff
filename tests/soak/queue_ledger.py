"""What the soak knows of a queue of jobs, and whether the store still holds it."""

from __future__ import annotations

import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from stratalog.store import MessageStore, verify_folder
from stratalog.store.testing import TunedConfig

from .child import Plan, seed_of
from .consumers import LONG_MS
from .ledger import EARLY_S, PATIENCE, SETTLES_S, Violation
from .queue_child import (
    AUDIT,
    BILL_BYTES,
    CLERK,
    MESSAGE_BYTES,
    SEGMENTS,
    TOPIC_OF,
    UNDERTAKER,
    WORKERS,
    settings_of,
)

LATE_S = 5.0  # so long the log may take more than it should: the machine may be busy
LATE_SAMPLES = 50  # and said so often: a life that stood still has not had the time


class QueueLedger:
    """All jobs of one store, over all lives of it.

    Attributes:
        removed_segments: how many the store has removed, at least.
        disk_share: the most that the log took, as a share of what it may take.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.removed_segments = 0
        self.disk_share = 0.0
        self._sizes: dict[int, int] = {}  # of the jobs that were appended
        self._asked = defaultdict[str, set[int]](set)  # somebody tried to acknowledge them
        self._acked = defaultdict[str, set[int]](set)
        self._acked_by = defaultdict[str, dict[int, int]](dict)  # in this life: by which of its "acked" lines
        self._acked_lines = 0  # of this life
        self._sending: dict[int, tuple[int, int, int]] = {}  # with ids, and not known to be stored
        self._billing: set[int] = set()  # bills that may be there
        self._billed: set[int] = set()
        self._lanes = 1
        self._segment_bytes = 0
        self._over_since_s: float | None = None
        self._over_samples = 0

    def begin(self, plan: Plan) -> None:
        """A life begins."""
        self._lanes = plan.config["lanes"]
        self._segment_bytes = max(self._segment_bytes, plan.config["segment_bytes"])  # older ones may be larger
        plan.config["segment_bytes"] = self._segment_bytes
        self._over_since_s, self._over_samples = None, 0
        self._acked_by.clear()
        self._acked_lines = 0

    def carried(self) -> dict[str, int]:
        """By subscription, the bytes that are not acknowledged, at the most."""
        done = self._acked[WORKERS] | self._acked[UNDERTAKER]
        bills = len(self._billing - self._acked[CLERK]) * (BILL_BYTES + MESSAGE_BYTES)
        return {WORKERS: self._bytes_but(done), AUDIT: self._bytes_but(self._acked[AUDIT]), CLERK: bills}

    def cut(self) -> list[tuple[int, int, int]]:
        """The jobs with ids of which nobody knows whether they are stored."""
        return list(self._sending.values())

    def _bytes_but(self, done: set[int]) -> int:
        return sum(size + MESSAGE_BYTES for seed, size in self._sizes.items() if seed not in done)

    def note(self, what: str, rest: Sequence[Any]) -> None:
        """What the child says. Raises Violation."""
        if what == "sent":
            self._sizes.update((seed, size) for seed, size in rest)
            for seed, _ in rest:
                self._sending.pop(seed, None)
        elif what == "sending":
            self._sending.update((seed, (queue, seed, size)) for queue, seed, size in rest)
        elif what in ("billing", "billed"):
            (self._billing if what == "billing" else self._billed).update(rest)
        elif what == "came":
            who, acked_lines, *seeds = rest
            later = self._acked_by[who]  # a job that was acknowledged only after the receive began may well come
            self._check_came(who, [seed for seed in seeds if later.get(seed, -1) < acked_lines])
        elif what in ("asked", "acked"):
            who, *seeds = rest
            (self._asked if what == "asked" else self._acked)[who].update(seeds)
            if what == "acked":
                self._acked_by[who].update(dict.fromkeys(seeds, self._acked_lines))
                self._acked_lines += 1
        elif what == "disk":
            self._check_disk(*rest)
        elif what == "error":
            raise Violation("{} raised {}: {}".format(*rest))

    def _check_came(self, who: str, seeds: Iterable[int]) -> None:
        again = self._acked[who].intersection(seeds)
        if again:
            raise Violation(f"{who} gets {sorted(again)[:5]} again, and has acknowledged them")

    def _check_disk(self, held_bytes: int, allowed_bytes: int) -> None:
        """The log may be larger than it should be for a moment: the background has its turn."""
        now_s = time.monotonic()
        self.disk_share = max(self.disk_share, held_bytes / allowed_bytes)
        if held_bytes <= allowed_bytes:
            self._over_since_s, self._over_samples = None, 0
            return
        self._over_since_s = self._over_since_s or now_s
        self._over_samples += 1
        if now_s - self._over_since_s > LATE_S and self._over_samples >= LATE_SAMPLES:
            raise Violation(f"the log takes {held_bytes} bytes, and may take {allowed_bytes}")

    # -- after a life -------------------------------------------------------------------------------------

    def check(self) -> int:
        """Take all that there is, in a copy of the store; how many jobs were found. Raises Violation."""
        if not self.path.exists():
            return 0
        # A life may have ended before its store was made: then this opening makes it.
        config = TunedConfig(lanes=self._lanes, segment_bytes=self._segment_bytes, recent_bytes=0)
        copy = self.path.with_name("copy")
        shutil.copytree(self.path, copy)
        try:
            with MessageStore.open(copy, config) as store, ExitStack() as consumers:
                known = self._subscribed(store)
                came = {who: self._take_all(store, who, consumers) for who in TOPIC_OF if who in known}
        finally:
            shutil.rmtree(copy)
        with mock.patch(PATIENCE, EARLY_S), MessageStore.open(self.path, config) as store:
            if store.losses:
                raise Violation(f"losses: {store.losses}")
            if known:
                self._check_all(came)
                self._check_settles(store, came)
            if store.stats()["subscriptions"]["removed_unacknowledged"]:
                raise Violation("retention removed what was not acknowledged")
            firsts = [lane.view.sealed[0].segment.sequence - 1 for lane in store._lanes if lane.view.sealed]
            self.removed_segments = max(self.removed_segments, sum(firsts))
        verified = verify_folder(self.path)
        if not verified.ok:
            raise Violation(f"verify: {verified.damages}")
        return sum(map(len, came.values()))

    @staticmethod
    def _subscribed(store: MessageStore) -> set[str]:
        return {one.name for one in store.subscriptions()}

    def _take_all(self, store: MessageStore, who: str, consumers: ExitStack) -> Counter[int]:
        """All that a subscription gives out, however its consumers ended. Nothing of it is acknowledged.

        The consumer stays open until `consumers` ends: else jobs that it has got for the last time become dead letters.
        """
        found = Counter[int]()
        sub = consumers.enter_context(store.subscribe(TOPIC_OF[who], who, **settings_of(who)))
        while sub.backlog().total > found.total():  # some of it is delayed
            for one in sub.receive(1000, wait_ms=100, visibility_timeout_ms=LONG_MS):
                seed = seed_of(one.message.queue_id, one.message.data)
                if seed is None:
                    raise Violation(f"{who} gets a job with other bytes")
                found[seed] += 1
        self._check_came(who, found)
        if max(found.values(), default=0) > (1 if self._lanes == 1 or who != UNDERTAKER else 2):
            raise Violation(f"{who} gets {found.most_common(3)} several times")
        return found

    def _check_all(self, came: dict[str, Counter[int]]) -> None:
        """Each job is where it has to be: with the workers, or done, or dead; and with the audit, or done there."""
        dead = self._asked[UNDERTAKER] | came.get(UNDERTAKER, Counter()).keys()
        lost = self._sizes.keys() - came.get(WORKERS, Counter()).keys() - self._asked[WORKERS] - dead
        if lost:
            raise Violation(f"the workers never get {sorted(lost)[:5]} of {len(lost)}")
        lost = self._sizes.keys() - came.get(AUDIT, Counter()).keys() - self._asked[AUDIT]
        if lost:
            raise Violation(f"the audit never gets {sorted(lost)[:5]} of {len(lost)}")
        bills = came.get(CLERK, Counter()).keys() | self._asked[CLERK]
        lost = self._billed - bills
        if lost:
            raise Violation(f"the clerk never gets the bills of {sorted(lost)[:5]} of {len(lost)}")
        wrong = bills - self._billing
        if wrong:
            raise Violation(f"bills that nobody wrote: {sorted(wrong)[:5]}")
        torn = bills & (came.get(WORKERS, Counter()).keys() | came.get(UNDERTAKER, Counter()).keys())
        if torn:
            raise Violation(f"there is a bill, and the job is not done: {sorted(torn)[:5]}")
        twice = came.get(UNDERTAKER, Counter()).keys() & (came.get(WORKERS, Counter()).keys() | self._acked[WORKERS])
        if twice and self._lanes == 1:
            raise Violation(f"dead letters, and not moved or done before: {sorted(twice)[:5]}")

    def _check_settles(self, store: MessageStore, came: dict[str, Counter[int]]) -> None:
        """The disk comes within its bound, also where no message comes any more."""
        left = set[int]().union(*came.values())
        sizes = sum(self._sizes.get(seed, 1 << 13) + MESSAGE_BYTES for seed in left)
        allowed = 2 * sizes + SEGMENTS * self._segment_bytes * self._lanes
        until_s = time.monotonic() + SETTLES_S
        store._upkeep.wake()
        while (held := store._upkeep.removal.held_bytes()) > allowed:
            if time.monotonic() > until_s:
                raise Violation(f"the log takes {held} bytes for {len(left)} jobs, and may take {allowed}")
            time.sleep(0.05)
