"""The thread that feeds the message cache behind the appends (R14).

It is never waited for: what it does not get to before the ring is overwritten is not cached, and is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from cache import MessageCache

from .feed import Fed, LaneFeed
from .lane import Lane

TAKE_MESSAGES = 2048
STEP_BYTES = 4 << 20  # copied in one go: the interpreter lock is held for a few milliseconds
GATHER_S = 0.05  # a call of the cache costs as much as dozens of messages: let some come together
HURRY_PART = 8  # no gathering while more than this part of the ring waits
PAUSE_S = 50e-6  # really asleep: producers that wait for the interpreter lock get it


class Feeder:
    """Follows all lanes of a store. One thread; `settle` does its work in the caller's.

    Invariant: what a reader finds in the cache was intact in the ring after it had been copied.
    """

    def __init__(self, cache: MessageCache, lanes: Sequence[Lane]) -> None:
        self._cache = cache
        self._feeds = [LaneFeed(lane, len(lanes)) for lane in lanes]
        self._stepping = threading.Lock()
        self._wake = threading.Event()
        self._idle = False
        self._closing = False
        self.missed_messages = 0
        self.error: str | None = None
        self._thread = threading.Thread(target=self._run, name="stratalog-cache", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def look(self) -> None:
        """Something became durable."""
        if self._idle:
            self._wake.set()

    def settle(self) -> None:
        """Cache all that is durable now."""
        while self.step():
            pass

    def close(self) -> None:
        """End the thread; what it did not get to stays uncached."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing:
                if not self.step():
                    self._sleep()
                elif not self._hurries():
                    time.sleep(GATHER_S)
        except Exception as error:  # a cache is never worth an append
            self.error = f"the message cache is off: {type(error).__name__}: {error}"
            self._cache.close()

    def _sleep(self) -> None:
        self._wake.clear()
        self._idle = True  # from now on told of what comes; what came before is looked for once more
        if not self._closing and not self.step():
            self._wake.wait()
        self._idle = False

    def _hurries(self) -> bool:
        return any(feed.behind_bytes() > feed.lane.ring.size_bytes // HURRY_PART for feed in self._feeds)

    def step(self) -> bool:
        """Cache some of what is durable, of each lane; False if there was nothing."""
        some = False
        with self._stepping:
            for feed in self._feeds:
                for fed in feed.take(TAKE_MESSAGES):
                    some = True
                    self._fill(feed, fed)
        return some

    def _fill(self, feed: LaneFeed, fed: Fed) -> None:
        ring, batch = feed.lane.ring, fed.batch
        for cut in batch.cuts(STEP_BYTES, batch.lengths):
            if cut.start:
                time.sleep(PAUSE_S)
            some, positions = batch.part(cut), fed.positions[cut]
            low = fed.low + int(positions[0] - fed.positions[0])

            def is_intact(low: int = low) -> bool:
                return low >= ring.low

            if is_intact():
                self._cache.fill(some, positions, is_intact)
            if not is_intact():
                self.missed_messages += len(some)  # about: it may have been overtaken a moment ago
                self._cache.left_out(some.lengths)
