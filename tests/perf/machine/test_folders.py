"""Folders of runs: nothing is left of them, and nothing of others is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.perf.machine.folders import TooLittleSpace, run_folder


def test_folders_made_for_a_run_are_removed(tmp_path: Path) -> None:
    where = tmp_path / "new" / "newer"
    with run_folder(where) as base:
        (base / "data").write_bytes(bytes(10))
        assert base.parent == where
    assert list(tmp_path.iterdir()) == []


def test_folder_that_was_there_stays(tmp_path: Path) -> None:
    with run_folder(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_others_put_beside_a_run_stays(tmp_path: Path) -> None:
    where = tmp_path / "new" / "newer"
    with run_folder(where):
        (where / "notes").write_bytes(b"mine")
    assert list(where.iterdir()) == [where / "notes"]


def test_run_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(TooLittleSpace), run_folder(tmp_path / "new", 1 << 60):
        pytest.fail("it has no room")
    assert list(tmp_path.iterdir()) == []


def test_run_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), run_folder(tmp_path / "new"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
