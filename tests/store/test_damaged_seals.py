"""A seal record that is damaged says as much as a whole one: the segment had ended, all of its frames were durable."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from stratalog.store import MessageStore, StoreCorrupt, inspect_folder, verify_folder
from stratalog.store.api import running
from stratalog.store.format.layout import BLOCK_BYTES, DATA_START, SEAL_BYTES, SEALED, SealRecord

from .helpers import KIB, flip_bit, frames_of, overwrite, scanned, segment_path, segment_paths, small, tiny

FIRST, SECOND = 10, 40
Q = ("t", 0)


def closed(folder: Path, *, sealed: bool = False) -> Path:
    """A closed store of two frames in one segment, with its seal record: the segment's file."""
    with (
        mock.patch.object(running, "RESUME_BELOW_BYTES", 0 if sealed else running.RESUME_BELOW_BYTES),
        MessageStore.open(folder, small()) as store,
    ):
        store.append_batch([(*Q, b"one %d" % number) for number in range(FIRST)])
        store.append_batch([(*Q, b"two %d" % number + bytes(2_000)) for number in range(SECOND)])
    path = segment_path(folder, 1)
    record = SealRecord.unpack(path.read_bytes()[BLOCK_BYTES:DATA_START])
    assert record is not None and (record.state == SEALED) == sealed
    return path


def damage_payload(path: Path) -> None:
    flip_bit(path, path.read_bytes().index(b"two 5"))


def damage_last_head(path: Path) -> None:
    flip_bit(path, frames_of(path)[-1].header.position + 40)


def damage_first_head(path: Path) -> None:
    flip_bit(path, frames_of(path)[0].header.position + 90)


def damage_last_magic(path: Path) -> None:
    flip_bit(path, frames_of(path)[-1].header.position)


def damage_last_block(path: Path) -> None:
    """Nothing is left that looks like a frame: the record's own chain says that one is missing."""
    overwrite(path, frames_of(path)[-1].header.position, bytes(range(256)) * 4)


DAMAGES = [damage_payload, damage_last_head, damage_first_head, damage_last_magic, damage_last_block]


@pytest.mark.parametrize("sealed", [False, True], ids=["closed", "sealed"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__[7:])
def test_damage_before_a_damaged_seal_is_no_torn_tail(tmp_path: Path, damage: object, sealed: bool) -> None:
    path = closed(tmp_path, sealed=sealed)
    damage(path)  # type: ignore[operator]
    flip_bit(path, BLOCK_BYTES + 5)
    with pytest.raises(StoreCorrupt):
        MessageStore.open(tmp_path)
    assert len(verify_folder(tmp_path).damages) == 2
    assert inspect_folder(tmp_path)["verdict"] == "needs repair"
    with MessageStore.open(tmp_path, repair=True) as store:
        losses = store.losses
        found = sum(map(len, scanned(store).values()))
        counts = [loss.messages for loss in losses]
        assert found < FIRST + SECOND
        assert None in counts or found == FIRST + SECOND - sum(count or 0 for count in counts)
        assert store.queue_bounds(*Q)[1] == FIRST + SECOND or any(loss.offsets_may_repeat for loss in losses)
    assert verify_folder(tmp_path).ok
    with MessageStore.open(tmp_path, repair=True) as store:
        assert not store.losses


@pytest.mark.parametrize("sealed", [False, True], ids=["closed", "sealed"])
@pytest.mark.parametrize("byte", [0, 5, 9, 14, 17, 30, 34, 45, 60, 70])
def test_damaged_seal_alone_costs_no_message_and_is_told_of(tmp_path: Path, byte: int, sealed: bool) -> None:
    flip_bit(closed(tmp_path, sealed=sealed), BLOCK_BYTES + byte)
    assert [damage.what for damage in verify_folder(tmp_path).places] == ["the segment's seal record is damaged"]
    assert [problem["what"] for problem in inspect_folder(tmp_path)["problems"]] == [
        "the segment's seal record is damaged"
    ]
    with MessageStore.open(tmp_path) as store:
        assert store.queue_bounds(*Q) == (0, FIRST + SECOND)
        assert store.append(*Q, b"more") == FIRST + SECOND
    assert verify_folder(tmp_path).ok


def test_seal_whose_writing_a_power_cut_has_torn_costs_nothing(tmp_path: Path) -> None:
    path = closed(tmp_path / "s")
    content = path.read_bytes()
    record = content[BLOCK_BYTES : BLOCK_BYTES + SEAL_BYTES]
    for cut in range(1, SEAL_BYTES, 3):
        for torn in (record[:cut].ljust(SEAL_BYTES, b"\0"), record[cut:].rjust(SEAL_BYTES, b"\0")):
            path.write_bytes(content)
            overwrite(path, BLOCK_BYTES, torn)
            with MessageStore.open(tmp_path / "s") as store:
                assert store.queue_bounds(*Q) == (0, FIRST + SECOND), cut
            for made in segment_paths(tmp_path / "s"):
                if made != path:
                    made.unlink()


def test_garbage_in_place_of_the_seal_costs_nothing(tmp_path: Path) -> None:
    overwrite(closed(tmp_path), BLOCK_BYTES, b"\xa7" * BLOCK_BYTES)
    with MessageStore.open(tmp_path) as store:
        assert store.queue_bounds(*Q) == (0, FIRST + SECOND)


def test_header_and_seal_that_are_both_flipped_do_not_make_a_spare_of_a_segment(tmp_path: Path) -> None:
    path = closed(tmp_path)
    flip_bit(path, 50)
    flip_bit(path, BLOCK_BYTES + 5)
    flip_bit(path, DATA_START + 1)
    with pytest.raises(StoreCorrupt, match="header"):
        MessageStore.open(tmp_path)
    assert not verify_folder(tmp_path).ok
    assert inspect_folder(tmp_path)["verdict"] == "needs repair"


def old_seal() -> bytes:
    return SealRecord(SEALED, 77, DATA_START, 5, 0, DATA_START, 100).pack()


def test_recycled_file_has_no_seal_record_of_its_former_life(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append(*Q, b"x")
        spares = store._upkeep.spares_of(0)
        with spares.making:
            retired = tmp_path / "lane-00" / "retired-000000000077"
            retired.write_bytes(bytes(BLOCK_BYTES) + old_seal() + bytes(64 * KIB - DATA_START))
            spares._recyclable.append(retired)
            spares.make(64 * KIB)
            made = segment_path(tmp_path, spares._ready[-1][0])
        assert spares.recycled_segments == 1
        assert not any(made.read_bytes()[BLOCK_BYTES:DATA_START])


def test_spare_with_a_seal_record_of_its_former_life_loses_it_at_the_opening(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(prewrite_bytes=128 * KIB)) as store:
        store.append(*Q, b"x")
    spare = segment_paths(tmp_path)[-1]
    overwrite(spare, BLOCK_BYTES, old_seal())
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.queue_bounds(*Q) == (0, 1)
        assert not any(spare.read_bytes()[BLOCK_BYTES:DATA_START])
