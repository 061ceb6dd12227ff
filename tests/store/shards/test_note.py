"""Beside a writer a commit looks only at what came since the last one. Whatever the note says, none is done twice."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import MessageStore, ReplayDiffers, StoreConfig, commit_shards, sweep_shards
from stratalog.store.api import commits
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.folder import read_header
from stratalog.store.format.applied import (
    NO_BATCH,
    Applied,
    AppliedTable,
    batches_in,
    find_packed,
    pack_applied,
    unpack_applied,
)
from stratalog.store.format.layout import DATA_START
from stratalog.store.format.live_page import LaneState
from stratalog.store.format.note import NO_NOTE, LaneNote, pack_note, unpack_note
from stratalog.store.format.shard import Manifest
from stratalog.store.live import lane_commits
from stratalog.store.live.lane_commits import LaneCommits
from stratalog.store.log.streams import lane_of
from stratalog.store.segment.open_table import LENGTH, POSITION
from stratalog.store.shards.noting import write_note
from tests.seeds import draw_seed

from ..helpers import small, tiny, until
from .helpers import attaching, rows_of, staged

DISK = OsDisk()
Key = tuple[str, int]


def commit(path: Path, name: str, batch: int | None = None, rows: int = 5, label: str = "x") -> bool:
    """Beside a writer: it is not waited for."""
    shards = staged(path, rows_of(f"{label}{name}{batch}", rows))
    return commit_shards(path, shards, name=name, batch=batch, wait_ms=0).is_new


def note_of(path: Path) -> Path:
    return path / "incoming" / "APPLIED"


def beside(path: Path, key: Key) -> dict[int, int] | None:
    """What a committer finds of a name by the note and what lies behind it."""
    header = read_header(DISK, path)
    assert header is not None
    return commits._beside_writer(DISK, path, Manifest(header.store_id, *key, True, ()))


def whole(path: Path, key: Key) -> dict[int, int]:
    """The same by reading the log as any reader does."""
    with MessageStore.open(path, read_only=True) as reader:
        return reader._applied_batches(*key)


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many frames each look of a lane has walked over."""
    found: list[int] = []
    look = LaneCommits.look

    def counting(self: LaneCommits, state: LaneState, known: LaneNote) -> None:
        look(self, state, known)
        found.append(self.walked)

    monkeypatch.setattr(LaneCommits, "look", counting)
    return found


def test_a_commit_beside_a_writer_looks_only_at_what_came_since_the_last_one(tmp_path: Path, walked: list[int]) -> None:
    with MessageStore.open(tmp_path) as store:
        for batch in range(60):
            store.append("t", 0, b"between")
            assert commit(tmp_path, "query", batch)
            store.attach_pending()
    assert len(walked) == 60
    assert max(walked) <= 8  # two frames or three a commit, and a note of a query is worth some


def test_the_note_of_many_names_is_not_written_for_each_commit(tmp_path: Path, walked: list[int]) -> None:
    """It grows with the names: each commit would write all of them."""
    sizes = []
    with MessageStore.open(tmp_path) as store:
        for number in range(80):
            before = note_of(tmp_path).read_bytes() if note_of(tmp_path).exists() else b""
            assert commit(tmp_path, f"transaction-{number}")
            store.attach_pending()
            sizes.append(note_of(tmp_path).exists() and note_of(tmp_path).read_bytes() != before)
        assert not commit(tmp_path, "transaction-7")
        assert not commit(tmp_path, "transaction-79")
    assert sum(sizes) < 40
    assert max(walked) < 2 * 80**0.5 + 4


PADDED = 10_000


@pytest.fixture
def always_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit leaves a note, as if that took no time."""
    monkeypatch.setattr(lane_commits, "FILE_US", 0)
    monkeypatch.setattr(lane_commits, "ENTRY_US", 0)


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each section has that was packed for a note."""
    found: list[int] = []

    def counting(table: AppliedTable) -> bytes:
        found.append(len(table))
        return pack_applied(table)

    monkeypatch.setattr(lane_commits, "pack_applied", counting)
    return found


def pad_note(path: Path, lane: int) -> None:
    """Let the note say that a lane has many commits more: its frame is not changed, so it holds."""
    header = read_header(DISK, path)
    assert header is not None
    notes = unpack_note(note_of(path).read_bytes(), header.store_id, header.lanes)
    assert notes[lane].sequence
    many = [Applied(f"padding-{number}", NO_BATCH, number, 0, 0) for number in range(PADDED)]
    table = {**unpack_applied(notes[lane].applied), **{one.key: one for one in many}}
    notes[lane] = notes[lane]._replace(applied=pack_applied(table))
    note_of(path).write_bytes(pack_note(header.store_id, notes))


