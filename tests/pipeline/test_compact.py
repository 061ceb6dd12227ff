"""The job `compact`: closed stores in fewer segments, with the same offsets and messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from stratalog.console.app import app
from stratalog.pipeline import BadOption
from stratalog.pipeline.jobs import compact
from stratalog.store import MessageStore, StoreLocked, verify_folder

from .stores import SMALL, make_store, scanned_rows


def test_a_folder_of_stores_has_fewer_segments_and_the_same_messages(spark: SparkSession, tmp_path: Path) -> None:
    expected = []
    for name in "ab":
        rows = make_store(tmp_path / name, ord(name))
        with MessageStore.open(tmp_path / name, SMALL) as store:
            store.trim("orders", 0, before_offset=100)
            store.delete_topic("é")
        expected.append([row for row in rows if row.topic != "é" and (row[:2] != ("orders", 0) or row.offset >= 100)])
    done = compact(spark, tmp_path, segment_bytes=512 << 10)
    assert [one.store for one in done] == [str(tmp_path / name) for name in "ab"]
    for one, rows in zip(done, expected, strict=True):
        assert one.segments < one.segments_before and one.removed > 100
        with MessageStore.open(one.store, SMALL) as store:
            assert scanned_rows(store) == rows
        assert verify_folder(one.store).damages == []


@pytest.mark.usefixtures("spark")  # it borrows the session
def test_the_command_says_what_it_did_and_what_hinders_it(tmp_path: Path) -> None:
    rows = make_store(tmp_path / "s", 3)
    done = CliRunner().invoke(app, ["spark", "compact", str(tmp_path / "s"), "--json", "-"])
    assert done.exit_code == 0, done.output
    [one] = json.loads(done.stdout)["stores"]
    assert one["segments"] == 2 < one["segments_before"] and one["removed"] == 0
    with MessageStore.open(tmp_path / "s") as store:
        assert scanned_rows(store) == rows
        refused = CliRunner().invoke(app, ["spark", "compact", str(tmp_path / "s")])
    assert refused.exit_code != 0 and "is open already" in refused.stderr


def test_what_is_wrong_is_the_stores_own_error(spark: SparkSession, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path), pytest.raises(StoreLocked):
        compact(spark, tmp_path)
    for wrong in (0, 1.5, "1g", 4 << 30):
        with pytest.raises(BadOption, match="segment_bytes is an int from 1 to"):
            compact(spark, tmp_path, segment_bytes=wrong)  # type: ignore[arg-type]  # what a user may try
