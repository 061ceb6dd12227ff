"""What the tests of rounds have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stratalog import (
    MessageStore,
    StoreReader,
    Subscription,
)
from stratalog.store.format.layout import JOINT, lane_name
from stratalog.store.log.joint_group import JointGroup
from stratalog.store.log.streams import lane_of
from stratalog.store.recovery.lane_recovery import LaneRecovery

from ..helpers import (
    KIB,
    contents,
    crash_copy,
    full_frames,
    overwrite,
    tiny,
)

LANES = 3
NAMES = [("t", next(queue for queue in range(99) if lane_of("t", queue, LANES) == lane)) for lane in range(LANES)]


def commit(store: MessageStore, data: bytes = b"x", names: Sequence[tuple[str, int]] = tuple(NAMES)) -> list[int]:
    """One message in each lane; their offsets."""
    with store.transaction() as tx:
        for name in names:
            tx.append(*name, data)
    return list(map(int, tx.offsets))


def hand_over(store: MessageStore, data: bytes = b"x") -> JointGroup:
    """Hand over one message in each lane, and do not wait."""
    tx = store.transaction()
    for name in NAMES:
        tx.append(*name, data)
    request = tx._end().hand_over(lambda request: request.queue.put(request))
    assert isinstance(request, JointGroup)
    return request


def cursor_lane(sub: Subscription) -> int:
    """The lane of a subscription's records."""
    stream = sub._state.journal.stream
    assert stream is not None
    return stream.lane.index


def sizes(store: StoreReader) -> list[int]:
    return [store.queue_bounds(*name)[1] for name in NAMES]


def step(store: MessageStore) -> bool:
    rounds = store._running.rounds
    assert rounds is not None
    return rounds.step()


def crashed(tmp_path: Path, block_bytes: int, before: int = 2) -> tuple[Path, list[Any], dict[Any, Any]]:
    """A store that was killed when a round was durable and nothing came after it: its folder, the parts, and what was
    there before.
    """
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        for _ in range(before):
            commit(store, b"before" * 300)
        old = contents(store, NAMES)
        commit(store, b"new" * 2000)
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    parts = []
    for lane in range(LANES):
        path = path_of(left, lane)
        frame = next(frame for frame in reversed(full_frames(path)) if frame.header.flags & JOINT)
        overwrite(path, frame.header.end, bytes(8 * KIB))  # a mark that came later
        parts.append(frame)
    (left / "LIVE").unlink(missing_ok=True)
    return left, parts, old


def open_and_die(folder: Path, recovered: int, **how: Any) -> None:
    """An opening dies when so many lanes were recovered."""
    run, count = LaneRecovery.run, 0

    def dies(self: LaneRecovery) -> Any:
        nonlocal count
        if count == recovered:
            raise KeyboardInterrupt
        count += 1
        return run(self)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(LaneRecovery, "run", dies)
        MessageStore.open(folder, **how)


def path_of(folder: Path, lane: int) -> Path:
    return folder / lane_name(lane) / "000000000001.seg"


def tear(folder: Path, frame: Any, how: str) -> None:
    """Take a part away: all of it, its head, or some bytes."""
    path = path_of(folder, frame.header.lane)
    begin, end = frame.header.position, frame.header.end
    if how == "all":
        overwrite(path, begin, bytes(end - begin))
    elif how == "head":
        overwrite(path, begin, bytes(88))
    else:
        overwrite(path, end - 1500, bytes(600))


def gone_on(tmp_path: Path, block_bytes: int) -> tuple[Path, list[Any]]:
    """A store that was killed when lane 1 had gone on after a round, and no other lane: its folder, and the parts."""
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        commit(store, b"new" * 500)
        store.append(*NAMES[1], b"later")
        store.append(*NAMES[1], b"later")
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    (left / "LIVE").unlink()
    parts = []
    for lane in range(LANES):
        frame = next(frame for frame in reversed(full_frames(path_of(left, lane))) if frame.header.flags & JOINT)
        parts.append(frame)
        if lane != 1:
            overwrite(path_of(left, lane), frame.header.end, bytes(8 * KIB))
    return left, parts
