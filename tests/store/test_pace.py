"""Appends go no faster than retention, and never wait for one that cannot go on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore
from stratalog.store.log import pace, removal
from stratalog.store.log.pace import MOST_OVER

from .helpers import KIB, PATIENCE_S, tiny, until
from .test_steps import noted

LIMIT = 400 * KIB
STANDS_S = 20  # and goes on all the same where a test has failed


def held(store: MessageStore) -> int:
    return store._upkeep.removal.held_bytes()


def fill(store: MessageStore, segments: int) -> None:
    for _ in range(8 * segments):
        store.append("t", 0, bytes(8 * KIB))


class Stopped:
    """Retention that stands still in the middle of a step, until it is let go."""

    def __init__(self, store: MessageStore, patch: pytest.MonkeyPatch) -> None:
        self.go_on, self.stands = threading.Event(), threading.Event()
        self._store = store
        of_store = store._upkeep.removal
        real = of_store._remove

        def remove(lane: Any, sealed: Sequence[Any]) -> None:
            self.stands.set()
            self.go_on.wait(STANDS_S)
            real(lane, sealed)

        patch.setattr(of_store, "_remove", remove)


def let_go(stopped: Stopped, tickets: Sequence[Any]) -> None:
    """Have retention go on once all is durable."""
    until(lambda: all(ticket.done() for ticket in tickets))
    stopped.go_on.set()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits too long does so for good."""
    monkeypatch.setattr(pace, "PATIENCE_S", 1000.0)


@pytest.mark.usefixtures("patient")
def test_an_append_waits_for_retention_that_is_behind_and_goes_on_behind_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(retention_bytes=LIMIT)
    with MessageStore.open(tmp_path, config) as store:
        stopped = Stopped(store, monkeypatch)
        most = LIMIT + (MOST_OVER + 2) * config.segment_bytes
        filler = threading.Thread(target=fill, args=(store, 40))
        filler.start()
        try:
            until(lambda: store._upkeep.removal.pace.waits > 0 or not filler.is_alive())
            assert filler.is_alive() and stopped.stands.is_set() and held(store) <= most
        finally:
            stopped.go_on.set()
        filler.join(PATIENCE_S)
        assert not filler.is_alive() and held(store) <= most
        assert store._upkeep.removal.removed_segments > 20


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("how", ["a guard keeps it", "a guard fails", "the allowance fails"])
def test_no_append_waits_for_retention_that_cannot_go_on(tmp_path: Path, how: str) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=LIMIT)) as store:
        of_store = store._upkeep.removal

        def fail(*_: object) -> Any:
            raise OSError("a device")

        if how == "a guard keeps it":
            of_store.guards.append(lambda lane, oldest: False)
        elif how == "a guard fails":
            of_store.guards.append(fail)
        else:
            of_store.allowance = fail
        fill(store, 40)
        assert held(store) > 2 * LIMIT


@pytest.mark.usefixtures("patient")
def test_no_append_waits_for_retention_that_has_the_lanes_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=LIMIT, durability="os")) as store:
        of_store = store._upkeep.removal
        real = of_store._force

        def force() -> None:
            until(lambda: of_store.pace.waits > 0)
            real()

        monkeypatch.setattr(of_store, "_force", force)
        filler = threading.Thread(target=fill, args=(store, 40))
        filler.start()
        filler.join(STANDS_S)
        is_over = not filler.is_alive()
        monkeypatch.setattr(pace, "PATIENCE_S", 0.0)
        of_store.pace.is_forcing = True  # where the test has failed
        filler.join(PATIENCE_S)
        assert is_over


@pytest.mark.usefixtures("patient")
def test_records_never_wait_for_retention_and_take_the_appends_before_them_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=LIMIT)) as store:
        stopped = Stopped(store, monkeypatch)
        filler = threading.Thread(target=fill, args=(store, 40))
        filler.start()
        until(lambda: store._upkeep.removal.pace.waits > 0)
        store.trim("t", 0, 1)  # retention stands still: this returns all the same
        assert not stopped.go_on.is_set() and store.queue_bounds("t", 0)[0] == 1
        stopped.go_on.set()
        filler.join(PATIENCE_S)
        assert not filler.is_alive()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("how", ["closed", "poisoned"])
def test_an_end_of_the_store_wakes_who_waits_for_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    store = MessageStore.open(tmp_path, tiny(retention_bytes=LIMIT))
    stopped = Stopped(store, monkeypatch)
    tickets = [store.submit("t", 0, bytes(8 * KIB)) for _ in range(200)]
    until(lambda: store._upkeep.removal.pace.waits > 0)
    if how == "poisoned":
        store._flushers[0].fail(OSError("a device"))
        until(lambda: all(ticket.done() for ticket in tickets))
        stopped.go_on.set()
    else:
        threading.Thread(target=let_go, args=(stopped, tickets)).start()
    store.close()
    assert all(ticket.done() for ticket in tickets)


def steps_of_a_removal(folder: Path, segments: int, patch: pytest.MonkeyPatch) -> int:
    """How often it is noted where the log begins while so many segments, and more, are removed."""
    with MessageStore.open(folder, tiny()) as store:
        fill(store, segments)
        until(lambda: store.stats()["segments"]["sealed"] >= segments)
    notes: list[Any] = []
    with patch.context() as patched:
        noted(patched, removal, "write_start", notes)
        with MessageStore.open(folder, tiny(retention_bytes=0)) as store:
            until(lambda: store.stats()["segments"]["sealed"] == 1)
    return len(notes)


def test_segments_go_together_with_one_note_of_where_the_log_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [steps_of_a_removal(tmp_path / str(one), one, monkeypatch) for one in (4, 16)] == [1, 1]
