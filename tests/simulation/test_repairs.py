"""What the crash simulation takes for right of a repaired store."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import pytest

from stratalog.store import MessageStore, StoreConfig
from stratalog.store.format.layout import BLOCK_BYTES
from stratalog.store.format.records import Record, StreamLow
from stratalog.store.log.streams import lane_of
from stratalog.store.log.ticket import SubmitRequest
from stratalog.store.log.write import Write
from stratalog.store.recovery.lane_streams import LaneStreams
from stratalog.store.testing import SimulatedDisk

from .check import BrokenPromise, Checker
from .damage import segment_paths
from .engine import (
    abandon,
    build_step,
    changes_of_trim,
    deterministic,
    flushers_of,
    open_store,
    requests_of,
    settle,
    write_step,
)
from .ledger import Bounds, Ledger, Placed, Queue, records_of
from .recovered import recover
from .repairs import RepairTrial

QUEUE = "t", 0
HEAD = 40  # bytes of a frame before its message, more than a few of its header
ROWS = [bytes([number]) * 3 * BLOCK_BYTES for number in (1, 2, 3)]


def test_a_repair_may_find_what_a_crash_cut_off_until_the_store_was_opened_again() -> None:
    """The crash left a gap and a frame behind it, then a frame before the gap is damaged: nothing tells these apart."""
    with deterministic():
        disk, ledger, bounds = after_a_crash()
        RepairTrial(Checker(ledger), disk.copy(), bounds, {0}).run(random.Random(0), 0.0)
        ledger.opened()
        with pytest.raises(BrokenPromise, match="that nobody sent"):
            RepairTrial(Checker(ledger), disk, bounds, {0}).run(random.Random(0), 0.0)


def test_records_without_a_name_are_those_of_their_lane_though_another_lane_has_the_same_bytes() -> None:
    """Both lanes have the records low 1 and low 2 of stream 0. In lane 1 the frames that name streams are lost."""
    with deterministic():
        disk, ledger, bounds = two_lanes_alike()
        trial = RepairTrial(Checker(ledger), disk, bounds, {1})
        trial.run(random.Random(0), 0.0)
        present = trial.present(recover(disk))
    assert present[records_of(0)] == [0, 1]
    assert present[records_of(1)] == [1]


def test_a_stream_without_a_name_is_one_queue() -> None:
    """A repair that takes two streams for one is found, though each message has its own bytes and offset."""
    with deterministic():
        disk, ledger, bounds = two_lanes_alike()
        trial = RepairTrial(Checker(ledger), disk, bounds, {1})
        with mock.patch.object(LaneStreams, "know", joining), pytest.raises(BrokenPromise, match="has other bytes"):
            trial.run(random.Random(0), 0.0)


def test_a_message_in_another_lane_than_its_queue_is_found() -> None:
    with deterministic():
        disk, ledger, bounds = two_lanes_alike()
        trial = RepairTrial(Checker(ledger), disk, bounds, {1})
        found = recover(disk, repair=True)
        with pytest.raises(BrokenPromise, match="lane 1 has a message of"):
            trial.present([found[0], found[0]])


def joining(streams: LaneStreams, count: int, *given: object) -> None:
    """A bug: all names that are lost become one."""
    while len(streams.names) < count:
        streams._add(("lost-name-1", 0), 0)


def two_lanes_alike() -> tuple[SimulatedDisk, Ledger, Bounds]:
    """A store of two lanes. Each has three messages of a queue, and the records low 1 and low 2 between them.

    Of lane 1 the first message and the first record are damaged: nothing names its streams any more.
    """
    disk, ledger = SimulatedDisk(), Ledger(2)
    store = open_store(disk, StoreConfig(lanes=2), lambda: 1, random.Random(0))
    for lane in (0, 1):
        queue = next(("t", number) for number in range(64) if lane_of("t", number, 2) == lane)
        for count in (1, 2, 3):
            hand_message(store, ledger, lane, queue, bytes([16 * lane + count]) * 3 * BLOCK_BYTES)
            if count < 3:
                hand_trim(store, ledger, lane, queue, count)
    bounds = {queue: (0, len(rows)) for queue, rows in ledger.rows.items()}
    left = disk.kill()
    abandon(store)
    path = segment_paths(left)[1]
    zero(left, path, bytes([17]) * 3 * BLOCK_BYTES, head=HEAD)
    zero(left, path, Record.of(0, StreamLow(1)).pack(), head=HEAD)
    return left, ledger, bounds


def hand_message(store: MessageStore, ledger: Ledger, lane: int, queue: Queue, data: bytes) -> None:
    """Hand over a message, write it, and tell the ledger."""
    request = store.submit(*queue, data)
    assert isinstance(request, SubmitRequest)
    ledger.hand(lane, request, [queue], [data])
    write_all(store, ledger, lane)


def hand_trim(store: MessageStore, ledger: Ledger, lane: int, queue: Queue, low: int) -> None:
    """Hand over the record of a trim, write it, and tell the ledger."""
    for request in requests_of(store, changes_of_trim(store, queue, low)):
        datas = list(request.datas)
        request.stream.lane.queue.put(request)
        ledger.hand_trims(request, datas)
    write_all(store, ledger, lane)


def write_all(store: MessageStore, ledger: Ledger, lane: int) -> None:
    """Have the flushers write what was handed over to a lane."""
    settle(store)
    ledger.note_built(lane, 1, 0, 1)
    ledger.note_answers(lane)


def after_a_crash() -> tuple[SimulatedDisk, Ledger, Bounds]:
    """A store of three frames: the crash took the second, the damage the first. The ledger knows of the crash."""
    disk, ledger = SimulatedDisk(), Ledger(1)
    store = open_store(disk, StoreConfig(lanes=1), lambda: 1, random.Random(0))
    flusher, held = flushers_of(store)[0], list[Write]()
    for place, data in enumerate(ROWS):
        store.submit(*QUEUE, data)
        writes, _ = build_step(flusher, came=True)
        held += writes if place else ()  # the third frame says that the first was forced, and of the second nothing
        for write in writes if not place else held if place == 2 else ():
            write_step(flusher, write)
        ledger.rows[QUEUE].append(data)
        ledger.placed[QUEUE].append(Placed(place, 1, 1 << 40, 1))
    ledger.lane_of[QUEUE] = 0
    left = disk.kill()
    abandon(store)
    path = segment_paths(left)[0]
    zero(left, path, ROWS[1], head=HEAD)
    bounds = {QUEUE: recover(left.copy())[0].next_offsets[0]}
    assert bounds == {QUEUE: 1}
    ledger.crashed({QUEUE: (0, 1)})
    zero(left, path, ROWS[0], head=HEAD)
    return left, ledger, {QUEUE: (0, 1)}


def zero(disk: SimulatedDisk, path: Path, payload: bytes, *, head: int) -> None:
    """Zero a message in a file, and so many bytes before it."""
    data = disk.bytes_of(path)
    disk.put(path, data.replace(data[data.index(payload) - head :][: head + len(payload)], bytes(head + len(payload))))
