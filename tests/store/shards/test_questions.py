"""Beside a writer a committer asks that one what was committed: each answer, and each way to get none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import (
    MessageStore,
    ReplayDiffers,
    StoreFull,
    StoreLocked,
    StorePoisoned,
    commit_shards,
    sweep_shards,
)
from stratalog.store.api import commits
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.folder import FolderLock
from stratalog.store.format.applied import AppliedCommit, pack_applied, unpack_applied
from stratalog.store.format.commit_names import CommitNames
from stratalog.store.format.shard import ANSWER, QUESTION, pack_line, unpack_line
from stratalog.store.shards import question
from stratalog.store.shards.question import Question, answer_question
from stratalog.store.testing import SimulatedDisk
from tests.seeds import draw_seed

from ..helpers import PATIENCE_S, small, tiny, until
from . import writer_kills
from .helpers import content, held, left_in, queues_of, rows_of, staged
from .test_together import OLD, ROWS, waiting

ROUNDS = 12


def commit(path: Path, name: str = "q", batch: int | None = 1, label: str = "x") -> bool:
    return commit_shards(path, staged(path, rows_of(label, 5)), name=name, batch=batch, wait_ms=0).is_new


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A committer that gives up at once."""
    monkeypatch.setattr(commits, "ANSWER_S", 0.2)
    monkeypatch.setattr(commits, "FIRST_PATIENCE_S", 0.1)


@contextmanager
def locked(path: Path) -> Iterator[FolderLock]:
    """Somebody has the store's folder who answers nothing."""
    lock = FolderLock(path)
    lock.take()
    try:
        yield lock
    finally:
        lock.release()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_writer_that_is_killed_beside_a_committer_leaves_the_commit_done_once(number: int) -> None:
    """The long form: `python -m tests.store.shards.writer_kills`."""
    assert writer_kills.run_round(draw_seed() + number) == 1


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_committer_is_told_what_the_writer_knows(tmp_path: Path, lanes: int) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        for batch in range(3):
            assert commit(tmp_path, batch=batch, label=f"{batch}")
            store.attach_pending()
        assert commit(tmp_path, "t", None)
        assert not commit(tmp_path, batch=1, label="1")
        assert not commit(tmp_path, "t", None)
        with pytest.raises(ReplayDiffers, match="with other rows"):
            commit(tmp_path, batch=0, label="other")
        with pytest.raises(ReplayDiffers, match="with other rows"):
            commit(tmp_path, "t", None, label="other")
        store.attach_pending()
        wanted = queues_of(*(rows_of(label, 5) for label in "012x"))
        assert content(store) == wanted
    assert all(".manifest" not in name and name not in (QUESTION, ANSWER) for name in left_in(tmp_path))


def test_a_writer_answers_while_it_attaches(tmp_path: Path) -> None:
    """To attach a large commit may take minutes. What is being attached waits by its manifest."""
    with MessageStore.open(tmp_path, tiny()) as store:
        assert commit(tmp_path, batch=0)
        store.attach_pending()
        with held(store):
            assert not commit(tmp_path, batch=0)
            assert commit(tmp_path, batch=1)
            assert not commit(tmp_path, batch=1)
            with pytest.raises(ReplayDiffers):
                commit(tmp_path, batch=1, label="other")
        store.attach_pending()
        assert content(store) == queues_of(*[rows_of("x", 5)] * 2)


def test_a_commit_whose_messages_retention_has_removed_is_known(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=200_000)) as store:
        assert commit(tmp_path)
        store.attach_pending()
        for _ in range(20):
            store.append_batch([("t0", 0, bytes(4000))] * 20)
        until(lambda: store._upkeep.removal.removed_segments > 3)
        assert not commit(tmp_path)
        with pytest.raises(ReplayDiffers):
            commit(tmp_path, label="other")


