"""What the system refuses is an error of this package: StoreFull where space would help, and StoreUnreadable else."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import (
    MessageStore,
    Shard,
    ShardWriter,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreadable,
    StoreUnusable,
    abort_shards,
    commit_shards,
    inspect_folder,
    look_into_folder,
    noted_shards,
    sweep_shards,
    verify_folder,
)
from stratalog.store.api import beside, commits
from stratalog.store.device import background
from stratalog.store.shards import staging
from stratalog.store.testing import SimulatedDisk
from stratalog.store.testing.faults import Operation

from .helpers import KIB, tiny
from .shards.helpers import content, held, queues_of, rows_of, staged

ROWS = rows_of("x", 40)
REFUSALS = [
    (errno.ENOSPC, StoreFull),
    (errno.EDQUOT, StoreFull),
    (errno.EIO, StoreUnreadable),
    (errno.EMFILE, StoreUnreadable),
]
Refuses = Callable[..., Any]


def refusing(number: int) -> Refuses:
    def refuse(*_: object, **__: object) -> Any:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize(("number", "kind"), REFUSALS)
def test_a_writer_of_shards_says_full_only_where_space_would_help(tmp_path: Path, number: int, kind: type) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    disk = SimulatedDisk()
    MessageStore.open(tmp_path, tiny(), disk=disk).close()
    for is_finishing in (False, True):
        with ShardWriter(tmp_path, disk=disk) as writer:
            if not is_finishing:
                disk.on_operation = refusing(number)
            with pytest.raises(kind, match="write them again"):
                writer.append_columns([("t", 0)], [0], [3], b"abc")
                disk.on_operation = refusing(number)
                writer.finish()
            disk.on_operation = None


@pytest.mark.parametrize(
    ("number", "kind", "is_open"),
    [
        (errno.ENOSPC, StoreFull, False),
        (errno.EDQUOT, StoreFull, True),
        (errno.EIO, StoreUnreadable, True),
        (errno.EMFILE, StoreUnreadable, False),
    ],
)
def test_a_commit_that_is_refused_at_any_step_raises_our_error_and_is_there_once_when_it_is_called_again(
    tmp_path: Path, number: int, kind: type, is_open: bool
) -> None:
    for at in range(1, 60):
        disk, path, steps = SimulatedDisk(), tmp_path / str(at), count()
        store = MessageStore.open(path, tiny(), disk=disk)
        shards = staged(path, ROWS, disk=disk)
        if not is_open:
            store.close()

        def refuse(operation: Operation, at: int = at, steps: Iterator[int] = steps) -> None:
            if "incoming" in str(operation.path) and next(steps) == at:
                refusing(number)()

        with held(store):  # so that this thread's steps alone are refused
            disk.on_operation = refuse
            may_be_there, is_certain = True, False
            try:
                assert commit_shards(path, shards, name="q", wait_ms=0, disk=disk).is_new
                is_certain = True
            except StoreError as error:
                assert type(error) is kind
                may_be_there = "may be durable" in str(error)
            disk.on_operation = None
        is_new = commit_shards(path, shards, name="q", wait_ms=0, disk=disk).is_new
        assert is_new or may_be_there, "the error said that nothing was committed"
        assert not (is_new and is_certain)
        if not is_open:
            store = MessageStore.open(path, tiny(), disk=disk)
        store.attach_pending()
        assert content(store) == queues_of(ROWS)
        store.close()
        if next(steps) <= at:
            assert at > 5
            return
    raise AssertionError("it takes more steps")


@pytest.mark.parametrize(("number", "kind"), REFUSALS)
def test_the_calls_about_shards_raise_our_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type
) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    shards: tuple[Shard, ...] = staged(tmp_path, ROWS)
    (tmp_path / "SHARDS").write_bytes(b"")
    calls: list[Callable[[], object]] = [
        lambda: commit_shards(tmp_path, shards, name="q"), lambda: abort_shards(tmp_path, shards),
        lambda: sweep_shards(tmp_path, older_than_s=-1),
    ]  # fmt: skip
    monkeypatch.setattr(commits, "committing", refusing(number))
    monkeypatch.setattr(staging, "committing", refusing(number))
    for call in calls:
        with pytest.raises(kind):
            call()
    monkeypatch.setattr(Path, "read_bytes", refusing(number))
    with pytest.raises(kind):
        noted_shards(tmp_path)


@pytest.mark.parametrize("call", [verify_folder, inspect_folder])
def test_a_look_beside_a_writer_that_is_refused_raises_our_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Path], object]
) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
        monkeypatch.setattr(beside, "LaneSnapshot", refusing(errno.EMFILE))
        monkeypatch.setattr(beside, "_described", refusing(errno.EMFILE), raising=False)
        monkeypatch.setattr(beside, "_used_bytes", refusing(errno.EMFILE))
        with pytest.raises(StoreUnreadable, match=r"look again|Look again"):
            call(tmp_path)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on no thread can be started."""

    def refuse(*_: object, **__: object) -> Any:
        raise RuntimeError("can't start new thread")

    def begin() -> None:
        monkeypatch.setattr(background, "start_new_thread", refuse)
        monkeypatch.setattr(threading.Thread, "start", refuse)

    return begin


