"""A commit over several lanes is seen in all of them or in none: by the process that writes, and by others."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from stratalog.store import (
    MessageStore,
    ReplayDiffers,
    StoreCorrupt,
    StoreFull,
    StorePoisoned,
    StoreReader,
    StoreUnreadable,
    commit_shards,
    verify_folder,
)
from stratalog.store.api import fetcher
from stratalog.store.live.page import LivePage
from stratalog.store.live.publisher import Publisher
from stratalog.store.log import attach_together
from stratalog.store.log.lane import Lane
from stratalog.store.log.together import set_together
from stratalog.store.read.scan import LaneSnapshot
from stratalog.store.read.wanted import ScanFilter
from stratalog.store.shards import lane_attach, loading
from stratalog.store.shards.lane_attach import LaneAttach
from stratalog.store.shards.parts import FramesPart, SegmentsPart
from stratalog.store.testing import SimulatedDisk

from ..helpers import flip_bit, tiny
from .helpers import Row, attaching, content, held, queues_of, rows_of, scanned, staged

LANES = 3
QUEUES = 12
OLD = rows_of("old", 2 * QUEUES, queues=QUEUES)
ROWS = rows_of("new", 60, queues=QUEUES)
SEEN_LINE_BY_LINE = ("attach_together.py", "parts.py", "lane_build.py", "at_once.py", "in_flight.py", "publisher.py")

SEEN_BY_SCANS = ("attach_together.py", "parts.py")


def waiting(path: Path, rows: Sequence[Row], **how: Any) -> None:
    """Commit rows beside a store that does not attach them yet."""
    commit_shards(path, staged(path, rows, **how), name="q", wait_ms=0, **how)


def ends(store: StoreReader) -> list[int]:
    """How many messages each queue has."""
    return [store.queue_bounds(*name)[1] for name in queues_of(ROWS)]


@contextmanager
def looking(look: Callable[[], None], files: Sequence[str] = SEEN_LINE_BY_LINE) -> Iterator[None]:
    """Inside, `look` is called before each line, and between any two steps of the line that shows, of this thread.

    Threads change between two steps of the interpreter only: so nothing is seen by another one that is not seen so.
    """
    is_looking = False

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal is_looking
        file = Path(frame.f_code.co_filename)
        if file.name == "together.py":
            frame.f_trace, frame.f_trace_opcodes = trace, True
        elif file.name not in files:
            return None
        if not is_looking:
            is_looking = True
            try:
                look()
            finally:
                is_looking = False
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.fixture(params=["frames", "segments", "either"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a commit, all lanes get frames, or segments, or some lanes frames and the others segments."""
    if request.param == "either":
        are_small = LaneAttach._are_small
        monkeypatch.setattr(
            LaneAttach, "_are_small", lambda self, shards: bool(self._lane.index & 1) and are_small(self, shards)
        )
    else:
        attaching(monkeypatch.setattr, as_segments=request.param == "segments")


LOOKS = [
    *((way, who) for way in ("frames", "segments") for who in ("the writing process", "a scan")),
    *(("either", who) for who in ("the writing process", "another process", "a scan", "a scan of another process")),
]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize(("each_way", "who"), LOOKS, indirect=["each_way"])
def test_all_lanes_show_a_commit_at_one_step(tmp_path: Path, who: str) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        store.append_batch(OLD)
        reader = MessageStore.open(tmp_path, read_only=True) if "another" in who else store
        seen: list[int] = []

        def look() -> None:
            if "scan" in who:
                seen.append(sum(map(len, reader.scan())))
            else:
                found = ends(reader)
                assert found in (before, after), f"some lanes have the commit and others have not: {found}"
                seen.append(sum(found))

        before = ends(store)
        after = [sum(len(rows) for rows in (queues_of(OLD, ROWS)[name],)) for name in queues_of(ROWS)]
        with held(store):
            waiting(tmp_path, ROWS)
            with looking(look, SEEN_BY_SCANS if "scan" in who else SEEN_LINE_BY_LINE):
                store.attach_pending()
        look()
        assert sorted(seen) == seen
        assert set(seen) == {len(OLD), len(OLD) + len(ROWS)}
        assert content(reader) == queues_of(OLD, ROWS)
        reader.close()


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("is_other", [False, True])
def test_a_scan_that_begins_before_a_commit_has_none_of_it_or_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_other: bool
) -> None:
    """The commit is attached when the scan has looked at one lane, and not yet at the others."""
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        store.append_batch(OLD)
        reader = MessageStore.open(tmp_path, read_only=True) if is_other else store
        with held(store):
            waiting(tmp_path, ROWS)

            def then_attach(found: Any) -> Any:
                monkeypatch.undo()
                store.attach_pending()
                return found

            if is_other:
                state = LivePage.state
                monkeypatch.setattr(LivePage, "state", lambda *given: then_attach(state(*given)))
                store.append(*OLD[0])  # so it looks
            else:
                monkeypatch.setattr(fetcher, "LaneSnapshot", lambda *given: then_attach(LaneSnapshot(*given)))
            count = sum(map(len, reader.scan()))
            assert count - len(OLD) - is_other in (0, len(ROWS))
        reader.close()