def test_a_commit_beside_a_writer_costs_the_same_however_long_the_log_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens no file of a lane."""
    opened: list[str] = []
    open_file = OsDisk.open

    def noting(self: OsDisk, path: Path, **how: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            opened.append(path.name)
        return open_file(self, path, **how)

    with MessageStore.open(tmp_path, small()) as store:
        store.append_batch([("t0", 0, bytes(1000))] * 1000)
        shards = staged(tmp_path, rows_of("x", 5))
        with held(store):
            monkeypatch.setattr(OsDisk, "open", noting)
            assert commit_shards(tmp_path, shards, name="q", wait_ms=0).is_new
            monkeypatch.undo()
        assert opened and not [name for name in opened if name.endswith((".seg", ".shard"))]


@pytest.mark.usefixtures("impatient")
def test_a_process_that_has_the_store_and_does_not_answer_is_waited_for_and_nothing_is_committed(
    tmp_path: Path,
) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    with locked(tmp_path):
        with pytest.raises(StoreLocked, match=r"has not told.*Nothing was committed; call it again"):
            commit(tmp_path)
        assert not [name for name in left_in(tmp_path) if name.endswith(".manifest")]
        assert QUESTION not in left_in(tmp_path)
    assert commit(tmp_path)
    assert not commit(tmp_path)
    with MessageStore.open(tmp_path, tiny()) as store:
        assert content(store) == queues_of(rows_of("x", 5))


def test_a_committer_goes_on_when_the_process_that_did_not_answer_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    with locked(tmp_path) as lock:
        ask, asked = commits._asked, list[float]()

        def asking(*given: Any) -> dict[int, int] | None:
            asked.append(given[-1])
            if len(asked) == 3:
                lock.release()
            return ask(*given)

        monkeypatch.setattr(commits, "_asked", asking)
        monkeypatch.setattr(commits, "FIRST_PATIENCE_S", 0.001)
        assert commit_shards(tmp_path, staged(tmp_path, OLD), name="q") == (True, True, len(OLD))
    assert asked == [0.001, 0.002, 0.004]  # one that needs a while to answer is given it


def test_a_writer_that_has_failed_takes_no_commit_and_says_why(tmp_path: Path) -> None:
    """What it has in memory proves nothing; the next opening finds out."""
    disk = SimulatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        shards = staged(tmp_path, ROWS, disk=disk)
        store._flushers[0].fail(OSError(5, "as a failed write does"))
        with pytest.raises(StorePoisoned):
            store.append(*OLD[0])
        with pytest.raises(StoreLocked, match=r"takes no commit now.*Nothing was committed"):
            commit_shards(tmp_path, shards, name="q", disk=disk)
    assert commit_shards(tmp_path, shards, name="q", disk=disk) == (True, True, len(ROWS))
    with MessageStore.open(tmp_path, tiny(), disk=disk) as again:
        assert content(again) == queues_of(ROWS)


def test_a_store_without_a_page_answers_by_itself(tmp_path: Path) -> None:
    """Nobody can call it: it looks twice a second."""
    with MessageStore.open(tmp_path, tiny()) as store:
        (tmp_path / "LIVE").unlink()
        assert commit(tmp_path)
        store.attach_pending()
        assert not commit(tmp_path)


def test_a_store_that_opens_answers_when_it_is_open(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    assert commit(tmp_path)
    asked = Question(OsDisk(), tmp_path, "q", 1)
    with MessageStore.open(tmp_path, tiny()):
        assert list(asked.answer() or ()) == [1]
    asked.end()


def test_an_answer_to_another_question_or_a_torn_one_is_none(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    disk = OsDisk()
    (tmp_path / "incoming").mkdir()
    known = {3: 4}
    one = Question(disk, tmp_path, "q", 1)
    answer_question(disk, tmp_path, "", lambda *_: known)
    assert one.answer() == known
    path = tmp_path / "incoming" / ANSWER
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert one.answer() is None
        path.write_bytes(whole[:cut] + bytes([whole[cut] ^ 1]) + whole[cut + 1 :])
        assert one.answer() is None
    path.write_bytes(whole)
    other = Question(disk, tmp_path, "q", 1)
    assert other.answer() is None
    path.unlink()
    assert one.answer() is None
    other.end()


def test_a_question_is_answered_once_and_a_torn_one_never(tmp_path: Path) -> None:
    """Else each look of a writer would write beside a question that a killed committer has left."""
    disk = OsDisk()
    (tmp_path / "incoming").mkdir()
    Question(disk, tmp_path, "q", 1)
    asked: list[tuple[str, int]] = []

    def batches(name: str, batch: int) -> dict[int, int]:
        asked.append((name, batch))
        return {}

    last = answer_question(disk, tmp_path, "", batches)
    assert answer_question(disk, tmp_path, last, batches) == last
    path = tmp_path / "incoming" / QUESTION
    path.write_bytes(path.read_bytes()[:-1])
    assert answer_question(disk, tmp_path, "", batches) == ""
    assert asked == [("q", 1)]


def test_what_a_killed_committer_has_asked_hinders_no_other_one(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        (tmp_path / "incoming").mkdir()
        Question(OsDisk(), tmp_path, "other", 5)
        assert commit(tmp_path)
        store.attach_pending()
        assert not commit(tmp_path)
        assert left_in(tmp_path) == []


def aged_and_swept(folder: Path) -> list[str]:
    """What goes after an hour; the store beside may answer once more, as the question is another one by its time."""
    for name in left_in(folder):
        os.utime(folder / "incoming" / name, (1, 1))
    return sweep_shards(folder)


def test_what_a_killed_committer_has_asked_is_swept(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()):
        (tmp_path / "incoming").mkdir()
        Question(OsDisk(), tmp_path, "other", 5)
        until(lambda: ANSWER in left_in(tmp_path))
        assert sweep_shards(tmp_path) == []
        swept = list[str]()

        def both_went() -> bool:
            swept.extend(aged_and_swept(tmp_path))
            return set(swept) == {ANSWER, QUESTION}

        until(both_went)
        until(lambda: left_in(tmp_path) == [])


def test_an_answer_that_cannot_be_written_hinders_no_attaching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with MessageStore.open(tmp_path, tiny()) as store, held(store):
        assert commit(tmp_path)
        asked = Question(OsDisk(), tmp_path, "q", 1)
        monkeypatch.setattr(question, "_write", full)
        attacher = store._running.attacher
        assert attacher is not None
        attacher.attach_and_sweep()
        assert content(store) == queues_of(rows_of("x", 5))
        monkeypatch.undo()
        attacher.attach_and_sweep()
        assert asked.answer() is not None
        asked.end()


def test_a_question_that_has_no_room_commits_nothing(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        shards = staged(tmp_path, ROWS, disk=disk)
        disk.capacity_bytes = 0
        with pytest.raises(StoreFull, match="Nothing was committed"):
            commit_shards(tmp_path, shards, name="q", disk=disk)
        disk.capacity_bytes = None
        assert commit_shards(tmp_path, shards, name="q", disk=disk, wait_ms=0).is_new
        store.attach_pending()
        assert content(store) == queues_of(ROWS)


@pytest.mark.parametrize("at", ["ask", "answer", "call"])
def test_an_interrupt_while_a_committer_asks_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    owner, name = {"ask": (Question, "__init__"), "answer": (Question, "answer"), "call": (commits, "call")}[at]
    with MessageStore.open(tmp_path, tiny()) as store:
        monkeypatch.setattr(owner, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            commit(tmp_path)
        monkeypatch.undo()
        assert store.attach_pending() == 0
        assert commit(tmp_path)
        store.attach_pending()
        assert content(store) == queues_of(rows_of("x", 5))


@pytest.mark.parametrize("answered_first", [True, False])
def test_a_commit_that_is_cleared_while_the_answer_is_on_its_way_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered_first: bool
) -> None:
    """What waits is looked at before the writer is asked: so nothing leaves the folder and is not in the answer."""
    with MessageStore.open(tmp_path, tiny()) as store, held(store):
        waiting(tmp_path, ROWS)
        ask = commits._asked

        def attached_meanwhile(*given: Any) -> dict[int, int] | None:
            found = ask(*given) if answered_first else None
            store.attach_pending()
            return found if answered_first else ask(*given)

        monkeypatch.setattr(commits, "_asked", attached_meanwhile)
        assert not commit_shards(tmp_path, staged(tmp_path, ROWS), name="q", wait_ms=0).is_new
        monkeypatch.undo()
        store.attach_pending()
        assert content(store) == queues_of(ROWS)


# -- the names of a lane, looked up by another thread -----------------------------------------------------


def entry(batch: int) -> AppliedCommit:
    return AppliedCommit("q", batch, batch, 0, 0)


def found_by_another_thread(names: CommitNames, began: Callable[[threading.Thread], object]) -> AppliedCommit | None:
    """What a thread finds that has begun to look while this one does something."""
    found: list[AppliedCommit | None] = []
    thread = threading.Thread(target=lambda: found.append(names.find(("q", False))))
    began(thread)
    thread.join(PATIENCE_S)
    return found[0]


def test_a_name_that_comes_again_is_there_all_the_while(monkeypatch: pytest.MonkeyPatch) -> None:
    names = CommitNames()
    names.add(entry(1))
    drop = CommitNames._drop

    def add(thread: threading.Thread) -> None:
        def dropping(self: CommitNames, key: Any) -> None:
            drop(self, key)
            thread.start()
            thread.join(0.2)  # without the lock it finds nothing now

        monkeypatch.setattr(CommitNames, "_drop", dropping)
        names.add(entry(2))

    assert found_by_another_thread(names, add) is not None


def test_a_name_that_comes_while_another_thread_makes_the_table_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    names = CommitNames(pack_applied({entry(1).key: entry(1)}))
    slow, added = threading.Event(), threading.Event()

    def unpacking(section: bytes) -> Any:
        found = unpack_applied(section)
        if threading.current_thread() is not threading.main_thread():
            slow.set()
            added.wait(0.2)  # without the lock the other one has added to its own table by then
        return found

    def add(thread: threading.Thread) -> None:
        monkeypatch.setattr("stratalog.store.format.commit_names.unpack_applied", unpacking)
        thread.start()
        assert slow.wait(PATIENCE_S)
        names.add(entry(2))
        added.set()

    found_by_another_thread(names, add)
    assert names.table["q", False] == entry(2)


def test_the_answer_has_its_checksum() -> None:
    assert unpack_line(pack_line({"a": 1})) == {"a": 1}
    assert unpack_line(b"") is unpack_line(b"{}\n") is unpack_line(pack_line({"a": 1})[:-1]) is None
