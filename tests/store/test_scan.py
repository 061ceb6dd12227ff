"""A scan is one snapshot: a prefix of each lane's log as of the call, beside all that goes on meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore
from tests.seeds import draw_seed

from .helpers import KIB, has_settled, segment_paths, start, tiny, until

MESSAGES = 1_200  # of each of four queues: four times what retention leaves
SETTINGS: dict[str, dict[str, Any]] = {
    "trim": {"alignment": "trim"},
    "pad": {"alignment": "pad"},
    "adaptive": {},
    "os": {"durability": "os"},
}


@pytest.fixture
def open_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store with four open segments: nothing is sealed."""
    with MessageStore.open(tmp_path, tiny()) as store:
        monkeypatch.setattr(store._upkeep.sealer, "seal_full", lambda rest_s=0: None)
        monkeypatch.setattr(store._upkeep.sealer, "make_way", lambda lane: None)
        for at in range(200):
            store.append("t", at % 2, b"%d" % at * 200)
        assert len(store._lanes[0].view.open) >= 4
        yield store
        monkeypatch.undo()


def test_messages_that_become_durable_while_a_scan_goes_on_leave_no_hole_in_it(open_segments: Any) -> None:
    tables = [opened.table for opened in open_segments._lanes[0].view.open]
    visible = [table.visible for table in tables]
    tables[1].visible = shown = visible[1] // 2
    for table in tables[2:]:
        table.visible = 0  # a lane's messages become durable in log order
    batches = open_segments.scan()
    found = list(next(batches).payloads())
    for table, count in zip(tables, visible, strict=True):
        table.visible = count
    for batch in batches:
        found += batch.payloads()
    assert [bytes(data) for data in found] == [b"%d" % at * 200 for at in range(visible[0] + shown)]


def test_a_scan_gives_what_was_durable_when_it_was_called(open_segments: Any) -> None:
    batches = open_segments.scan()
    open_segments.append("t", 0, b"later")
    assert sum(map(len, batches)) == 200
    assert sum(map(len, open_segments.scan())) == 201


@pytest.mark.parametrize("kind", SETTINGS)
def test_scans_beside_producers_sealing_and_retention_have_no_holes(tmp_path: Path, kind: str) -> None:
    seed = draw_seed()
    settings = {**SETTINGS[kind], "retention_bytes": 500 * KIB, "lanes": 2}
    with MessageStore.open(tmp_path, tiny(**settings)) as store:
        producing = threading.Event()
        producing.set()

        def produce(queue: int) -> None:
            for at in range(0, MESSAGES, 12):
                sizes = [(seed + at * 7919 + index * 104_729) % 900 for index in range(12)]
                if (seed + at) % 5:
                    tickets = [store.submit("t", queue, b"%d " % (at + index) + b"x" * size)
                               for index, size in enumerate(sizes)]  # fmt: skip
                    assert tickets[-1].result(60) == at + 11
                else:
                    store.append_batch([("t", queue, b"%d " % (at + index) + b"x" * size)
                                        for index, size in enumerate(sizes)])  # fmt: skip

        def scan() -> None:
            while producing.is_set():
                durable = {queue: store.queue_bounds("t", queue)[1] for queue in range(4)}
                queues: dict[int, list[int]] = {}
                for batch in store.scan():
                    for index in range(len(batch)):
                        queue, offset = batch.queue_id(index), int(batch.offsets[index])
                        assert bytes(batch.payload(index)).startswith(b"%d " % offset)
                        queues.setdefault(queue, []).append(offset)
                for queue, offsets in queues.items():
                    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
                    assert offsets[-1] + 1 >= durable[queue]

        producers, scanners = [start(produce, queue) for queue in range(4)], [start(scan) for _ in range(2)]
        try:
            for worker in producers:
                worker.join()
        finally:
            producing.clear()
        for worker in scanners:
            worker.join()
        until(lambda: has_settled(store) and store.stats()["log"]["removed_segments"] > 0)


def test_a_scan_goes_on_over_what_retention_removes_and_its_files_go_afterwards(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append_batch([("t", 0, b"%d" % at * 1000) for at in range(300)])
        for at in range(300, 320):
            store.append("t", 0, b"%d" % at * 1000)
    with MessageStore.open(tmp_path, tiny()) as store:
        batches = store.scan()
        found = [bytes(data) for data in next(batches).payloads()]
        store._upkeep.removal._config = tiny(retention_ms=1)
        until(lambda: store.stats()["segments"]["sealed"] == 1)
        assert store.queue_bounds("t", 0)[0] > 0
        for batch in batches:
            found += [bytes(data) for data in batch.payloads()]
        assert found == [b"%d" % at * 1000 for at in range(320)]
        del batch, batches
        until(lambda: not store._upkeep.removal._retired and len(segment_paths(tmp_path)) <= 3)
