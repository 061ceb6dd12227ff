"""The real store in one thread: what is handed to a lane is built, written and answered before the call goes on.

So calls that wait, as `ack` and `cancel_delayed` do, need no thread, and a seed decides everything. Limits that a run
of some hundred messages would never reach are small here. All that touches the private side of the store for this is
in this file, and in `..engine`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from unittest import mock
from weakref import WeakKeyDictionary

from stratalog.index import BucketTracker
from stratalog.store import MessageStore, StoreConfig, StoreError, Subscription
from stratalog.store.delayed.delays import Delays
from stratalog.store.delayed.parts import DiskFiles
from stratalog.store.device.clock import SystemClock
from stratalog.store.log.flusher import Flusher
from stratalog.store.log.queue import RequestQueue
from stratalog.store.log.request import Barrier, Request
from stratalog.store.log.ticket import SubmitRequest
from stratalog.store.testing import SimulatedDisk

from ..engine import abandon, build_step, deterministic, fail_step, flushers_of, home, is_ready, write_step

START_MS = 1_700_000_000_000
LIMITS: dict[str, object] = {  # what a run of some hundred messages would not reach otherwise
    "stratalog.store.subscriptions.journal.LEAST_BYTES": 300,
    "stratalog.store.subscriptions.journal.READ_MESSAGES": 5,
    "stratalog.store.subscriptions.scanner.AHEAD_MESSAGES": 4,
    "stratalog.store.subscriptions.delays.DUE_PLACES": 6,
    "stratalog.store.delayed.decisions.COMPACT_BYTES": 60,
    "stratalog.store.delayed.topic.DRAINED_ROWS": 5,
    "stratalog.store.delayed.delays.CHECKPOINT_ROWS": 12,
    "stratalog.store.delayed.copies.READ_MESSAGES": 3,
    "stratalog.store.delayed.opening.READ_MESSAGES": 3,
    "stratalog.store.delayed.keeping.COPIED_BYTES": 2000,
    "stratalog.store.delayed.work_queues.LOOK_S": 0.1,
    "stratalog.store.delayed.work_queues.LOOK_TIMES": 0,
    "stratalog.store.delayed.due_scan.STEP_MESSAGES": 7,
    "stratalog.store.format.delays.MOST_ROWS": 3,
}
DRAWN_LIMITS: dict[str, tuple[object, ...]] = {  # by the run's seed; the first is the store's own
    "stratalog.store.subscriptions.news.FEW_QUEUES": (64, 1),
    "stratalog.store.delayed.due_list.DUE_ROWS": (1 << 20, 3, 9),
    "stratalog.store.delayed.topic_index.MEASURED_ROWS": (1 << 12, 1, 5),
    "stratalog.store.delayed.due_list.STALE_S": (10.0, 0.05),
    "stratalog.store.delayed.delays.MEMORY_LIMIT_BYTES": (256 << 20, 256 << 20, 2_000, 20_000),
    "stratalog.store.delayed.delays.STEPS": (4, 1),
    "stratalog.store.delayed.due_list.TAKEN_ROWS": (1 << 16, 2),
    "stratalog.index.trackers.tracker.PORTION_ROWS": (1 << 17, 3),
    "stratalog.index.trackers.time_buckets.INBOX_ROWS": (4096, 4),
    "stratalog.index.trackers.time_buckets.FEW_ROWS": (1024, 3),
    "stratalog.index.trackers.ordered.LEAST_PULLED": (1024, 2),
    "stratalog.store.delayed.work_queues.LOOKED_AT": (32, 2),
}
TRACKER: dict[str, int] = {"seal_entries": 4, "most_entries": 9, "segment_entries": 3, "most_buckets": 2}
STATE_BYTES = 120  # of a part of a cursor's snapshot


class RunClock(SystemClock):
    """Both times are what the run has set."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        self.passed_ms = 0

    def wall_ms(self) -> int:
        """The time of day."""
        return self.now_ms

    def monotonic_s(self) -> float:
        """It does not jump. A little is added: times 1,000 it is to be the whole number again, and none below."""
        return 1000 + self.passed_ms / 1000 + 1e-7

    def go(self, ms: int) -> None:
        """Some time passes."""
        self.now_ms += ms
        self.passed_ms += ms