@pytest.mark.usefixtures("each_way")
def test_a_look_waits_for_a_scan_of_another_process_that_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it takes of the lanes is taken while none of them is brought up."""
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store, held(store):
        store.append_batch(OLD)
        with MessageStore.open(tmp_path, read_only=True) as reader:
            waiting(tmp_path, ROWS)
            looked: list[int] = []
            other = threading.Thread(target=lambda: looked.append(len(content(reader))))

            def then_look(lane: Lane, wanted: ScanFilter) -> LaneSnapshot:
                found = LaneSnapshot(lane, wanted)
                if not lane.index:
                    store.attach_pending()
                    other.start()
                    other.join(0.05)
                return found

            monkeypatch.setattr(fetcher, "LaneSnapshot", then_look)
            assert sum(map(len, reader.scan())) == len(OLD)
            other.join()
            assert looked == [QUEUES]


def test_attributes_are_set_in_one_step() -> None:
    class Plain:
        value = 0

    plain = [Plain() for _ in range(5)]
    seen = set()
    with looking(lambda: seen.add(tuple(one.value for one in plain))):
        set_together([(one, "value", 1) for one in plain])
    assert seen == {(0,) * 5, (1,) * 5}
    set_together([])


@pytest.mark.usefixtures("each_way")
def test_a_commit_that_fails_while_it_is_told_is_seen_by_no_other_process_before_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between two lanes."""
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        store.append_batch(OLD)
        with MessageStore.open(tmp_path, read_only=True) as reader:
            publish = Publisher._publish

            def fails(self: Publisher, told: Any) -> None:
                publish(self, told)
                if told.lane.index:
                    raise MemoryError

            with held(store):
                waiting(tmp_path, ROWS)
                monkeypatch.setattr(Publisher, "_publish", fails)
                with pytest.raises((MemoryError, StorePoisoned)):
                    store.attach_pending()
                monkeypatch.undo()
            for _ in range(2):
                assert content(reader) == queues_of(OLD)
            with MessageStore.open(tmp_path, read_only=True) as fresh:
                assert content(fresh) == scanned(fresh) == queues_of(OLD)
            with pytest.raises(StorePoisoned):
                store.append(*OLD[0])
            store.close()
            with MessageStore.open(tmp_path, tiny()) as again:
                assert content(again) == content(reader) == scanned(reader) == queues_of(OLD, ROWS)
                again.append(*OLD[0])
                assert content(reader) == queues_of(OLD, ROWS, OLD[:1])


@pytest.mark.usefixtures("each_way")
def test_appends_beside_a_commit_are_answered_and_come_after_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store, held(store):
        waiting(tmp_path, ROWS)
        tickets: list[Any] = []

        def look() -> None:
            if len(tickets) < 200:
                tickets.append(store.submit("t0", 0, b"beside"))

        with looking(look):
            store.attach_pending()
        offsets = [ticket.result() for ticket in tickets]
        assert offsets == sorted(set(offsets))
        mine = queues_of(ROWS)["t0", 0]
        found = content(store)["t0", 0]
        assert len(found) == len(mine) + len(tickets)
        assert mine == [data for data in found if data != b"beside"]
        for lane, queue in zip(store._lanes, store._queues, strict=True):
            assert lane.under_way.is_idle
            assert queue.used_bytes == 0


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("which", ["damaged", "shard", "index"])
def test_a_commit_with_one_damaged_shard_changes_no_lane(tmp_path: Path, which: str) -> None:
    """And after a repair that gave it up, the same commit brings all of its rows."""
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        store.append_batch(OLD)
        with held(store):
            waiting(tmp_path, ROWS)
            last = max((tmp_path / "incoming").rglob("0*.shard"))
            if which == "damaged":
                flip_bit(last, 8192 + 16)  # of a head: payloads are read of small shards alone
            else:
                last.with_suffix("." + which).unlink()
            before = [(lane.view, lane.tail) for lane in store._lanes]
            with pytest.raises(StoreCorrupt):
                store.attach_pending()
            assert content(store) == scanned(store) == queues_of(OLD)
            assert [view.open[-1].table.entries for view, _ in before] == [
                view.sealed[-1].record.entries if not view.open else view.open[-1].table.entries
                for view in (lane.view for lane in store._lanes)
            ]
            store.append(*OLD[0])
    with MessageStore.open(tmp_path, tiny()) as store:  # it waits, and hinders nothing
        assert content(store) == queues_of(OLD, OLD[:1])
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        assert [loss.messages for loss in store.losses] == [len(ROWS)]
        assert content(store) == queues_of(OLD, OLD[:1])
    assert commit_shards(tmp_path, staged(tmp_path, ROWS), name="q") == (True, True, len(ROWS))
    with MessageStore.open(tmp_path, tiny()) as store:
        assert content(store) == queues_of(OLD, OLD[:1], ROWS)
    assert verify_folder(tmp_path).damages == []