def test_a_store_that_gets_no_thread_is_unusable_and_opens_later(
    tmp_path: Path, no_threads: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_threads()
    with pytest.raises(StoreUnusable, match="no thread"):
        MessageStore.open(tmp_path, tiny())
    monkeypatch.undo()
    MessageStore.open(tmp_path, tiny()).close()


def test_reads_go_on_without_another_thread(tmp_path: Path, no_threads: Callable[[], None]) -> None:
    """What reads ahead is read by the reader itself; a wait looks now and then."""

    async def all_of_it() -> None:
        async with MessageStore.open(tmp_path, big) as store:
            subscription = store.subscribe("t", "s")
            for at in range(6):
                store.append("t", 0, bytes(900 * KIB) + b"%d" % at)
            no_threads()
            assert sum(map(len, store.scan())) == 6
            assert len(subscription.receive(max_messages=3, wait_ms=0)) > 0
            assert store.read("t", 0, 6, wait_ms=20) == []
            reader = MessageStore.open(tmp_path, read_only=True)
            assert reader.read("t", 0, 6, wait_ms=20) == []
            reader.close()
            assert verify_folder(tmp_path).ok
            for opened in (store, MessageStore.open(tmp_path, read_only=True)):
                store.append("u", 0, b"so that it looks")
                try:
                    await opened.read_async("t", 0, 0)
                except StoreUnreadable as error:
                    assert "no thread" in str(error)
        assert store.closed

    big = tiny(segment_bytes=8 << 20, max_message_bytes=1 << 20, max_frame_bytes=1 << 20)
    asyncio.run(all_of_it())
    assert verify_folder(tmp_path).ok


def test_a_store_whose_lock_cannot_be_given_back_closes_and_opens_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, flock = MessageStore.open(tmp_path, tiny()), fcntl.flock

    def refuses(number: int, operation: int) -> None:
        if operation == fcntl.LOCK_UN:
            refusing(errno.ENOLCK)()
        flock(number, operation)

    monkeypatch.setattr(fcntl, "flock", refuses)
    store.close()
    MessageStore.open(tmp_path, tiny()).close()


def test_a_store_that_only_reads_says_why_it_attaches_nothing(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    with look_into_folder(tmp_path) as store, pytest.raises(StoreUnusable, match="only looked at"):
        store.attach_pending()  # type: ignore[attr-defined]
    with MessageStore.open(tmp_path, read_only=True) as reader, pytest.raises(StoreReadOnly, match="read_only=True"):
        reader.attach_pending()  # type: ignore[attr-defined]  # as its caller finds out