@pytest.mark.parametrize(("lanes", "frames"), [(1, 70), (2, 1)])
def test_a_large_section_is_packed_now_and_then_whatever_else_is_appended(
    tmp_path: Path, packed: list[int], lanes: int, frames: int
) -> None:
    """Not for each commit because another lane is worth noting, nor because much else came between two commits."""
    mine = lane_of("t0", 0, lanes)
    other = next(number for number in range(100) if lanes == 1 or lane_of("other", number, lanes) != mine)
    with MessageStore.open(tmp_path, StoreConfig(lanes=lanes)) as store:

        def commit_between(name: str) -> None:
            for _ in range(frames):
                store.append("other", other, b"between")
            shards = staged(tmp_path, [("t0", 0, name.encode())])
            assert commit_shards(tmp_path, shards, name=name, wait_ms=0).is_new
            store.attach_pending()

        for number in range(5):
            commit_between(f"before-{number}")
        pad_note(tmp_path, mine)
        packed.clear()
        for number in range(6):
            commit_between(f"behind-{number}")
        assert sum(count > PADDED for count in packed) <= 1
        for name in ("before-0", "before-4", "behind-0", "behind-5"):
            assert beside(tmp_path, (name, NO_BATCH)) == whole(tmp_path, (name, NO_BATCH)) != {}
        assert beside(tmp_path, ("padding-77", NO_BATCH)) == {NO_BATCH: 77}  # by the note, which did hold


def test_a_large_section_is_packed_in_the_end(tmp_path: Path, packed: list[int], walked: list[int]) -> None:
    """Else each commit would look at all that came since."""
    with MessageStore.open(tmp_path) as store:
        for number in range(8):
            assert commit(tmp_path, f"before-{number}")
            store.attach_pending()
        pad_note(tmp_path, 0)
        packed.clear()
        for number in range(120):
            assert commit(tmp_path, f"behind-{number}", rows=1)
            store.attach_pending()
    assert 1 <= sum(count > PADDED for count in packed) <= 6
    assert max(walked) < 120


def test_a_lane_without_new_commits_is_noted_without_packing_its_section(tmp_path: Path, packed: list[int]) -> None:
    """Only the place moves: what was appended since is not looked at once more."""
    with MessageStore.open(tmp_path) as store:

        def noted_behind(frames: int) -> LaneNote:
            for _ in range(frames):
                store.append("other", 0, b"between")
            assert beside(tmp_path, ("none", 0)) == {}
            return unpack_note(note_of(tmp_path).read_bytes(), store._store_id, 1)[0]

        for number in range(8):
            assert commit(tmp_path, f"before-{number}")
            store.attach_pending()
        noted_behind(50)
        pad_note(tmp_path, 0)
        packed.clear()
        first, second = noted_behind(0), noted_behind(100)
        assert second.position > first.position and second.applied == first.applied
        assert packed == []


def test_an_entry_is_found_in_a_section_that_is_not_unpacked() -> None:
    names = [f"name-{number}" for number in range(50)]
    entries = [Applied(name, batch, number, 0, 0) for number, name in enumerate(names) for batch in (NO_BATCH, number)]
    entries.append(Applied("query", 9, 1, 0, 0, older=((8, 2), (7, 3))))
    section = pack_applied({one.key: one for one in entries})
    for one in entries:
        assert find_packed(section, one.key) == one
    for name in ("name", "name-", "ame-1", "name-50", "x"):
        assert find_packed(section, (name, True)) is find_packed(section, (name, False)) is None
    assert find_packed(section, ("query", True)) is find_packed(b"", ("query", True)) is None
    with pytest.raises(ValueError, match="checksum"):
        find_packed(section[:-1], ("query", False))


@pytest.mark.parametrize("lanes", [1, 3])
def test_what_is_found_by_the_note_is_what_the_whole_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    chance = random.Random(draw_seed())
    keys: dict[Key, int] = {}
    looks = unsure = 0
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        for number in range(30):
            for _ in range(chance.choice((0, 1, 30))):
                store.submit("other", chance.randrange(4), bytes(chance.choice((10, 2_000))))
            name, batch = chance.choice((("q1", number), ("q2", number), (f"t{number}", None), ("x", None)))
            attaching(monkeypatch.setattr, as_segments=chance.random() < 0.2)
            key = name, NO_BATCH if batch is None else batch
            assert commit(tmp_path, name, batch, label="") is (key not in keys)
            keys[key] = number
            if chance.random() < 0.8:
                store.attach_pending()
            if chance.random() < 0.2:
                note_of(tmp_path).unlink(missing_ok=True)
            for asked in chance.sample([*keys, ("none", 0), ("t", NO_BATCH)], min(3, len(keys))):
                before, found, looks = whole(tmp_path, asked), beside(tmp_path, asked), looks + 1
                if found is None:
                    unsure += 1
                else:  # the writer may attach what is left to it meanwhile
                    assert found in (before, whole(tmp_path, asked))
        store.attach_pending()
        lanes_of_writer = [attach.applied for attach in store._running.attacher._lanes]  # type: ignore[union-attr]
        for key in keys:
            until(lambda: beside(tmp_path, key) is not None)  # noqa: B023
            assert beside(tmp_path, key) == batches_in(lanes_of_writer, *key)
    assert unsure < looks // 4


