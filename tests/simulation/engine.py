"""The real store without its threads, so that a seed decides what happens when.

Nothing of the store is replaced but what makes a run depend on the machine or on other runs: threads (the run takes
their steps), the clock, the random id of a new store, the lock of the real folder (each disk has its own, and only the
tries of interrupts take the real one), and the process's list of open segments. And what zlib makes of a few names is
remembered: it would make the same of them in every recovery. Everything that touches the private side of the store for
this is in this file, and in `recovered.py` what looks at a disk without opening a store on it.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from operator import attrgetter
from os import PathLike
from pathlib import Path, PosixPath
from types import SimpleNamespace
from typing import Any
from unittest import mock
from weakref import WeakSet

from stratalog.store import MessageStore, StoreConfig, StoreCorrupt, StoreFull, StoreLocked, StoreReader, StoreUnusable
from stratalog.store.api.running import _RUNNING
from stratalog.store.device import open_files as opened
from stratalog.store.device.disk import Disk
from stratalog.store.device.folder import LOCK_FILE, FolderLock, enter_folder
from stratalog.store.format.footer import pack_names
from stratalog.store.format.records import StreamLow
from stratalog.store.log.flusher import Flusher
from stratalog.store.log.lane import Lane
from stratalog.store.log.queue import RequestQueue
from stratalog.store.log.request import Request
from stratalog.store.log.streams import Change
from stratalog.store.log.trims import TrimRequest
from stratalog.store.log.write import Write
from stratalog.store.read.cached import CachedBytes
from stratalog.store.read.reader import Reader

from ..clocks import WallClock
from .interrupts import StepInterrupter

SMALL_RING = 512 << 10
TASKS = (
    "sealer.seal_full", "removal.retire", "removal.clear_away", "_keep_ahead", "_give_way", "early.seal",
)  # of `Upkeep`  # fmt: skip
CLOCKED = ("device.leased", "segment.segment", "segment.windows", "read.lane_places")


class _Inline:
    """An executor that does its work when it is given."""

    def __init__(self, *given: Any, **more: Any) -> None:
        pass

    def submit(self, work: Callable[..., Any], *given: Any) -> Any:
        done = work(*given)
        return SimpleNamespace(result=lambda: done)

    def shutdown(self, **how: Any) -> None:
        pass


class _DiskLock:
    """The lock of the one store on a simulated disk."""

    def __init__(self, folder: Path) -> None:
        self._disk: Disk | None = None

    def take(self, disk: Disk) -> None:
        if disk in _LOCKED:
            raise StoreLocked("the disk's store is open already")
        self._disk = disk
        _LOCKED.add(disk)

    @property
    def held(self) -> bool:
        return self._disk is not None

    def is_in_place(self) -> bool:
        return True

    def release(self) -> None:
        if self._disk is not None:
            _LOCKED.discard(self._disk)
            self._disk = None


_LOCKED: WeakSet[Disk] = WeakSet()


class KeptPath(PosixPath):
    """A path that makes each path below it once: recoveries by the thousand ask for the same few."""

    def __truediv__(self, name: str | PathLike[str]) -> KeptPath:
        below: dict[str | PathLike[str], KeptPath] = self.__dict__.setdefault("below", {})
        if name not in below:
            below[name] = super().__truediv__(name)
        return below[name]


@cache
def home() -> KeptPath:
    """The folder of all simulated stores. Only folders are real in it; it is removed with the process."""
    holder = tempfile.TemporaryDirectory(prefix="stratalog-simulation-")
    _HOLDERS.append(holder)
    made = KeptPath(os.path.realpath(holder.name)) / "store"
    made.mkdir()
    (made / LOCK_FILE).touch()  # so that all openings are alike
    return made


_HOLDERS: list[tempfile.TemporaryDirectory[str]] = []


@cache
def _packed(topics: tuple[str, ...]) -> bytes:
    return pack_names(topics)


def _pack_once(topics: Iterable[str]) -> bytes:
    """The real `pack_names`: zlib clears 300 KB to compress a single byte."""
    return _packed(tuple(topics))


class Ticks:
    """The clock of readers, by which leases and pages are looked at again: it goes on a little with each look at it."""

    now = 0.0

    @classmethod
    def monotonic(cls) -> float:
        """In seconds."""
        cls.now += 0.01
        return cls.now


@contextmanager
def apart() -> Iterator[None]:
    """What is opened inside does not count among the open segments outside, of which the oldest are let go."""
    outside, opened.OPENED, now = opened.OPENED, deque(), Ticks.now
    try:
        yield
    finally:
        opened.OPENED, Ticks.now = outside, now


class Naps:
    """What the others do while a builder sleeps until a write has ended: `step` has one of them go on."""

    @staticmethod
    def step() -> None:
        """Of a run without other threads."""
        raise AssertionError("a builder waits for a write, and there is none")

    @classmethod
    def sleep(cls, _: float) -> None:
        """In place of `time.sleep`."""
        cls.step()


def _one_after_the_other(_: object, calls: Sequence[Callable[[], None]]) -> None:
    """In place of the threads that write side by side; from the last lane to the first, or the other way round."""
    for call in calls if len(calls) % 2 else reversed(calls):
        call()


SMALL_FOOTERS = {"FEW_STREAMS": 0, "SMALL_SHARE": 0.5, "GROUP_SEGMENTS": 3}  # also of lanes of a few streams


@contextmanager
def deterministic() -> Iterator[None]:
    """Without threads while the block lasts."""
    with ExitStack() as stack:
        stack.enter_context(apart())
        stack.enter_context(mock.patch("stratalog.store.format.footer.pack_names", _pack_once))
        stack.enter_context(mock.patch("stratalog.store.segment.scanner.ThreadPoolExecutor", _Inline))
        stack.enter_context(mock.patch("stratalog.store.device.background.Background.start", lambda thread: None))
        stack.enter_context(mock.patch("stratalog.store.segment.sealing._pause", lambda: None))
        for name, value in SMALL_FOOTERS.items():
            stack.enter_context(mock.patch(f"stratalog.store.segment.sealing.{name}", value))
        stack.enter_context(mock.patch("stratalog.store.log.early.PATIENCE_S", 0.0))
        stack.enter_context(mock.patch("stratalog.store.log.ahead.REST_S", 0.0))
        stack.enter_context(mock.patch("stratalog.store.log.flusher.time", SimpleNamespace(sleep=Naps.sleep)))
        stack.enter_context(mock.patch("stratalog.store.log.rounds.Crew.do_all", _one_after_the_other))
        stack.enter_context(mock.patch("stratalog.store.live.page.boot_id", Machine.boot_id))
        stack.enter_context(mock.patch("stratalog.store.live.publisher.boot_id", Machine.boot_id))
        stack.enter_context(mock.patch("stratalog.store.api.store.enter_folder", _enter))
        stack.enter_context(mock.patch("stratalog.store.api.running.FolderLock", _DiskLock))
        for module in CLOCKED:
            stack.enter_context(mock.patch(f"stratalog.store.{module}.monotonic", Ticks.monotonic))
        yield


def _enter(disk: Disk, folder: Path, lock: _DiskLock) -> None:
    lock.take(disk)
    try:
        disk.make_folder(folder)
    except OSError as error:
        raise StoreUnusable(f"{folder} cannot be used as a store: {error}") from error  # as the real one does


def open_store(
    disk: Disk,
    config: StoreConfig,
    clock: Callable[[], int],
    chance: random.Random,
    *,
    repair: bool = False,
    path: Path | None = None,
    real_lock: bool = False,
) -> MessageStore:
    """Open a store whose times and new names come from the run. `path` is None for `home()`."""
    with ExitStack() as stack:
        if real_lock:
            stack.enter_context(mock.patch("stratalog.store.api.store.enter_folder", enter_folder))
            stack.enter_context(mock.patch("stratalog.store.api.running.FolderLock", FolderLock))
        stack.enter_context(mock.patch("stratalog.store.device.folder.secrets.token_bytes", chance.randbytes))
        if config.cache is not None:
            ring_bytes = "stratalog.store.api.lanes.ring_bytes"
            stack.enter_context(mock.patch(ring_bytes, lambda config, recent_bytes: SMALL_RING))
        store = MessageStore.open(
            home() if path is None else path, config, disk=disk, repair=repair, clock=WallClock(clock)
        )  # fmt: skip
    if config.cache is not None:
        _look_past_the_ring(store._reader)
    return store


def open_reader(disk: Disk) -> StoreReader:
    """Open the store on a disk for reading alone, as another process does."""
    return StoreReader.open(home(), disk=disk, clock=WallClock(lambda: 0))


class Machine:
    """The machine of a run. After a power cut it has another number for its start."""

    starts = 0

    @classmethod
    def boot_id(cls) -> bytes:
        """16 bytes."""
        return cls.starts.to_bytes(16, "little")


def _look_past_the_ring(reader: Reader) -> None:
    """A run writes too little to overtake the ring: half of the reads do as if it had, and find the caches."""
    chance, fetch, newest = random.Random("past the ring"), reader.bytes, reader._newest
    assert isinstance(fetch, CachedBytes)
    is_recent = fetch.log.is_recent
    vars(fetch.log).update(is_recent=lambda *given: is_recent(*given) and chance.random() < 0.5)
    vars(reader).update(_newest=lambda *given: newest(*given) if chance.random() < 0.5 else None)


def abandon(store: StoreReader) -> None:
    """The process has died: give its lock and its memory back, and nothing else."""
    store._running.ended = True
    store._running.lock.release()
    with suppress(ValueError):  # it has ended
        _RUNNING.remove(store._running)
    for lane in store._lanes:
        lane.close()
    store._caches.close()


def feed_cache(store: MessageStore) -> None:
    """What the thread of the cache does when it gets on."""
    if store._feeder is not None:
        store._feeder.step()


def contents_of(store: MessageStore, queue: tuple[str, int], first: int) -> dict[int, bytes]:
    """All messages of a queue by `get_range`, a few at a time; repaired gaps are left out."""
    _, end = store.queue_bounds(*queue)
    found: dict[int, bytes] = {}
    for at in range(first, end, 5):
        found.update({at + index: data for index, data in store.get_range(*queue, at, min(5, end - at)).items()})
    return found


def lanes_of(store: MessageStore) -> list[tuple[Lane, RequestQueue[Request]]]:
    """The lanes with their queues."""
    return list(zip(store._lanes, store._queues, strict=True))


def bounds_of(store: MessageStore, queue: tuple[str, int]) -> tuple[int, int]:
    """(first, next) of a queue as readers see it, also while the store closes."""
    stream = store._streams.get(*queue)
    return store._reader.bounds(stream) if stream is not None else (0, 0)


def changes_of_trim(store: MessageStore, queue: tuple[str, int], low: int) -> list[Change]:
    """What `trim` changes."""
    stream = store._streams.get(*queue)
    assert stream is not None
    return [(stream, StreamLow(low))]


def changes_of_topic(store: MessageStore, topic: str) -> list[Change]:
    """What `delete_topic` changes."""
    return store._trimming.changes_of(topic)


def requests_of(store: MessageStore, changes: list[Change]) -> list[TrimRequest]:
    """The records of these, not handed over yet."""
    return store._trimming.requests_of(changes)


def flushers_of(store: MessageStore) -> list[Flusher]:
    """The flushers, one a lane, each for `threads_of(store)` threads."""
    return store._flushers


def threads_of(store: MessageStore) -> int:
    """Threads of a flusher."""
    return 2 if store.config.durability == "force" else 1


def is_ready(queue: RequestQueue[Request]) -> bool:
    """May a flusher take a batch now?"""
    return queue._is_ready()


def build_step(flusher: Flusher, *, came: bool) -> tuple[list[Write], bool]:
    """Take, build, plan: the writes, and whether nothing will come any more."""
    writes = flusher.next_writes(not came)
    return writes, flusher.ended


def write_step(flusher: Flusher, write: Write) -> None:
    """Perform and complete one write."""
    flusher.perform([write])


def fail_step(flusher: Flusher, error: BaseException) -> None:
    """What a flusher does when a write or force has failed."""
    flusher.fail(error)


def settle(store: MessageStore) -> None:
    """Let the flushers do all that is there to do."""
    for flusher in store._flushers:
        while is_ready(flusher.queue) or flusher.lane.tail > flusher.lane.issued:
            writes, ended = build_step(flusher, came=is_ready(flusher.queue))
            for write in writes:
                write_step(flusher, write)
            if ended:
                break


def upkeep_step(store: MessageStore, task: int) -> bool:
    """One of the things that the background does; the caller has them all come again and again.

    True if this was retention, and it went through.
    """
    upkeep = store._upkeep
    if task < len(TASKS):
        with mock.patch.object(upkeep.removal, "_force", partial(_force_for_removal, store)):
            return _tried(attrgetter(TASKS[task])(upkeep)) and TASKS[task] == "removal.retire"
    if task == len(TASKS):
        upkeep._mark_idle()
    elif store.config.durability == "os":
        _tried(upkeep._force)
    return False


def _force_for_removal(store: MessageStore) -> None:
    """What removal has the flushers do with "os", and waits for; here it comes again later."""
    lanes = [flusher.lane for flusher in store._flushers]
    if store.config.durability == "os" and any([lane.tail > lane.under_way.forced for lane in lanes if lane.segment]):
        store._upkeep._force()
        raise OSError("the flushers have something to do")


def _tried(task: Callable[[], None]) -> bool:
    """As `Upkeep._try` does it, but for what nobody expects: that would only be noted there. True if it worked."""
    with suppress(StoreFull, OSError, StoreCorrupt):
        task()
        return True
    return False


def give_way(store: MessageStore) -> None:
    """What the background does again and again: nobody waits for long who wants to write to a sealed segment."""
    store._upkeep._give_way()


@contextmanager
def stored_footers(store: MessageStore) -> Iterator[None]:
    """Nothing of a footer is held: each look reads what it wants, as with footers that are too large for the memory."""
    store._lanes[0].index_memory.footers.limit_bytes = 0
    with mock.patch("stratalog.store.format.footer.HELD_PART", 1 << 40):
        yield


def sealed_paths(store: MessageStore) -> list[tuple[int, Path, int]]:
    """The lane, file and footer's position of each sealed segment that readers see."""
    return [
        (lane.index, sealed.segment.path, sealed.record.footer_position)
        for lane in store._lanes
        for sealed in lane.view.sealed
    ]


