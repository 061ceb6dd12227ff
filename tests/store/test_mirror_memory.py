"""The memory of the mirror: when there is any, who keeps it, and what the system may refuse."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from stratalog.store import MessageStore
from stratalog.store.device import shared_memory
from stratalog.store.format.layout import BLOCK_BYTES
from stratalog.store.live import mirror as mirror_module

from .helpers import PATIENCE_S, small, until
from .test_mirror import MEMFD, QUEUE, message, mirror_of, pair

pytestmark = MEMFD


def test_memory_is_given_back_when_the_last_reader_has_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "KEPT_S", 0.0)
    with pair(folder) as both:
        memory = mirror_of(both.store)._memory

        def bytes_in_use() -> int:
            return os.fstat(memory._owner.fileno()).st_blocks * 512

        assert bytes_in_use() == memory.size_bytes  # provided at once: a page that is missing later would kill
        both.reader.close()
        until(lambda: bytes_in_use() <= 4 * BLOCK_BYTES)
        both.append(10)
        with MessageStore.open(folder, read_only=True) as both.reader:
            until(both.is_mirrored)
            both.append(100)
            before = both.from_device()
            both.check(both.count - 50)
            assert both.from_device() == before


def test_forked_child_of_a_reader_does_not_keep_it(folder: Path) -> None:
    code = (
        "import os, sys, time; from stratalog.store import MessageStore\n"
        "with MessageStore.open(sys.argv[1], read_only=True) as reader:\n"
        "    while not reader.stats()['live']['mirror']:\n"
        "        reader.queues('t'); time.sleep(0.005)\n"
        "    child = os.fork()\n"
        "    if child:\n"
        "        print(child, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with MessageStore.open(folder, small()) as store:
        memory = mirror_of(store)._memory
        with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True) as reader:
            written = threading.Event()

            def write() -> None:
                while not written.wait(0.005):
                    store.append(*QUEUE, b"x")

            writer = threading.Thread(target=write)
            writer.start()
            assert reader.stdout is not None
            child = int(reader.stdout.readline())
            try:
                written.set()
                writer.join()
                assert memory.is_wanted()
                reader.kill()
                until(lambda: not memory.is_wanted())
            finally:
                os.kill(child, signal.SIGKILL)


def test_where_there_is_no_room_for_it_readers_read_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, tries = os.posix_fallocate, list[int]()

    def refused(number: int, at: int, size: int) -> None:
        if "memfd" in os.readlink(f"/proc/self/fd/{number}"):
            tries.append(size)
            raise OSError(errno.ENOSPC, "no room")
        real(number, at, size)

    monkeypatch.setattr(os, "posix_fallocate", refused)
    monkeypatch.setattr(mirror_module, "KEPT_S", 3600.0)  # until it is tried again
    with MessageStore.open(folder, small()) as store, MessageStore.open(folder, read_only=True) as reader:
        mirror = mirror_of(store)
        for count in range(20):
            store.append(*QUEUE, message(count))
            assert reader.read(*QUEUE, count)[0].data == message(count)
            time.sleep(0.006)
        until(lambda: bool(reader.topics() and reader.stats()["live"]["mirror"]) and mirror._memory.is_wanted())
        until(lambda: len(tries) > 0)
        mirror.provide()
        assert len(tries) == 1  # the next one is some seconds later
        mirror._look_at = 0.0
        mirror.note_readers()
        assert not mirror.is_read


def test_where_locks_are_refused_nobody_is_thought_to_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(number: int, what: int) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    with MessageStore.open(folder, small()) as store:
        monkeypatch.setattr(shared_memory, "_FLOCK", refused)
        assert not mirror_of(store)._memory.is_wanted()


def test_fifty_readers_have_one_mirror_and_see_the_same(folder: Path) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(MessageStore.open(folder, small()))
        store.append(*QUEUE, message(0))
        readers = [stack.enter_context(MessageStore.open(folder, read_only=True)) for _ in range(50)]
        found: list[bytes] = []

        def wait(reader: MessageStore) -> None:
            found.extend(one.data for one in reader.read(*QUEUE, 1, wait_ms=int(PATIENCE_S * 1000)))

        waiting = [threading.Thread(target=wait, args=(reader,)) for reader in readers]
        for thread in waiting:
            thread.start()
        time.sleep(0.05)  # most of them sleep by then; the others find it at once
        store.append(*QUEUE, message(1))
        for thread in waiting:
            thread.join()
        assert found == [message(1)] * len(readers)
