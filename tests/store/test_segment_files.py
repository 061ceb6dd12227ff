"""A lane's files: spares are read to the end only where they may have been begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreCorrupt, inspect_folder, verify_folder
from stratalog.store.device.disk import Disk
from stratalog.store.device.log_file import LogFile
from stratalog.store.format.layout import BLOCK_BYTES
from stratalog.store.log.sealer import Sealer
from stratalog.store.segment import scanner

from .helpers import KIB, crash_copy, flip_bit, frames_of, overwrite, segment_paths, small, tiny

pytestmark = pytest.mark.disk

QUEUE = ("t", 0)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files without a header of their own that were searched to their end."""
    searched: list[str] = []
    real = scanner.open_sequential

    def noting(disk: Disk, path: Path) -> LogFile:
        searched.append(path.name)
        return real(disk, path)

    monkeypatch.setattr(scanner, "open_sequential", noting)
    return searched


@pytest.mark.parametrize("killed", [False, True])
def test_spares_are_not_read_to_their_end(tmp_path: Path, read: list[str], killed: bool) -> None:
    config = small(prewrite_bytes=8 * 256 * KIB)
    with MessageStore.open(tmp_path / "store", config) as store:
        store.append(*QUEUE, b"one")
        crashed = crash_copy(tmp_path / "store", tmp_path / "crashed")
    path = crashed if killed else tmp_path / "store"
    spares = segment_paths(path)[1:]
    assert len(spares) >= 7
    inspect_folder(path)
    with MessageStore.open(path, config) as store:
        assert not {spare.name for spare in spares} & set(read)
        assert store.stats()["segments"]["spare"] >= len(spares)
        assert store.get_range(*QUEUE, 0, 9) == {0: b"one"}
    assert verify_folder(path).ok


def begun_and_torn(path: Path) -> tuple[Path, Path]:
    """A store after a power cut, and its last whole segment. Of the one after that, later blocks alone are left."""
    with pytest.MonkeyPatch.context() as patched, MessageStore.open(path / "store", tiny()) as store:
        patched.setattr(Sealer, "seal_full", lambda *_, **__: None)
        while len(store._lanes[0].view.open) < 2:
            store.append(*QUEUE, bytes(5 * KIB))
        for _ in range(3):
            store.append(*QUEUE, bytes(5 * KIB))
        crashed = crash_copy(path / "store", path / "crashed")
    first, second = segment_paths(crashed)[:2]
    frames = frames_of(second)
    mark = frames[1].header
    assert mark.durable_sequence == 2 or mark.durable_position > frames_of(first)[-1].header.position
    overwrite(second, 0, bytes(frames[1].header.position))
    return crashed, first


@pytest.mark.parametrize("is_cut", [False, True], ids=["flipped", "cut to nothing"])
def test_a_begun_segment_whose_first_blocks_are_lost_still_vouches_for_the_one_before(
    tmp_path: Path, is_cut: bool
) -> None:
    """A power cut has left later blocks of what was written, and neither the header nor the first frame."""
    crashed, first = begun_and_torn(tmp_path)
    if is_cut:
        first.write_bytes(b"")
    else:
        flip_bit(first, frames_of(first)[-1].payload_start + 10)
    with pytest.raises(StoreCorrupt):
        MessageStore.open(crashed, tiny())
    assert not verify_folder(crashed).ok
    assert inspect_folder(crashed)["verdict"] == "needs repair"


def test_a_repair_and_verify_see_that_a_spare_stands_in_a_segments_place(tmp_path: Path) -> None:
    """The frames of the segment after it say that it was durable. An opening reads no further than the first spare."""
    crashed, first = begun_and_torn(tmp_path)
    overwrite(first, 0, bytes(first.stat().st_size))
    assert not verify_folder(crashed).ok
    with MessageStore.open(crashed, tiny(), repair=True) as store:
        losses = [loss for loss in store.losses if loss.file == str(first)]
    assert [loss for loss in losses if loss.messages != 0]
    assert verify_folder(crashed).ok


def test_lost_begin_of_a_segment_is_reported_when_the_one_before_was_closed_earlier(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small()) as store:
        store.append(*QUEUE, b"one")
    with MessageStore.open(tmp_path / "store", small()) as store:  # goes on in the closed segment, and beyond it
        while store.stats()["segments"]["sealed"] == 0:
            store.append_batch([(*QUEUE, bytes(5 * KIB))] * 10)
        store.append_batch([(*QUEUE, bytes(5 * KIB))] * 10)
        store.append(*QUEUE, b"last")
        crashed = crash_copy(tmp_path / "store", tmp_path / "crashed")
    used = [path for path in segment_paths(crashed) if path.read_bytes()[:BLOCK_BYTES].strip(b"\0")]
    overwrite(used[-1], 0, bytes(3 * BLOCK_BYTES))
    with pytest.raises(StoreCorrupt) as caught:
        MessageStore.open(crashed, small())
    assert caught.value.file == str(used[-1])


def test_as_much_of_the_ring_as_is_prewritten_is_touched(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small(prewrite_bytes=4 << 20, lanes=2)) as store:
        for lane in store._lanes:
            assert min(lane.ring.size_bytes, 2 << 20) <= lane.ring.warm <= lane.ring.size_bytes
