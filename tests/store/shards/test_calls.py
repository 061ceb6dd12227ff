"""A committer wakes the process that has the store open."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stratalog.store import MessageStore, commit_shards
from stratalog.store.device.disk import OsDisk
from stratalog.store.live.calls import WriterCalls, call
from stratalog.store.log import upkeep

from ..helpers import tiny, until
from .helpers import rows_of, staged

CALL_S = 20


@pytest.fixture(autouse=True)
def sleeps_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is not woken does not wake up by itself."""
    monkeypatch.setattr("stratalog.store.live.calls.PATIENCE_S", 10_000.0)


def test_a_commit_beside_a_writer_is_attached_although_the_writer_looks_by_itself_too_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "TICK_S", 10_000.0)
    with MessageStore.open(tmp_path, tiny()) as store:
        until(lambda: not store._upkeep._wake_lookers.is_set())
        for number in range(3):
            shards = staged(tmp_path, rows_of(f"x{number}", 5))
            assert commit_shards(tmp_path, shards, name=f"{number}", wait_ms=1000 * CALL_S).is_attached


def test_a_call_that_comes_before_the_first_sleep_is_answered(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    called = threading.Event()
    calls = WriterCalls(OsDisk(), tmp_path, called.set)
    calls.start()
    call(OsDisk(), tmp_path)
    assert called.wait(CALL_S)
    calls.close()


def test_a_call_of_a_store_without_a_page_does_no_harm(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    (tmp_path / "LIVE").unlink()
    call(OsDisk(), tmp_path)
    calls = WriterCalls(OsDisk(), tmp_path, lambda: None)
    calls.start()
    calls.close()
    assert not (tmp_path / "LIVE").exists()


def test_whatever_a_call_raises_the_next_one_is_answered(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    times: list[None] = []
    second = threading.Event()

    def fail() -> None:
        times.append(None)
        if len(times) == 2:
            second.set()
        raise MemoryError("a hook")

    calls = WriterCalls(OsDisk(), tmp_path, fail)
    calls.start()
    call(OsDisk(), tmp_path)
    until(lambda: len(times) == 1)
    call(OsDisk(), tmp_path)
    assert second.wait(CALL_S)
    calls.close()
