"""A STATE in several records: it is whole or absent, whatever stands between its parts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from stratalog.store import Delivery, MessageStore, Subscription
from stratalog.store.format.cursors import STATE, CursorMark, Record, State, pack_delete, pack_ones, pack_state
from stratalog.store.log.hidden_streams import HiddenStreams
from stratalog.store.log.request import RowGroup
from stratalog.store.log.streams import Stream
from stratalog.store.subscriptions.cursor import Cursor
from stratalog.store.subscriptions.settings import Settings

from ...seeds import draw_seed
from ..helpers import crash_copy, tiny
from .helpers import TOPIC, fill, places

PART_BYTES = 64
SETTINGS = Settings().pack()
QUEUES = 40


def state(era: int, seed: int) -> tuple[dict[int, int], list[bytes]]:
    """A STATE of many queues that takes several records: its marks, and these."""
    chance = random.Random(seed)
    marks = {queue_id: CursorMark(era, chance.randrange(1 << 40)) for queue_id in range(QUEUES)}
    records = pack_state(1, State(SETTINGS, marks), PART_BYTES)
    assert len(records) > 3
    return {queue_id: mark.offset for queue_id, mark in marks.items()}, records


def made() -> Cursor:
    """A cursor of a subscription with nothing acknowledged."""
    cursor = Cursor()
    for data in pack_state(1, State(SETTINGS, {}), 4096):
        cursor.read(memoryview(data))
    return cursor


def marks_of(cursor: Cursor) -> dict[int, int]:
    return {queue_id: acked.mark for queue_id, acked in cursor.queues.items()}


def test_records_of_other_kinds_between_its_parts_leave_a_state_whole() -> None:
    cursor, (marks, records) = made(), state(1, draw_seed())
    for data in records:
        cursor.read(memoryview(data))
        cursor.read(memoryview(pack_ones(1, [(0, 1, marks[0])])))  # an acknowledgement
        cursor.read(memoryview(pack_ones(0, [(1, 1, 5)])))  # of an earlier life
    assert marks_of(cursor) == {**marks, 0: marks[0] + 1}


def test_a_state_whose_writer_died_is_absent_and_the_next_one_is_whole() -> None:
    seed = draw_seed()
    (_, unfinished), (marks, records) = state(1, seed), state(1, seed + 1)
    for count in range(len(unfinished)):
        cursor = made()
        for data in unfinished[:count]:
            cursor.read(memoryview(data))
        assert marks_of(cursor) == {}
        for data in records[:-1]:
            cursor.read(memoryview(data))
            assert marks_of(cursor) == {}
        cursor.read(memoryview(records[-1]))
        assert marks_of(cursor) == marks


def test_parts_of_two_states_make_none() -> None:
    """Damage may take any record: what is left of two is no third one."""
    seed = draw_seed()
    (_, first), (_, second) = state(1, seed), state(1, seed + 1)
    chance = random.Random(seed)
    for _ in range(50):
        cursor, lost = made(), chance.randrange(len(first))
        for data in [*first[: chance.randrange(1, len(first))], None, *second[lost + 1 :]]:
            if data is None:
                cursor.forget_parts()
            else:
                cursor.read(memoryview(data))
        assert marks_of(cursor) == {}


def test_a_deleted_subscription_has_no_part_of_what_was_before() -> None:
    cursor, (_, records) = made(), state(1, draw_seed())
    for data in [*records[:-1], pack_delete(2), records[-1]]:
        cursor.read(memoryview(data))
    assert (cursor.life, cursor.settings, cursor.queues) == (2, None, {})


# -- the writer ---------------------------------------------------------------------------------------


def acknowledging_between(
    monkeypatch: pytest.MonkeyPatch, sub: Subscription, held: list[Delivery], most: int = 1 << 30
) -> None:
    """Each record of the subscription that is handed over has an acknowledgement after it. After `most` records the
    process is interrupted.
    """
    submit, left = HiddenStreams.submit, [most]

    def one_by_one(hidden: HiddenStreams, stream: Stream, datas: Sequence[bytes]) -> list[RowGroup]:
        groups = []
        for data in datas:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            groups += submit(hidden, stream, [data])
            if held:
                sub.ack(held.pop())
        return groups

    monkeypatch.setattr(HiddenStreams, "submit", one_by_one)
    sub._state.limit_bytes = PART_BYTES


def records_of(sub: Subscription) -> list[Record]:
    """What the log has of the subscription."""
    stream, reader = sub._state.journal.stream, sub._state.parts.reads.reader
    assert stream is not None
    first, end = reader.bounds(stream)
    found = [Record.unpack(data) for data in reader.read_batch(stream, first, end - first, 1 << 20).payloads()]
    return [record for record in found if record is not None]


def test_a_snapshot_with_acknowledgements_between_its_parts_survives_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, *[30] * QUEUES)
        sub = store.subscribe(TOPIC, "a")
        got = sub.receive_batch(30 * QUEUES).deliveries()
        random.Random(draw_seed()).shuffle(got)
        held = got[:400]
        sub.ack_batch(got[400:800])
        with monkeypatch.context() as patch:
            acknowledging_between(patch, sub, held)
            sub._shared.move_records()
        kinds = [record.kind for record in records_of(sub)]
        assert any(one == STATE != other for one, other in pairwise(kinds)), "there is one between"
        crash_copy(tmp_path / "store", tmp_path / "copy")
        left = sorted(places([*held, *got[800:]]))
    with MessageStore.open(tmp_path / "copy", tiny()) as store:
        assert sorted(places(store.subscribe(TOPIC, "a").receive_batch(30 * QUEUES).deliveries())) == left


def test_an_interrupted_snapshot_and_a_whole_one_after_it_survive_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, *[30] * QUEUES)
        sub = store.subscribe(TOPIC, "a")
        got = sub.receive_batch(30 * QUEUES).deliveries()
        random.Random(draw_seed()).shuffle(got)
        held = got[:400]
        sub.ack_batch(got[400:800])
        for number, most in enumerate((3, 1 << 30)):
            with monkeypatch.context() as patch:
                acknowledging_between(patch, sub, held, most)
                if number:
                    sub._shared.move_records()
                else:
                    with pytest.raises(KeyboardInterrupt):
                        sub._shared.move_records()
            store.flush()
            crash_copy(tmp_path / "store", tmp_path / f"copy{number}")
            left = sorted(places([*held, *got[800:]]))
            with MessageStore.open(tmp_path / f"copy{number}", tiny()) as copy:
                came = copy.subscribe(TOPIC, "a").receive_batch(30 * QUEUES).deliveries()
                assert sorted(places(came)) == left


def test_a_seek_over_many_queues_with_other_records_between_its_parts_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, *[3] * QUEUES)
        sub = store.subscribe(TOPIC, "a")
        held = sub.receive_batch(QUEUES).deliveries()
        with monkeypatch.context() as patch:
            acknowledging_between(patch, sub, held)
            sub.seek(dict.fromkeys(range(QUEUES), 2))
        assert len(held) < QUEUES, "some were acknowledged meanwhile"
        crash_copy(tmp_path / "store", tmp_path / "copy")
    with MessageStore.open(tmp_path / "copy", tiny()) as store:
        came = store.subscribe(TOPIC, "a").receive_batch(3 * QUEUES).deliveries()
        assert sorted(places(came)) == [(queue_id, 2) for queue_id in range(QUEUES)]
