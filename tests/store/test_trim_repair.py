"""Trimmed queues and damage: what a repair knows of them, and what it cannot know."""

from __future__ import annotations

from functools import partial
from os import truncate
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreCorrupt, verify_folder
from stratalog.store.format.records import RECORDS_TOPIC, LentTrims, Record, StreamLow, TrimmedColumns
from stratalog.store.log.trims import Trims

from .helpers import (
    crash_copy,
    flip_bit,
    frames_of,
    full_frames,
    has_settled,
    mark,
    seal_of,
    segment_paths,
    tiny,
    until,
)

LARGE = bytes(4000)  # some sixteen fill a segment
QUEUES = 3


def written(path: Path) -> dict[int, StreamLow]:
    """A store of several segments, each with trims of its own; what is trimmed, by stream number."""
    with MessageStore.open(path, tiny()) as store:
        store.append("kept", 0, b"x")  # so that no segment goes, and with it its records
        for turn in range(6):
            store.append_batch([("t", index % QUEUES, LARGE) for index in range(18)])
            store.trim("t", turn % QUEUES, 2 * turn + 1)
        store.append("gone", 0, b"x")
        store.delete_topic("gone")
        store.append_batch([("t", 0, LARGE)] * 40)
        until(lambda: has_settled(store))
        return dict(store._lanes[0].trims.lend().whole())


def trimmed(path: Path, *, repair: bool = False) -> dict[int, StreamLow]:
    """What is trimmed in the store, once it is opened."""
    with MessageStore.open(path, tiny(), repair=repair) as store:
        lane = store._lanes[0]
        assert all(
            stream.low == lane.trims.lend().whole().get(stream.number, StreamLow()).low for stream in lane.streams
        )
        return dict(lane.trims.lend().whole())


def sealed_paths(path: Path) -> list[Path]:
    records = [(file, seal_of(file)) for file in segment_paths(path)]
    return [file for file, record in records if record is not None and record.footer_bytes]


