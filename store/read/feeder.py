"""The thread that fills the message cache after the appends (R14), and late: messages in the ring need no cache.

So a burst that fits into the ring costs its appends nothing, and what is read and released meanwhile is never copied.
The thread is never waited for: what it does not get to before the ring is overwritten is not cached, and is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from ...cache import MessageCache
from ..device.background import Background, Bell
from ..log.written_lane import WrittenLane
from .feed import Fed, LaneFeed

TAKE_MESSAGES = 2048
STEP_PART = 4  # at most this part of the ring is copied in one go
BEGIN_PART = 2  # when this part of the ring waits, it is fed ..
END_PART = 8  # .. until only this part does
QUIET_S = 0.1  # nothing was appended for so long: what still waits is fed now, at nobody's expense
PAUSE_S = 50e-6  # really asleep: producers that wait for the interpreter lock get it


class Feeder:
    """Follows all lanes of a store. One thread; `settle` does its work in the caller's.

    Invariant: what a reader finds in the cache was intact in the ring after it had been copied.
    """

    def __init__(self, cache: MessageCache, lanes: Sequence[WrittenLane], give_up: Callable[[Exception], None]) -> None:
        """`give_up` is called with the error that ends the feeding."""
        self._cache = cache
        self._give_up = give_up
        self._feeds = [LaneFeed(lane, len(lanes)) for lane in lanes]
        self._stepping = threading.Lock()
        self._wake = Bell()
        self._asleep = self._closing = False
        self.missed_messages = 0
        self._thread = Background(self._run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def look(self) -> None:
        """Something became durable. On the way of the appends: nothing is looked at but two numbers a lane."""
        if self._asleep:
            for feed in self._feeds:
                if feed.lane.durable > feed.wake_above:
                    self._wake.set()

    def settle(self) -> None:
        """Cache all that is durable now."""
        while self.step():
            pass

    def close(self) -> None:
        """End the thread; what it did not get to stays uncached. No lane is followed any longer."""
        self._closing = True
        self._wake.set()
        self._thread.join()
        self._stop_feeds()

    def _stop_feeds(self) -> None:
        """Let go of the lanes' tables and segments: whoever waits for a segment's end would wait for ever."""
        for feed in self._feeds:
            feed.stop()

    def _run(self) -> None:
        try:
            while not self._closing:
                if not self._waits(BEGIN_PART):
                    self._sleep()
                    continue
                while self._waits(END_PART) and self.step() and not self._closing:
                    time.sleep(PAUSE_S)
        except Exception as error:  # a cache is never worth an append
            self._stop_feeds()
            self._give_up(error)

    def _sleep(self) -> None:
        """Wait until the ring wants to be fed from, or all is quiet; then feed the rest."""
        self._wake.clear()
        before = [feed.lane.durable for feed in self._feeds]
        for feed in self._feeds:
            feed.wake_above = 0  # whatever comes
        self._asleep = True  # from now on told of what comes; what came before is looked for once more
        some = self._waits(None)
        if some:
            for feed in self._feeds:
                feed.wake_above = feed.taken_until() + feed.lane.ring.size_bytes // BEGIN_PART
        due = self._closing or self._waits(BEGIN_PART) or self._wake.wait(QUIET_S if some else None)
        self._asleep = False
        while not due and not self._closing and before == [feed.lane.durable for feed in self._feeds] and self.step():
            time.sleep(PAUSE_S)

    def _waits(self, part: int | None) -> bool:
        """Whether more than this part of a ring waits to be cached; anything at all, if None."""
        for feed in self._feeds:
            waiting = feed.waiting_bytes()
            if waiting and (part is None or waiting > feed.lane.ring.size_bytes // part):
                return True
        return False

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
        for cut in batch.cuts(ring.size_bytes // STEP_PART, batch.lengths):
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
