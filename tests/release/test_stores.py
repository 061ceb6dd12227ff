"""A store of each version of the format opens, with all that it held, and can be gone on with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stratalog import StoreReader
from stratalog.store.format.layout import FORMAT_VERSION
from stratalog.tools import verify_folder

from .stores import CONFIG, START_MS, fill, opened, path_of, seen, unpack, versions, write

INDEX_VERSION_AT = 8  # in the manifest of an index of delayed messages
each_version = pytest.mark.parametrize("version", versions())


def as_it_held(now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """What a store is seen to hold, without settings that came after it was written."""
    now = json.loads(json.dumps(now))
    of_topics = [(now["settings"][topic], known) for topic, known in then["settings"].items()]
    of_subscriptions = [(now["subscriptions"][name][-1], known[-1]) for name, known in then["subscriptions"].items()]
    for mine, known in of_topics + of_subscriptions:
        for name in set(mine) - set(known):
            del mine[name]
    return now


def test_each_version_from_the_first_to_that_of_the_code_has_its_store() -> None:
    assert versions() == list(range(1, FORMAT_VERSION + 1))


@each_version
def test_a_kept_store_has_something_of_everything(version: int, tmp_path: Path) -> None:
    folder, held = unpack(version, tmp_path)
    assert len(list(folder.rglob("*.seg"))) > 10
    assert {"bulk/1", "failed/0", "together/3", "later/0"} <= set(held["topics"])
    assert held["topics"]["large/1"][:2] == [7, 40] and "gone/0" not in held["topics"]
    assert held["subscriptions"]["jobs/workers"][:2] == [{"0": [3, 4, 10], "1": [2, 0, 10]}, [11, 0, 0]]
    assert held["subscriptions"]["later/waiting"][1] == [0, 48, 0]
    assert held["settings"]["orders"]["types"] == "('normal', 'fifo')"


@each_version
def test_a_kept_store_opens_with_all_that_it_held(version: int, tmp_path: Path) -> None:
    folder, held = unpack(version, tmp_path)
    assert verify_folder(folder).damages == []
    for _ in range(2):
        with opened(folder) as store:
            assert as_it_held(seen(store), held) == held
            assert store.losses == []


@each_version
def test_a_reader_of_a_kept_store_finds_all_and_changes_nothing(version: int, tmp_path: Path) -> None:
    folder, held = unpack(version, tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*.seg")}
    with StoreReader.open(folder, CONFIG) as reader:
        for place, (first, end, rows) in held["topics"].items():
            topic, _, queue = place.rpartition("/")
            assert reader.queue_bounds(topic, int(queue)) == (first, end)
            if rows:
                read = reader.read(topic, int(queue), first, max_messages=1000)
                assert [(one.offset, len(one.data)) for one in read] == [(row[0], row[1]) for row in rows]
    assert {path: path.read_bytes() for path in folder.rglob("*.seg")} == before


@each_version
def test_a_kept_store_remembers_and_goes_on(version: int, tmp_path: Path) -> None:
    folder, held = unpack(version, tmp_path)
    with opened(folder) as store:
        again = store.submit("ids", 0, b"twice", message_id="o-17")
        assert (again.result(), again.is_repeat) == (0, True)
        assert not store.cancel_delayed("later", 0, 1) and store.cancel_delayed("later", 0, 2)
        assert store.append("gone", 0, b"new") == 1  # offsets go on after a deletion
        for place, (_, end, _rows) in held["topics"].items():
            topic, _, queue = place.rpartition("/")
            assert store.append(topic, int(queue), b"later") == end
    with opened(folder) as store:
        assert {store.read("large", queue, 40)[0].data for queue in range(4)} == {b"later"}


@each_version
@pytest.mark.parametrize("other", [1, 3])
def test_an_index_of_delayed_messages_of_another_version_is_made_again(
    version: int, other: int, tmp_path: Path
) -> None:
    folder, held = unpack(version, tmp_path)
    [manifest] = folder.glob("delayed/*/MANIFEST")
    data = bytearray(manifest.read_bytes())
    assert data[INDEX_VERSION_AT] == 2
    data[INDEX_VERSION_AT] = other
    manifest.write_bytes(data)
    with opened(folder) as store:
        assert as_it_held(seen(store), held) == held
    assert manifest.read_bytes()[INDEX_VERSION_AT] == 2


def test_the_command_that_is_said_to_have_written_the_kept_store_writes_such_a_store(tmp_path: Path) -> None:
    """But for the times of a commit, which are the system's."""
    _, held = unpack(FORMAT_VERSION, tmp_path)
    mine = as_it_held(fill(tmp_path / "mine"), held)
    for one in (mine, held):
        for place in ("bulk/0", "bulk/1"):
            for row in one["topics"][place][2]:
                assert row.pop() > START_MS
    assert mine == held


def test_a_kept_store_is_never_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.release.stores.FIXTURES", tmp_path)
    shutil.copy(Path(__file__).parents[1] / "fixtures" / path_of(1).name, path_of(1))
    before = path_of(1).read_bytes()
    with pytest.raises(FileExistsError):
        write(1)
    assert path_of(1).read_bytes() == before