def close_store(
    store: MessageStore, drain: Callable[[], None], drain_rounds: Callable[[], None] = lambda: None
) -> None:
    """Close in order; `drain` does what the flushers would do until they end, `drain_rounds` what the rounds would."""
    with ExitStack() as stack:
        if store._running.rounds is not None:
            stack.enter_context(mock.patch.object(store._running.rounds, "join", drain_rounds))
        for flusher in store._flushers:
            stack.enter_context(mock.patch.object(flusher, "join", drain))
        store.close()


def lowest_segment(store: MessageStore, lane: int) -> int:
    """The number of the first segment that the readers of a lane see; 0 if there is none."""
    view = store._lanes[lane].view
    segments = [sealed.segment for sealed in view.sealed] + [opened.segment for opened in view.open]
    return segments[0].sequence if segments else 0


def newest_segments(store: MessageStore) -> list[int]:
    """The number of the newest segment of each lane that takes frames, or took some."""
    found = []
    for lane in store._lanes:
        segments = [sealed.segment for sealed in lane.view.sealed] + [opened.segment for opened in lane.view.open]
        found.append(segments[-1].sequence if segments else 0)
    return found


def removable_count(store: MessageStore, lane: int) -> int:
    """How many sealed segments of a lane may go: not the newest, and none from that of the newest full footer on."""
    sealed = store._lanes[lane].view.sealed
    full = max((index for index, one in enumerate(sealed) if one.record.full), default=0)
    return min(full, max(0, len(sealed) - 1))


def bounds_held(store: MessageStore) -> int:
    """The bytes that retention counts."""
    return store._upkeep.removal.held_bytes()


def retention_works(store: MessageStore) -> bool:
    """False behind a removal that could not be forced: nothing more is removed in that life."""
    return store._upkeep.removal._retires


def is_locked(disk: Disk) -> bool:
    """Is a store open on the disk?"""
    return disk in _LOCKED


@contextmanager
def stop_at_close(interrupter: StepInterrupter | None) -> Iterator[None]:
    """A step of another thread while the main one closes the store: an interrupt may come before it, never inside."""
    if interrupter is None or interrupter.paused:
        yield
        return
    interrupter.paused = True
    try:
        yield
    finally:
        interrupter.paused = False
