"""A store that serves readers while its files are cut and blocks go bad: right bytes or an error, and no signal."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from stratalog.store import MessageStore, StoreError
from stratalog.store.format.records import RECORDS_TOPIC
from stratalog.store.testing import BLOCK_BYTES, SimulatedDisk

from ..store.helpers import scanned
from .check import BrokenPromise
from .engine import Ticks, abandon, apart, bounds_of, give_way, lanes_of, open_store, sealed_paths, stored_footers
from .ledger import Queue

if TYPE_CHECKING:
    from .world import World

STEPS = 60
AT_ONCE = 40  # messages

Way = Callable[[MessageStore, Queue, int, int], dict[int, bytes]]


class ServedTrial:
    """Opens a store on what a crash left, and reads, with harm in between.

    Promises: a read gives the messages that were sent, or raises an error of the store's. It raises none for a queue
    of a lane without harm. A program that wants to cut a file does not wait longer than the background needs.
    """

    def __init__(self, world: World, disk: SimulatedDisk, chance: random.Random) -> None:
        self._world = world
        self._disk = disk
        self._chance = chance
        self._harmed: set[int] = set()  # lanes

    def run(self, counts: Counter[str]) -> None:
        """All steps, counted by what they did. Raises BrokenPromise."""
        world = self._world
        with apart():
            config = world.settings.config(world.shape.lanes)
            store = open_store(self._disk, config, lambda: world.now_ms, random.Random(0))
            is_stored = self._chance.random() < 0.5
            try:
                with stored_footers(store) if is_stored else nullcontext():
                    self._serve(store, counts)
            finally:
                abandon(store)

    def _serve(self, store: MessageStore, counts: Counter[str]) -> None:
        lanes = {
            (stream.topic, stream.queue_id): lane.index
            for lane, _ in lanes_of(store)
            for stream in lane.streams
            if stream.topic != RECORDS_TOPIC and bounds_of(store, (stream.topic, stream.queue_id))[1]
        }
        if not lanes:
            return
        counts["served"] += 1
        for _ in range(STEPS):
            draw = self._chance.random()
            if draw < 0.1:
                counts[f"served: {self._harm(store)}"] += 1
            elif draw < 0.2:
                give_way(store)
            elif draw < 0.3:
                Ticks.now += self._chance.choice((0.1, 0.6, 2.0))
            else:
                queue, way = self._chance.choice(sorted(lanes)), self._chance.choice(WAYS)
                try:
                    counts["served: messages while files are harmed"] += self._read(store, queue, way)
                except StoreError as error:
                    if not (self._harmed and (lanes[queue] in self._harmed or way is _by_scan)):
                        raise BrokenPromise(f"{queue} of a lane without harm cannot be read: {error}") from error
                    counts[f"served: {type(error).__name__}"] += 1
        give_way(store)
        if self._disk.has_waiting():
            raise BrokenPromise("a program that wants to cut a file waits, and the background has looked")

    def _harm(self, store: MessageStore) -> str:
        """Cut a sealed segment, or make a block bad: in its footer, before it, anywhere."""
        chance, paths = self._chance, sealed_paths(store)
        if not paths:
            return "nothing to harm"
        lane, path, footer = chance.choice(paths)
        self._harmed.add(lane)
        size = self._disk.sizes()[path]
        footer = min(footer, size - 1)  # it may have been cut before
        if footer <= 2 * BLOCK_BYTES:
            return "nothing left to harm"
        place = chance.choice((chance.randrange(footer, size), chance.randrange(2 * BLOCK_BYTES, footer), footer))
        if chance.random() < 0.4:
            waits = not self._disk.cut(path, place)
            return "cut that waits for a lease" if waits else "cut at once"
        # What was seen in memory a moment ago is still there.
        Ticks.now += 1.0
        self._disk.spoil(path, place)
        return "bad block"

    def _read(self, store: MessageStore, queue: Queue, way: Way) -> int:
        """Read something of a queue in one way: how many messages. Raises StoreError."""
        chance = self._chance
        first, end = store.queue_bounds(*queue)
        if first >= end:
            return 0
        at, count = chance.randrange(first, end), chance.choice((1, 1, 3, AT_ONCE))
        found = way(store, queue, at, count)
        for offset, data in found.items():
            self._world.checker.compare_message(queue, offset, data)
        return len(found)


def _by_range(store: MessageStore, queue: Queue, at: int, count: int) -> dict[int, bytes]:
    return {at + index: data for index, data in store.get_range(*queue, at, count).items()}


def _by_read(store: MessageStore, queue: Queue, at: int, count: int) -> dict[int, bytes]:
    return {message.offset: message.data for message in store.read(*queue, at, max_messages=count)}


def _by_batch(store: MessageStore, queue: Queue, at: int, count: int) -> dict[int, bytes]:
    batch = store.read_batch(*queue, at, max_messages=count)
    return dict(zip(batch.offsets.tolist(), map(bytes, batch.payloads()), strict=True))


def _by_scan(store: MessageStore, queue: Queue, at: int, count: int) -> dict[int, bytes]:
    return scanned(store).get(queue, {})


def _by_time(store: MessageStore, queue: Queue, at: int, count: int) -> dict[int, bytes]:
    store.offset_at(*queue, timestamp_ms=0)
    return {}


WAYS: tuple[Way, ...] = (
    _by_range, _by_range, _by_range, _by_read, _by_batch, _by_scan, _by_time,
)  # fmt: skip