def test_a_commit_that_comes_again_beside_a_writer_is_known_by_the_note(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for batch in range(5):
            assert commit(tmp_path, "query", batch)
            store.attach_pending()
        assert note_of(tmp_path).exists()
        assert not commit(tmp_path, "query", 2)
        assert not commit(tmp_path, "query", 4)
        with pytest.raises(ReplayDiffers, match="with other rows"):
            commit(tmp_path, "query", 3, rows=6)
        assert store.attach_pending() == 0


@pytest.mark.usefixtures("always_noted")
@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_note_is_none(tmp_path: Path, damage: str, walked: list[int]) -> None:
    with MessageStore.open(tmp_path) as store:
        for batch in range(3):
            assert commit(tmp_path, "query", batch)
            store.attach_pending()
        key = "query", 2
        right, content = whole(tmp_path, key), note_of(tmp_path).read_bytes()
        places = [0] if damage == "empty" else range(0, len(content), 7)
        for at in places:
            flipped = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
            note_of(tmp_path).write_bytes(flipped if damage == "flip" else content[:at])
            assert beside(tmp_path, key) == right
            assert walked[-1] >= 3  # all of them, from the beginning


def test_the_note_of_another_store_or_with_other_lanes_is_none() -> None:
    note = LaneNote(1, 8192, 5, 0, b"")
    content = pack_note(b"s" * 16, [note, NO_NOTE])
    assert unpack_note(content, b"s" * 16, 2) == [note, NO_NOTE]
    assert unpack_note(content, b"x" * 16, 2) == [NO_NOTE] * 2
    assert unpack_note(content, b"s" * 16, 3) == [NO_NOTE] * 3


@pytest.mark.parametrize("others", [0, 1, 6])
def test_a_log_that_was_put_back_is_not_taken_for_the_noted_one(tmp_path: Path, others: int) -> None:
    """The note then knows of commits that are gone: they are to be done again.

    The log goes on in the same segment, and with some `others` it has frames of the same sizes at the same places.
    """
    path = tmp_path / "s"
    with MessageStore.open(path) as store:
        for name in ("query", "other"):
            assert commit(path, name, 0)
            store.attach_pending()
    shutil.copytree(path, tmp_path / "backup")
    with MessageStore.open(path) as store:
        for batch in range(1, 7):
            assert commit(path, "query", batch)
            store.attach_pending()
        noted = unpack_note(note_of(path).read_bytes(), store._store_id, 1)[0]
        assert len(unpack_applied(noted.applied)["query", False].batches) > 3
    note = note_of(path).read_bytes()
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "backup", path)
    with MessageStore.open(path) as store:
        for batch in range(1, others + 1):
            assert commit(path, "other", batch)
            store.attach_pending()
        assert store._lanes[0].view.open[-1].segment.sequence == noted.sequence
        note_of(path).write_bytes(note)
        for batch in (1, 2):
            assert commit(path, "query", batch)
            store.attach_pending()
            note_of(path).write_bytes(note)
        assert not commit(path, "query", 0)