def damage_footer(file: Path) -> None:
    record = seal_of(file)
    assert record is not None
    flip_bit(file, record.footer_position + record.footer_bytes // 2)


def damage_payloads_of(file: Path, number: int) -> int:
    """Flip a bit in each message of a stream in a segment; how many there were."""
    count = 0
    for frame in full_frames(file):
        for start, length, owner in zip(frame.starts(), frame.lengths, frame.numbers, strict=True):
            if int(owner) == number and length:
                flip_bit(file, int(start) + int(length) - 1)
                count += 1
    return count


def number_of_records(path: Path) -> int:
    defined = [one for file in segment_paths(path) for frame in frames_of(file) for one in frame.definitions()]
    return next(one.number for one in defined if one.topic == RECORDS_TOPIC)


def test_footers_carry_what_is_trimmed_to_a_second_opening(tmp_path: Path) -> None:
    known = written(tmp_path)
    assert known == {1: StreamLow(7, 0), 2: StreamLow(9, 0), 3: StreamLow(11, 0), 5: StreamLow(1, 1)}
    assert trimmed(tmp_path) == known
    assert trimmed(tmp_path, repair=True) == known
    assert verify_folder(tmp_path).damages == []


def test_repair_of_the_newest_footer_knows_all_that_is_trimmed(tmp_path: Path) -> None:
    """From the footer before it and the records in its frames."""
    known = written(tmp_path)
    damage_footer(sealed_paths(tmp_path)[-1])
    with pytest.raises(StoreCorrupt):
        MessageStore.open(tmp_path, tiny())
    assert trimmed(tmp_path, repair=True) == known
    assert trimmed(tmp_path) == known
    assert verify_folder(tmp_path).damages == []


def test_repair_of_all_footers_knows_all_that_is_trimmed(tmp_path: Path) -> None:
    known = written(tmp_path)
    for file in sealed_paths(tmp_path):
        damage_footer(file)
    assert trimmed(tmp_path, repair=True) == known
    assert verify_folder(tmp_path).damages == []


def test_records_lost_before_a_whole_footer_cost_nothing(tmp_path: Path) -> None:
    known = written(tmp_path)
    for file in sealed_paths(tmp_path)[:-1]:
        damage_payloads_of(file, number_of_records(tmp_path))
    assert trimmed(tmp_path) == known
    assert trimmed(tmp_path, repair=True) == known
    assert verify_folder(tmp_path).damages == []


@pytest.mark.parametrize("delete", [False, True])
def test_record_of_a_queue_of_which_nothing_else_is_left_is_of_that_queue_alone(tmp_path: Path, delete: bool) -> None:
    """Its number stays taken: it is not given to a new queue, whose messages the record would then remove."""
    path, copy = tmp_path / "store", tmp_path / "copy"
    with MessageStore.open(path, tiny()) as store:
        store.append("kept", 0, LARGE)
        store.append("trimmed", 0, LARGE)
        store.trim("trimmed", 0, 1)
        store.append_batch([("lost", 0, LARGE)] * 3)
        store.append_batch([("kept", 0, LARGE)] * 20)  # into the next segment
        until(lambda: has_settled(store))
        (store.delete_topic if delete else partial(store.trim, queue_id=0, before_offset=3))("lost")
        store.append("kept", 0, LARGE)
        crash_copy(path, copy)
    first = segment_paths(copy)[0]
    named = next(frame for frame in frames_of(first) if any(one.topic == "lost" for one in frame.definitions()))
    truncate(first, named.header.position)  # the footer goes as well
    with MessageStore.open(copy, tiny(), repair=True) as store:
        store.append_batch([("new", 0, b"x")] * 9)
    assert verify_folder(copy).damages == []
    for file in sealed_paths(copy):
        damage_footer(file)  # so that the records are read once more
    with MessageStore.open(copy, tiny(), repair=True) as store:
        assert len(store.read("new", 0, 0, max_messages=99)) == 9
        assert store.queue_bounds("new", 0)[0] == 0
    assert verify_folder(copy).damages == []


def test_record_that_is_lost_behind_the_newest_footer_trims_nothing_any_more(tmp_path: Path) -> None:
    path, copy = tmp_path / "store", tmp_path / "copy"
    with MessageStore.open(path, tiny()) as store:
        store.append_batch([("t", 0, b"%d" % index) for index in range(10)])
        store.trim("t", 0, 4)
        store.append("t", 0, b"last")
        mark(store)
        assert any(not frame.header.count for frame in frames_of(segment_paths(path)[0]))
        crash_copy(path, copy)
    assert damage_payloads_of(segment_paths(copy)[0], number_of_records(copy)) == 1
    with pytest.raises(StoreCorrupt):
        MessageStore.open(copy, tiny())
    with MessageStore.open(copy, tiny(), repair=True) as store:
        assert [loss.messages for loss in store.losses] == [1]
        assert store.queue_bounds("t", 0) == (0, 11)
        assert store.trim("t", 0, 4) == 4
    assert verify_folder(copy).damages == []


def test_record_that_makes_no_sense_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Record.pack
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
        store.append("t", 0, b"y")
        monkeypatch.setattr(Record, "pack", lambda record: real(record)[:4] + b"\x09" + real(record)[5:])
        store.trim("t", 0, 1)
    with pytest.raises(StoreCorrupt, match="a record makes no sense"):
        MessageStore.open(tmp_path, tiny())
    assert any("a record makes no sense" in damage for damage in map(str, verify_folder(tmp_path).damages))
    for told in (1, 0):
        with MessageStore.open(tmp_path, tiny(), repair=True) as store:
            assert len(store.losses) == told
            assert store.queue_bounds("t", 0) == (0, 2)


def test_verify_finds_a_footer_without_a_trim_of_its_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Trims, "lend", lambda trims: LentTrims(TrimmedColumns.of({}), TrimmedColumns.of({})))
        with MessageStore.open(tmp_path, tiny()) as store:
            store.append_batch([("t", 0, LARGE)] * 5)
            store.trim("t", 0, 3)
            store.append_batch([("t", 0, LARGE)] * 40)
            until(lambda: has_settled(store))
    assert any("trimmed streams do not agree" in damage for damage in map(str, verify_folder(tmp_path).damages))
