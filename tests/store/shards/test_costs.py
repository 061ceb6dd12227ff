"""What a commit costs beside many others, and what it holds in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, commit_shards
from stratalog.store.device.os_file import OsFile
from stratalog.store.format import applied, commit_names
from stratalog.store.format.applied import AppliedCommit, pack_applied, unpack_applied
from stratalog.store.format.commit_names import CommitNames
from stratalog.store.format.layout import DATA_START, FRAME_HEADER_BYTES
from stratalog.store.shards import attacher, lane_attach, parts, rewriting
from stratalog.store.shards.lane_build import write_columns_ahead
from stratalog.store.shards.staging import StagedShard

from ..helpers import tiny
from ..test_steps import noted
from .helpers import content, queues_of, rows_of, staged


def entry(number: int, **more: Any) -> AppliedCommit:
    return AppliedCommit(f"load {number:06d}", -1, 1 + number, 0, 0, **more)


def packs_of(names: CommitNames, patch: pytest.MonkeyPatch) -> int:
    """How many entries are packed for one more commit, and how many for the next one."""
    packed: list[Any] = []
    with patch.context() as patched:
        noted(patched, AppliedCommit, "pack", packed)
        names.add(entry(1_000_000))
        names.add(entry(1_000_001))
    return len(packed)


def test_a_commit_packs_its_own_name_alone_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = CommitNames(), CommitNames()
    for names, count in ((few, 100), (many, 400)):
        for number in range(count):
            names.add(entry(number))
    assert packs_of(few, monkeypatch) == packs_of(many, monkeypatch) == 2


def test_names_that_are_kept_one_by_one_are_packed_as_all_of_them_are() -> None:
    names = CommitNames(pack_applied({one.key: one for one in map(entry, range(20))}))
    for one in (
        entry(30),
        entry(31, is_kept=False),
        AppliedCommit("q", 4, 5, 0, 0),
        entry(32, is_kept=False),
        entry(3),
    ):
        names.add(one)
        assert names.packed == pack_applied(names.table) and len(names.packed) == names.size_bytes
        assert CommitNames(names.packed).table == names.table
    assert entry(31).key not in names.table and list(names.table)[-1] == entry(3).key


def test_the_names_that_came_longest_ago_are_forgotten_where_all_take_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 40 * len(entry(0).pack())
    monkeypatch.setattr(applied, "MOST_BYTES", most)
    monkeypatch.setattr(commit_names, "MOST_BYTES", most)
    names = CommitNames()
    for number in range(100):
        names.add(entry(number), waiting={entry(7).key} if number < 60 else ())
        assert number in range(40, 60) or names.size_bytes <= most
        assert number not in range(8, 60) or entry(7).key in names.table
    assert entry(99).key in names.table and entry(7).key not in names.table and entry(10).key not in names.table
    table = {one.key: one for one in map(entry, range(100))}
    assert list(unpack_applied(pack_applied(table)))[-1] == entry(99).key
    assert len(pack_applied(table)) <= most + 8


def test_a_copy_of_the_names_is_changed_apart() -> None:
    names = CommitNames(pack_applied({one.key: one for one in map(entry, range(3))}))
    names.add(entry(3))
    twin, before = names.copy(), names.packed
    twin.add(entry(4))
    assert names.packed == before and list(names.table) == [entry(at).key for at in range(4)]


def test_a_large_commit_holds_the_indexes_of_few_of_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_lanes: list[list[StagedShard]] = []
    monkeypatch.setattr(attacher, "KEPT_INDEX_BYTES", 1000)
    monkeypatch.setattr(lane_attach, "SMALL_BYTES", 0)
    real = lane_attach.LaneAttach.part

    def part(lane: Any, manifest: Any, shards: list[StagedShard], waiting: Any) -> Any:
        of_lanes.append(shards)
        return real(lane, manifest, shards, waiting)

    monkeypatch.setattr(lane_attach.LaneAttach, "part", part)
    rows = [rows_of(f"x{number}", 50) for number in range(6)]
    with MessageStore.open(tmp_path, tiny()) as store:
        shards = tuple(shard for mine in rows for shard in staged(tmp_path, mine))
        assert commit_shards(tmp_path, shards, name="a", wait_ms=10_000).is_attached
        assert content(store) == queues_of(*rows)
    assert len(of_lanes[0]) == 6 and sum(one.held is not None for one in of_lanes[0]) <= 2


def test_columns_written_for_a_guess_that_was_wrong_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends to the same queues, and a new queue, come between the guess and the commit."""
    monkeypatch.setattr(lane_attach, "SMALL_BYTES", 0)
    rows, new = rows_of("x", 50), ("new", 5, b"n")
    with MessageStore.open(tmp_path, tiny()) as store:
        shards = staged(tmp_path, rows)

        def write(*given: Any) -> None:
            write_columns_ahead(*given)
            store.append_batch([new, *rows])

        with monkeypatch.context() as patched:
            patched.setattr(parts, "write_columns_ahead", write)
            assert commit_shards(tmp_path, shards, name="a", wait_ms=10_000).is_attached
        expected = queues_of([new], rows, rows)
        assert content(store) == expected
    with MessageStore.open(tmp_path, tiny()) as store:
        assert content(store) == expected


def test_columns_written_for_a_right_guess_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the lane stands still, each frame gets a header alone."""
    monkeypatch.setattr(lane_attach, "SMALL_BYTES", 0)
    sizes: list[int] = []
    real = rewriting.write_segment

    def write(disk: Any, path: Path, *given: Any) -> Any:
        with monkeypatch.context() as patched:
            whole = OsFile.write

            def note(file: OsFile, parts: Any, position: int, **more: Any) -> None:
                if DATA_START <= position < given[0].data_end:
                    sizes.append(sum(map(len, parts)))
                whole(file, parts, position, **more)

            patched.setattr(OsFile, "write", note)
            return real(disk, path, *given)

    monkeypatch.setattr("stratalog.store.shards.lane_build.write_segment", write)
    rows = rows_of("x", 50)
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append_batch(rows)
        assert commit_shards(tmp_path, staged(tmp_path, rows), name="a", wait_ms=10_000).is_attached
        assert content(store) == queues_of(rows, rows)
    assert set(sizes) == {FRAME_HEADER_BYTES}