def half_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedDisk:
    """A disk that a kill has left when one lane had all of its part of a commit, and another nothing."""
    disk, left = SimulatedDisk(), list[SimulatedDisk]()
    attach = attach_together.attach_together

    def and_kill(parts: Sequence[Any], *rest: Any) -> None:
        write = parts[0].write

        def then_kill() -> None:
            write()
            left.append(disk.kill())

        parts[0].write = then_kill
        attach(parts, *rest)

    with MessageStore.open(path, tiny(lanes=LANES), disk=disk) as store, monkeypatch.context() as patched:
        store.append_batch(OLD)
        with held(store):
            waiting(path, ROWS, disk=disk)
            patched.setattr("stratalog.store.shards.attacher.attach_together", and_kill)
            store.attach_pending()
    return left[0]


@pytest.mark.usefixtures("each_way")
def test_a_commit_that_a_kill_has_left_in_some_lanes_is_finished_before_anybody_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = half_way(tmp_path, monkeypatch)
    with MessageStore.open(tmp_path, read_only=True, disk=disk) as reader:
        assert content(reader) == queues_of(OLD)
        seen = []
        with looking(lambda: seen.append(sum(ends(reader)))), MessageStore.open(tmp_path, tiny(), disk=disk) as store:
            assert content(store) == queues_of(OLD, ROWS)
        assert content(reader) == queues_of(OLD, ROWS)
        assert set(seen) <= {len(OLD), len(OLD) + len(ROWS)}
    assert not commit_shards(tmp_path, staged(tmp_path, ROWS, disk=disk), name="q", disk=disk).is_new


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("is_open", [False, True])
def test_a_commit_of_which_a_repair_has_given_up_a_lane_is_never_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    """Its repetition says so, at once and after openings, beside a writer and without one."""
    disk = half_way(tmp_path, monkeypatch)
    last = max(file for file in disk.files() if file.suffix == ".shard")
    disk.take_away(last)
    with pytest.raises(StoreCorrupt, match="repair=True"):
        MessageStore.open(tmp_path, tiny(), disk=disk)
    with MessageStore.open(tmp_path, tiny(), disk=disk, repair=True) as store:
        [loss] = store.losses
        there = content(store)
        assert 0 < (loss.messages or 0) == len(OLD) + len(ROWS) - sum(map(len, there.values()))
    for _ in range(2):
        store = MessageStore.open(tmp_path, tiny(), disk=disk)
        assert store.losses == []
        if not is_open:
            store.close()
        with pytest.raises(ReplayDiffers, match="in part"):
            commit_shards(tmp_path, staged(tmp_path, ROWS, disk=disk), name="q", disk=disk, wait_ms=0)
        if is_open:
            store.close()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        assert content(store) == there


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_commit_that_cannot_be_made_in_one_lane_changes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        store.append_batch(OLD)
        with held(store):
            waiting(tmp_path, ROWS)

            def cannot(self: Any) -> None:
                make[type(self)](self)
                if self.flusher.lane.index == LANES - 1:
                    raise OSError(number, "made up")

            make = {kind: kind.make for kind in (FramesPart, SegmentsPart)}
            for kind in make:
                monkeypatch.setattr(kind, "make", cannot)
            with pytest.raises(StoreFull if number == errno.ENOSPC else StoreUnreadable, match="made up"):
                store.attach_pending()
            assert content(store) == queues_of(OLD)
            monkeypatch.undo()
            store.append(*OLD[0])
            store.attach_pending()
            assert content(store) == queues_of(OLD, OLD[:1], ROWS)


def test_no_lane_stands_still_while_shards_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long and needs no lane comes first."""
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store, held(store):
        waiting(tmp_path, ROWS)
        groups_of, read = loading.groups_of, list[bool]()

        def looks(*given: Any) -> Any:
            read.append(any(flusher.building.locked() for flusher in store._flushers))
            return groups_of(*given)

        monkeypatch.setattr(lane_attach, "groups_of", looks)
        store.attach_pending()
        assert read == [False] * LANES