def test_a_note_that_is_older_than_the_log_hides_no_commit(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        notes = []
        for batch in range(40):
            assert commit(tmp_path, "query", batch, rows=60)
            store.attach_pending()
            if note_of(tmp_path).exists():
                notes.append(note_of(tmp_path).read_bytes())
        assert len(store._lanes[0].view.sealed) > 1
        for note in notes:
            note_of(tmp_path).write_bytes(note)
            assert not commit(tmp_path, "query", 39, rows=60)


def test_a_record_that_is_not_durable_yet_is_neither_found_nor_noted(tmp_path: Path) -> None:
    """Nor is a frame noted of which only a part is."""
    with MessageStore.open(tmp_path) as store:
        for batch in range(3):
            assert commit(tmp_path, "query", batch)
            store.attach_pending()
        last, end = store._lanes[0].under_way.forced_mark
        folder, store_id = store._lanes[0].folder, store._store_id
        record_ends, ends = record_ends_of(store), []
        near = {one + step for one in record_ends for step in (-1, 0, 1)}
        for position in sorted({*range(DATA_START, end, 5), *near, end}):
            lane = LaneCommits(DISK, folder, 0, store_id)
            try:
                lane.look(LaneState(0, 1, 0, last, position), NO_NOTE)
            except lane_commits.NotSure:  # no position where a message ends
                continue
            found = lane.find(("query", False))
            ends.append(-1 if found is None else found.batch)
            assert ends[-1] == sum(position >= one for one in record_ends) - 1
            again = LaneCommits(DISK, folder, 0, store_id)
            again.look(LaneState(0, 1, 0, last, position), lane.noted())
            assert again.find(("query", False)) == found
            noted = LaneCommits(DISK, folder, 0, store_id)
            noted.look(LaneState(0, 1, 0, last, max(position, DATA_START)), lane.noted())
            assert noted.walked <= 1  # the frame that is there in part
        assert sorted(set(ends)) == [-1, 0, 1, 2]


def record_ends_of(store: MessageStore) -> list[int]:
    """Where the records of commits end in the growing segment of a store with one lane."""
    lane = store._lanes[0]
    table = lane.view.open[-1].table
    entries = np.flatnonzero(table.numbers()[: table.visible] == lane.trims.records.number).tolist()
    rows = [table.columns(entry, entry + 1)[0].tolist() for entry in entries]
    return [row[POSITION] + row[LENGTH] for row in rows]


@pytest.mark.usefixtures("always_noted")
def test_a_sweep_leaves_the_note(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        assert commit(tmp_path, "query", 0)
        store.attach_pending()
        assert commit(tmp_path, "query", 1)
        store.attach_pending()
        os.utime(note_of(tmp_path), (1, 1))
        assert sweep_shards(tmp_path) == []
        assert note_of(tmp_path).exists()


def test_a_note_that_cannot_be_written_hinders_no_commit(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        commit(tmp_path, "query", 0)
        store.attach_pending()
        note_of(tmp_path).unlink(missing_ok=True)
        note_of(tmp_path).with_name("APPLIED.new").mkdir()
        assert commit(tmp_path, "query", 1)
        store.attach_pending()
        assert not commit(tmp_path, "query", 1)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("step", ["rename", "write"])
def test_a_note_that_was_not_written_whole_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    MessageStore.open(tmp_path).close()
    header = read_header(DISK, tmp_path)
    assert header is not None
    fresh = note_of(tmp_path).with_name("APPLIED.new")
    fresh.parent.mkdir(exist_ok=True)

    def failing(*_: object, **__: object) -> None:
        raise error

    owner = DISK.open(tmp_path / "STORE").__class__ if step == "write" else OsDisk
    with monkeypatch.context() as patch, pytest.raises(error) if error is KeyboardInterrupt else nullcontext():
        patch.setattr(owner, step, failing)
        write_note(DISK, tmp_path, header, [NO_NOTE])
    assert not fresh.exists() and not note_of(tmp_path).exists()


def test_what_a_killed_committer_left_of_a_note_is_not_written_over(tmp_path: Path) -> None:
    """It is removed: whoever has it open goes on with a file that is no note."""
    MessageStore.open(tmp_path).close()
    header = read_header(DISK, tmp_path)
    assert header is not None
    fresh = note_of(tmp_path).with_name("APPLIED.new")
    fresh.parent.mkdir(exist_ok=True)
    fresh.write_bytes(b"left" * 1000)
    with fresh.open("rb") as left:
        write_note(DISK, tmp_path, header, [NO_NOTE])
        assert left.read() == b"left" * 1000
    assert unpack_note(note_of(tmp_path).read_bytes(), header.store_id, 1) == [NO_NOTE]
    assert not fresh.exists()


@pytest.mark.usefixtures("always_noted")
@pytest.mark.parametrize("step", ["open", "rename", "write"])
def test_an_interrupt_while_the_note_is_written_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        assert commit(tmp_path, "query", 0)
        store.attach_pending()
        owner = DISK.open(tmp_path / "STORE").__class__ if step == "write" else OsDisk
        monkeypatch.setattr(owner, step, interrupted(getattr(owner, step)))
        with pytest.raises(KeyboardInterrupt):
            commit(tmp_path, "query", 1)
        monkeypatch.undo()
        assert store.attach_pending() == 0
        assert commit(tmp_path, "query", 1)
        store.attach_pending()
        assert not commit(tmp_path, "query", 1)
        assert store.queue_bounds("t0", 0)[1] == 2 * len([row for row in rows_of("x", 5) if row[:2] == ("t0", 0)])


def interrupted(call: Callable[..., object]) -> Callable[..., object]:
    """The same, interrupted where it is about the note."""

    def run(self: object, *given: object, **named: object) -> object:
        path = getattr(self, "path", getattr(self, "_path", None)) if not isinstance(self, OsDisk) else given[0]
        if "APPLIED" in str(path) and (named.get("create") or len(given) > 1):
            raise KeyboardInterrupt
        return call(self, *given, **named)

    return run
