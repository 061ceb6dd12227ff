"""Folders of runs: nothing is left of them, and nothing of others is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.perf.machine.folders import NoFolder, TooLittleSpace, run_folder


def test_folder_that_does_not_exist_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(NoFolder, match=r"there is no folder .*mistyped"), run_folder(tmp_path / "mistyped"):
        pytest.fail("it has no folder")
    assert list(tmp_path.iterdir()) == []


def test_folder_that_was_there_stays(tmp_path: Path) -> None:
    with run_folder(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_others_put_beside_a_run_stays(tmp_path: Path) -> None:
    with run_folder(tmp_path):
        (tmp_path / "notes").write_bytes(b"mine")
    assert list(tmp_path.iterdir()) == [tmp_path / "notes"]


def test_run_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(TooLittleSpace), run_folder(tmp_path, 1 << 60):
        pytest.fail("it has no room")
    assert list(tmp_path.iterdir()) == []


def test_run_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), run_folder(tmp_path):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