class Inline:
    """Does the flushers' work in the thread that puts. While it `lags`, tickets wait for a request that does not."""

    def __init__(self) -> None:
        self.lags = False
        self._beside: tuple[Sequence[RequestQueue[Request]], Callable[[], None]] | None = None
        self.is_driving = False  # what runs is the work of a flusher's thread
        self._flushers: WeakKeyDictionary[RequestQueue[Request], Flusher] = WeakKeyDictionary()

    @contextmanager
    def lagging(self) -> Iterator[None]:
        """Tickets that are handed over inside stay under way."""
        self.lags = True
        try:
            yield
        finally:
            self.lags = False

    @contextmanager
    def beside(self, store: MessageStore, call: Callable[[], None]) -> Iterator[None]:
        """After each group of records that is handed over to a store inside, somebody else makes a call."""
        self._beside = store._queues, call
        try:
            yield
        finally:
            self._beside = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Stores that are opened while it lasts work by it."""
        put = RequestQueue.put

        def start(flusher: Flusher) -> None:
            self._flushers[flusher.queue] = flusher

        def put_and_drive(queue: RequestQueue[Request], request: Request, *, wait: bool = True) -> bool:
            found = put(queue, request, wait=wait)
            if not (self.lags and isinstance(request, SubmitRequest)):
                self.drive(self._flushers[queue])
            beside = self._beside
            if beside is not None and queue in beside[0]:  # another store may be opened meanwhile, of a crash
                self._beside = None
                beside[1]()
                self._beside = beside
            return found

        def join(flusher: Flusher) -> None:
            while not flusher.ended:
                self.drive(flusher)

        with ExitStack() as stack:
            for owner, name, call in (
                (Flusher, "start", start), (Flusher, "join", join), (RequestQueue, "put", put_and_drive),
            ):  # fmt: skip
                stack.enter_context(mock.patch.object(owner, name, call))
            yield

    def drive(self, flusher: Flusher) -> None:
        """Build and write all that is there. A write that fails poisons the lane, as in its thread."""
        queue, lane = flusher.queue, flusher.lane
        was_driving, self.is_driving = self.is_driving, True
        try:
            while not flusher.ended and (is_ready(queue) or lane.tail > lane.issued):
                for write in build_step(flusher, came=is_ready(queue))[0]:
                    write_step(flusher, write)
        except (OSError, StoreError) as error:
            fail_step(flusher, error)
        finally:
            self.is_driving = was_driving

    def drive_all(self, store: MessageStore) -> None:
        """The same of all lanes."""
        for flusher in flushers_of(store):
            self.drive(flusher)


def _small_tracker(files: DiskFiles) -> BucketTracker:
    """As the store makes it, but for its sizes."""
    return BucketTracker("", files=files, memory_limit_bytes=None, seal_after_ms=300, segment_ms=200, **TRACKER)


@contextmanager
def inline(seed: int = 0) -> Iterator[Inline]:
    """Stores that are opened inside have no threads, and small limits; the seed draws some of them."""
    driver, chance = Inline(), random.Random(f"limits {seed}")
    drawn = {name: chance.choice(values) for name, values in DRAWN_LIMITS.items()}
    with ExitStack() as stack:
        stack.enter_context(deterministic())
        stack.enter_context(driver.installed())
        stack.enter_context(mock.patch("stratalog.store.delayed.opening._tracker", _small_tracker))
        for name, value in (LIMITS | drawn).items():
            stack.enter_context(mock.patch(name, value))
        yield driver


def open_on(disk: SimulatedDisk, config: StoreConfig, clock: RunClock, chance: random.Random) -> MessageStore:
    """Open the store on a disk; a new one gets its id from `chance`."""
    with mock.patch("stratalog.store.device.folder.secrets.token_bytes", chance.randbytes):
        return MessageStore.open(home(), config, disk=disk, clock=clock)


def end(store: MessageStore) -> None:
    """The process has died: let go of all that it had, and write nothing."""
    abandon(store)
    store._running.end()  # takes it from the list of those that are open


def cut_snapshots(subscription: Subscription) -> None:
    """Have the snapshots of a cursor come in several records, each handed over alone."""
    subscription._state.limit_bytes = subscription._state.parts.hidden._limit_bytes = STATE_BYTES


def lane_of_cursor(subscription: Subscription) -> int:
    """The lane of a subscription's records."""
    stream = subscription._state.journal.stream
    assert stream is not None
    return stream.lane.index


def kept_error(subscription: Subscription) -> StoreError | None:
    """What an earlier receive met beside what it gave out: the next one raises it, and takes nothing."""
    return subscription._dispatcher._failed


def compact_cursor(subscription: Subscription) -> None:
    """Write a snapshot of a cursor now."""
    with subscription._state.changing:
        subscription._state.compact()


def force(store: MessageStore, lane: int) -> None:
    """Have a lane force what it has written, as `OpenStore.force_lazily` does: a force that fails poisons the store."""
    if store._lanes[lane].segment is not None:
        with suppress(StoreError):
            store._running.queues[lane].put(Barrier(), wait=False)


def is_poisoned(store: MessageStore) -> bool:
    """Has a write or force of a lane failed?"""
    return store._running.poison is not None


def delays_of(store: MessageStore) -> Delays:
    """The delayed messages of a store that writes."""
    assert store._running.delays is not None
    return store._running.delays


def work(store: MessageStore) -> None:
    """What the thread of the delays does when it gets on."""
    delays_of(store).work()


def is_behind(store: MessageStore) -> bool:
    """Has an index not read all of the log yet?"""
    return any(topic.is_lagging for topic in delays_of(store).topics.values())


def is_held_up(store: MessageStore) -> bool:
    """Does nothing more become due in a topic until some subscription has taken what is?"""
    return any(topic.due.is_held_up for topic in delays_of(store).topics.values())


def has_untaken(subscription: Subscription) -> bool:
    """Is something due that a subscription has not taken yet? Others may have made it so."""
    pointer = subscription._dispatcher.delays._pointer
    return pointer is not None and pointer.at < pointer._topic.due.end


def is_paused(store: MessageStore) -> bool:
    """Is an index behind, and takes no more, as it is at its limit of memory?"""
    return any(topic.is_lagging and topic.is_full() for topic in delays_of(store).topics.values())


def checkpoint(store: MessageStore) -> None:
    """Bring the files of all indexes up to date."""
    for topic in delays_of(store).topics.values():
        delays_of(store).checkpoint(topic)


def compact_changes(store: MessageStore) -> None:
    """Write the changes of delays anew."""
    for topic in delays_of(store).topics.values():
        topic.decisions.compact()


def drop_copies(store: MessageStore) -> None:
    """Let go of the copies that nobody wants."""
    for topic in delays_of(store).topics.values():
        delays_of(store).drop_copies(topic)
