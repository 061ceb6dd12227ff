"""A store of which some lanes are compacted is a whole store; an index that names places in an old log does no harm."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreUnreadable, compact_store, verify_folder
from stratalog.store.api import compacting as compacting_module
from stratalog.store.format.store_files import COMPACTED_FILE
from tests.clocks import WallClock
from tests.seeds import draw_seed

from ..helpers import tiny, until
from .crashes import TIMES_MS, Round, check_state, taken_of
from .looks import NOW_MS, state, state_of

LANES = 3


@pytest.fixture
def made(tmp_path: Path) -> Round:
    """A closed store with three lanes, and all that `Round` puts into it."""
    made = Round(draw_seed(), tmp_path, share=0.0)
    made.lanes = LANES
    made.make()
    with MessageStore.open(made.path, tiny()) as store:  # each lane has segments that can become one
        store.append_batch([("fill", number % 24, bytes(6_000)) for number in range(240)])
    return made


def compact_some(path: Path, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compact so many lanes; then the system fails."""
    replace: Callable[..., None] = compacting_module._replace
    done = 0

    def failing(*given: Any) -> None:
        nonlocal done
        if done == lanes:
            raise OSError(5, "Input/output error")
        done += 1
        replace(*given)

    with monkeypatch.context() as patch:
        patch.setattr(compacting_module, "_replace", failing)
        with pytest.raises(StoreUnreadable, match="Nothing is lost; try again"):
            compact_store(path)


def compacted(path: Path) -> list[bool]:
    """For each lane, whether it was compacted."""
    return [(path / f"lane-{lane:02d}" / COMPACTED_FILE).exists() for lane in range(LANES)]


def everything(path: Path) -> list[object]:
    """What reads give, and what subscriptions get at some times, one after the other."""
    found: list[object] = []
    for now_ms in TIMES_MS:
        with MessageStore.open(path, tiny(), clock=WallClock(lambda now_ms=now_ms: now_ms)) as store:  # type: ignore[misc]
            assert store.losses == []
            found += [state(store), taken_of(store)]
    return found


def test_a_store_with_some_lanes_compacted_is_whole_and_the_next_run_does_the_others(
    made: Round, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old, lanes = made.path, tmp_path / "old", made.chance.choice((1, 2))
    before = state_of(path)
    shutil.copytree(path, old)
    compact_some(path, lanes, monkeypatch)
    assert sum(compacted(path)) == lanes
    check_state(state_of(path), before)
    assert verify_folder(path).damages == []
    with MessageStore.open(path, tiny(), clock=WallClock(lambda: NOW_MS)):
        pass  # it makes an index of the new log of some lanes and the old one of the others
    compact_store(path)
    assert all(compacted(path))
    assert everything(path) == everything(old)


def test_an_index_of_the_log_before_is_taken_over_and_gives_each_message_once(made: Round, tmp_path: Path) -> None:
    path, old = made.path, tmp_path / "old"
    with MessageStore.open(path, tiny(), clock=WallClock(lambda: NOW_MS)) as store:
        until(lambda: not any(topic["is_behind"] for topic in store.stats()["delayed"].values()))
        pending = {topic: figures["pending"] for topic, figures in store.stats()["delayed"].items()}
    shutil.copytree(path, old)
    compact_store(path)
    shutil.rmtree(path / "delayed")
    shutil.copytree(old / "delayed", path / "delayed")
    with MessageStore.open(path, tiny(), clock=WallClock(lambda: NOW_MS)) as store:
        until(lambda: not any(topic["is_behind"] for topic in store.stats()["delayed"].values()))
        for topic, figures in store.stats()["delayed"].items():
            assert (figures["rebuilds"], figures["pending"]) == (0, pending[topic]), (
                "a message is there twice, or missing"
            )
    assert everything(path) == everything(old)


def test_an_index_made_between_two_lanes_is_good_behind_the_last_one(
    made: Round, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old = made.path, tmp_path / "old"
    shutil.copytree(path, old)
    compact_some(path, made.chance.choice((1, 2)), monkeypatch)
    with MessageStore.open(path, tiny(), clock=WallClock(lambda: NOW_MS)):
        pass
    shutil.copytree(path / "delayed", tmp_path / "between")
    compact_store(path)
    shutil.rmtree(path / "delayed")
    shutil.copytree(tmp_path / "between", path / "delayed")
    assert everything(path) == everything(old)
