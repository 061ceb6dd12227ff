"""The job `rebuild`: what tasks make of the log is what was lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from stratalog.console.app import app
from stratalog.pipeline.jobs import rebuild
from stratalog.store import MessageStore, StoreCorrupt, StoreLocked, StoreUnusable
from tests.seeds import draw_seed

from ..store.delayed.consumer import START_MS, Hand, topic_of
from ..store.helpers import log_snapshot, overwrite, seal_of, segment_path, until
from ..store.rebuild.test_delays import make


def lose_footer(store: Path, sequence: int) -> None:
    path = segment_path(store, sequence)
    record = seal_of(path)
    assert record is not None
    overwrite(path, record.footer_position, bytes(record.footer_bytes))


def test_lost_footers_and_indexes_of_a_folder_of_stores_are_made_again(spark: SparkSession, tmp_path: Path) -> None:
    hand = Hand()
    paths = [tmp_path / "stores" / name for name in "ab"]
    for path in paths:
        make(path, hand, draw_seed())
        with hand.open(path) as store:
            until(lambda store=store: not topic_of(store).is_lagging)  # type: ignore[misc]  # mypy: no type of a default
            pending = topic_of(store).pending
        whole = log_snapshot(path / "lane-00")
        for sequence in (1, 2):
            lose_footer(path, sequence)
        shutil.rmtree(path / "delayed")
    done = rebuild(spark, tmp_path / "stores", now_ms=START_MS)
    assert [(one.store, one.footers, one.left) for one in done] == [(str(path), 2, []) for path in paths]
    assert log_snapshot(paths[-1] / "lane-00") == whole
    with hand.open(paths[-1]) as store:
        until(lambda: not topic_of(store).is_lagging)
        assert topic_of(store).last_rebuild is None and topic_of(store).pending == pending
        assert 0 < done[-1].delayed["t"] <= pending + 40


def test_errors_of_tasks_are_those_of_the_store(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path / "s", Hand(), 2)
    with MessageStore.open(tmp_path / "s"), pytest.raises(StoreLocked):
        rebuild(spark, tmp_path / "s")
    with pytest.raises(StoreUnusable):
        rebuild(spark, tmp_path / "nothing")
    path = segment_path(tmp_path / "s", 2)
    overwrite(path, 0, bytes(4096))
    with pytest.raises(StoreCorrupt, match="header"):
        rebuild(spark, tmp_path / "s")


@pytest.mark.usefixtures("spark")  # it borrows the session
def test_command_tells_what_was_made(tmp_path: Path) -> None:
    make(tmp_path, Hand(), 3)
    lose_footer(tmp_path, 1)
    found = CliRunner().invoke(app, ["spark", "rebuild", str(tmp_path), "--json", "-"])
    assert found.exit_code == 0, found.output
    [one] = json.loads(found.stdout)["stores"]
    assert (one["footers"], one["left"], one["delayed"]) == (1, [], {"t": 0})
