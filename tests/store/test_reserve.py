"""The reserve of a lane: what only records may use, so that a full disk has a way out. On a simulated full disk."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreConfig, StoreError, StoreFull
from stratalog.store.testing import SimulatedDisk

from ..seeds import draw_seed
from .helpers import KIB, PATIENCE_S, small, tiny, until

pytestmark = pytest.mark.disk

DATA = bytes(1000)
SPACE = 1 << 20


def disk_of(space: int = SPACE) -> SimulatedDisk:
    return SimulatedDisk(capacity_bytes=space)


def full_store(path: Path, disk: SimulatedDisk, config: StoreConfig | None = None, queues: int = 4) -> MessageStore:
    """A store whose appends get StoreFull, in each of its queues, whatever they are."""
    store = MessageStore.open(path, config or tiny(), disk=disk)
    fill(store, disk, queues)
    return store


def fill(store: MessageStore, disk: SimulatedDisk, queues: int = 4) -> None:
    for data in (DATA, b"x"):
        left = set(range(queues))
        while left:
            for queue in sorted(left):
                try:
                    store.append("t", queue, data)
                except StoreFull:
                    left.discard(queue)
    disk.capacity_bytes = disk.used_bytes()  # nothing less is left over


def is_full(store: MessageStore, queues: int = 4) -> bool:
    for queue in range(queues):
        try:
            store.append("t", queue, b"x")
        except StoreFull:
            continue
        return False
    return True


def reserve_bytes(store: MessageStore) -> int:
    found: int = store.stats()["reserve"]["bytes"]
    return found


@pytest.mark.parametrize("lanes", [1, 2])
def test_appends_leave_the_reserve_alone_before_and_after_it_is_begun(tmp_path: Path, lanes: int) -> None:
    disk = disk_of()
    with full_store(tmp_path / "s", disk, tiny(lanes=lanes)) as store:
        size = lanes * 64 * KIB
        assert store.stats()["reserve"] == {"bytes": size, "wanted_bytes": size, "lanes_without": 0}
        low = 0
        while reserve_bytes(store) > (lanes - 1) * 64 * KIB:  # what is left of the open segments comes first
            low += 1
            store.trim("t", low % 4, low // 4 + 1)
            assert is_full(store), "where there is room, it is no append's"


def test_what_frees_space_goes_on_and_what_takes_it_does_not(tmp_path: Path) -> None:
    disk = disk_of()
    now_ms = time.time_ns() // 1_000_000
    with MessageStore.open(tmp_path / "s", small(), disk=disk) as store:
        jobs = store.subscribe("t", "jobs")
        later = [store.append("t", 0, b"later", deliver_at_ms=now_ms + 1_000_000) for _ in range(4)]
        store.subscribe("t", "other").close()
        fill(store, disk)
        batch = jobs.receive(20, wait_ms=0)
        jobs.ack(batch[0])
        jobs.ack_batch(batch[1:10])
        jobs.nack(batch[10])
        jobs.extend(batch[11], 100_000)
        assert store.cancel_delayed("t", 0, later[0])
        assert store.reschedule_delayed("t", 0, later[1], now_ms + 2_000_000)
        fresh = store.subscribe("t", "fresh")
        fresh.skip_all()
        assert store.delete_subscription("t", "other")
        store.trim("t", 1, 5)
        assert is_full(store)
        with pytest.raises(StoreFull):
            store.append_batch([("t", 0, b"x"), ("t", 1, b"y")])
    with MessageStore.open(tmp_path / "s", small(), disk=disk) as store:
        assert store.queue_bounds("t", 1)[0] == 5
        assert {one.name for one in store.subscriptions("t")} == {"jobs", "fresh"}
        again = store.subscribe("t", "jobs").receive(20, wait_ms=0)
        gone = {(one.message.queue_id, one.message.offset) for one in batch[:10]}
        assert gone.isdisjoint((one.message.queue_id, one.message.offset) for one in again)


def test_reserve_is_made_again_before_an_append_once_there_is_space(tmp_path: Path) -> None:
    disk = disk_of()
    with full_store(tmp_path / "s", disk) as store:
        use_reserve(store)
        assert not reserve_bytes(store)
        disk.capacity_bytes = 2 * SPACE
        store.append("t", 0, b"on")
        assert reserve_bytes(store) == 64 * KIB
        fill(store, disk)
        use_reserve(store)  # and it is there for the next time


def test_reserve_is_made_again_by_itself_once_there_is_space(tmp_path: Path) -> None:
    """Without an append, so that space which comes and goes leaves it whole."""
    disk = disk_of()
    with full_store(tmp_path / "s", disk) as store:
        use_reserve(store)
        disk.capacity_bytes = 2 * SPACE
        until(lambda: reserve_bytes(store) == 64 * KIB, limit_s=PATIENCE_S / 4)


def use_reserve(store: MessageStore) -> None:
    """Write records until the reserve is begun."""
    low = 0
    while reserve_bytes(store):
        low += 1
        store.trim("t", 0, low)


def test_reserve_that_is_used_up_is_a_clear_error_and_trims_have_its_last_part(tmp_path: Path) -> None:
    disk = disk_of()
    with full_store(tmp_path / "s", disk) as store:
        jobs = store.subscribe("t", "jobs")
        with pytest.raises(StoreFull, match=r"used up.*retention_bytes"):
            for _ in range(1000):
                jobs.ack(jobs.receive(1, wait_ms=0)[0])
        store.trim("t", 0, 1)  # this frees space: acknowledgements leave it a place
        store.delete_topic("t")
        until(lambda: not is_full(store))
        assert store.queue_bounds("t", 0)[0] > 1


def test_queues_by_the_thousand_can_be_deleted_on_a_full_disk(tmp_path: Path) -> None:
    """Their records are cut to parts of the reserve."""
    disk = disk_of(4 << 20)
    with MessageStore.open(tmp_path / "s", small(), disk=disk) as store:
        store.append_batch([("many", queue, b"") for queue in range(1000)])
        fill(store, disk, 1)
        store.delete_topic("many")
        assert store.topics() == ["t"]


@pytest.mark.parametrize("ways", ["kill", "close"])
def test_full_disk_opens_again_and_again_without_space(tmp_path: Path, ways: str) -> None:
    disk = disk_of()
    store = full_store(tmp_path / "s", disk, tiny(lanes=2))
    counts = [store.queue_bounds("t", queue)[1] for queue in range(4)]
    low = 0
    for _ in range(3):
        if ways == "kill":
            left = disk.kill()
            abandon(store, disk)
            disk = left
        else:
            store.close()
        disk.capacity_bytes = disk.used_bytes()  # nobody leaves us anything
        store = MessageStore.open(tmp_path / "s", tiny(), disk=disk)
        low += 1
        for queue in range(4):
            store.trim("t", queue, low)
    assert [store.queue_bounds("t", queue) for queue in range(4)] == [(low, count) for count in counts]
    store.delete_topic("t")
    until(lambda: not is_full(store))
    store.close()


def abandon(store: MessageStore, disk: SimulatedDisk) -> None:
    """End a store without a trace: its process was killed."""
    disk.cut_at = 0
    try:
        store.close()
    except (StoreError, OSError):
        store._running.lock.release()


def test_segments_of_many_streams_are_sealed_without_space(tmp_path: Path) -> None:
    """A footer has its room in its segment, also where it is a large part of that."""
    disk = disk_of(3 << 20)
    with MessageStore.open(tmp_path / "s", small(), disk=disk) as store:
        for topic in range(40):
            store.append_batch([(f"topic {topic} {'x' * topic}", queue, DATA) for queue in range(30)])
        fill(store, disk)
        disk.capacity_bytes = disk.used_bytes()
        until(lambda: store.stats()["segments"]["open"] <= 1)
        sizes = [size for path, size in disk.sizes().items() if path.suffix == ".seg"]
        assert max(sizes) <= 256 * KIB
        for footer in [sealed.footer for sealed in store._lanes[0].view.sealed]:
            assert footer.position + footer.size_bytes <= 256 * KIB
        left = disk.kill()
    left.capacity_bytes = left.used_bytes()
    with MessageStore.open(tmp_path / "s", small(), disk=left) as store:
        assert len(store.topics()) == 41


def test_retention_by_age_works_on_a_full_disk_and_appends_go_on_by_themselves(tmp_path: Path) -> None:
    disk = disk_of()
    with full_store(tmp_path / "s", disk, tiny(retention_ms=300)) as store:
        count = store.queue_bounds("t", 0)[1]
        until(lambda: not is_full(store), limit_s=PATIENCE_S / 4)
        assert store.queue_bounds("t", 0)[0] > 0
        assert store.queue_bounds("t", 0)[1] >= count


def test_less_retention_bytes_are_a_way_out_of_a_reserve_that_is_used_up(tmp_path: Path) -> None:
    disk = disk_of()
    with full_store(tmp_path / "s", disk) as store, pytest.raises(StoreFull):
        for low in range(1, 1000):
            store.trim("t", low % 4, low // 4 + 1)
    with MessageStore.open(tmp_path / "s", tiny(retention_bytes=512 * KIB), disk=disk) as store:
        until(lambda: not is_full(store))


def test_a_power_cut_or_a_kill_at_each_step_of_a_reserve_that_is_begun_costs_nothing(tmp_path: Path) -> None:
    chance = random.Random(draw_seed())
    disk = disk_of(512 * KIB)
    store = full_store(tmp_path / "s", disk, queues=1)
    count = store.queue_bounds("t", 0)[1]
    cuts: list[tuple[int, SimulatedDisk]] = []
    trimmed = 0

    def note(operation: object) -> None:
        cuts.append((trimmed, disk.crash(chance)))
        cuts.append((trimmed, disk.kill()))

    while reserve_bytes(store):
        disk.on_operation = note
        del cuts[:]
        store.trim("t", 0, trimmed + 1)
        trimmed += 1
        disk.on_operation = None
    disk.on_operation = note
    store.trim("t", 0, trimmed + 1)
    disk.on_operation = None
    abandon(store, disk)
    for low, left in cuts:
        left.capacity_bytes = left.used_bytes()
        with MessageStore.open(tmp_path / "s", tiny(), disk=left) as store:
            first, end = store.queue_bounds("t", 0)
            assert first >= low
            assert end == count
            assert is_full(store, 1), "what was the reserve is no append's"
            store.trim("t", 0, low + 2)
