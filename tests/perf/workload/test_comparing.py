"""The comparison of a whole store sees each kind of difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.perf.workload.checker import WrongResult
from stratalog.perf.workload.comparing import check_folder, check_payloads, check_store
from stratalog.perf.workload.contest import Sizes, Workload
from stratalog.perf.workload.filling import fill
from stratalog.store import MessageStore
from stratalog.store.testing import TunedConfig

SMALL = TunedConfig(lanes=2, segment_bytes=64 << 10, max_message_bytes=16_384, max_frame_bytes=16_384, recent_bytes=0)


def work_of(seed: int = 5) -> Workload:
    """Thirty queues, small messages."""
    return Workload(seed, Sizes.parse("small"), queues=30)


def test_whole_store_is_compared(tmp_path: Path) -> None:
    work = work_of()
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        messages = fill(store, work, 300_000)
        messages += fill(store, work, 100_000)
        assert check_store(store, work) == messages
    assert check_folder(tmp_path / "store", work) == messages == work.written.sum()


def test_message_that_was_not_appended_is_missed(tmp_path: Path) -> None:
    work = work_of()
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        fill(store, work, 50_000)
        work.written[3] += 1
        with pytest.raises(WrongResult, match="written were"):
            check_store(store, work)


@pytest.mark.parametrize("what", ["another message", "a repeated message", "an unknown queue"])
def test_message_that_was_never_written_is_seen(tmp_path: Path, what: str) -> None:
    work = work_of()
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        fill(store, work, 50_000)
        topic, queue_id = work.addresses[3]
        count = int(work.written[3])
        data = work.content.make(3, count if what == "an unknown queue" else count - 1, 200)
        if what == "another message":
            data = work.content.make(4, count, 200)
        store.append("elsewhere" if what == "an unknown queue" else topic, queue_id, data)
        with pytest.raises(WrongResult, match="not what was written"):
            check_store(store, work)


def test_payloads_of_another_seed_are_seen() -> None:
    ours, other = work_of(), work_of(6)
    payloads = [ours.content.make(2, 7 + index, 100) for index in range(3)]
    assert check_payloads(ours.content, 2, 7, payloads) == 3
    for content, offset in ((other.content, 7), (ours.content, 8)):
        with pytest.raises(WrongResult, match="not what was written"):
            check_payloads(content, 2, offset, payloads)
