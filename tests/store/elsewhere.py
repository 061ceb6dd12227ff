"""A process that finds what a Mac has: `python -m tests.store.elsewhere FOLDER [ROUNDS]` works on a store.

Without a number of rounds it does so until it is killed.

`hide` takes away what only Linux has before the package is loaded: names of modules, functions of the C library, and
the files of /proc, /sys and /dev/shm. A use of one of these is then the error that it is on a Mac. F_FULLFSYNC is there
instead. What a Mac does otherwise (its kernel, its file system, its memory order) no test on Linux can show.
"""

from __future__ import annotations

import builtins
import ctypes
import fcntl
import io
import mmap
import os
import platform
import re
import select
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyroaring  # noqa: F401  # these three look at the system when they are loaded
import xxhash  # noqa: F401

if TYPE_CHECKING:
    from stratalog import MessageStore

HIDDEN = {
    os: r"O_(DIRECT|TMPFILE|NOATIME|PATH|LARGEFILE|RSYNC)$|RWF_|SCHED_|sched_|EFD_|eventfd|MFD_|memfd|GRND_|getrandom|"
    r"SPLICE_|splice|copy_file_range|posix_fa|POSIX_FADV|fdatasync|p(read|write)v$|pidfd|P_PIDFD|pipe2|XATTR|.*xattr",
    fcntl: r"F_(SET|GET)(LEASE|SIG|PIPE_SZ)|F_(ADD|GET)_SEALS|F_SEAL|F_NOTIFY|F_OFD|DN_|LOCK_(MAND|READ|RW|WRITE)$",
    mmap: r"MADV_(HUGEPAGE|NOHUGEPAGE|REMOVE|DONTFORK|DOFORK|DODUMP|DONTDUMP|HWPOISON|.*MERGEABLE|POPULATE.*)|"
    r"MAP_(POPULATE|DENYWRITE|EXECUTABLE|STACK|HUGETLB|LOCKED)",
    select: r"epoll|EPOLL",
}
NOT_IN_LIBC = {"sync_file_range", "renameat2", "statx", "memfd_create", "malloc_trim", "eventfd", "io_submit"}
NOT_TO_BE_CALLED = {"syscall", "madvise", "mincore", "mmap"}  # they are there, and mean other things
FOLDERS = ("/proc", "/sys", "/dev/shm")
PROBES = {"/proc/meminfo", "/proc/self/cgroup"}  # whether they are there is asked, and half of the memory is taken else
F_FULLFSYNC = 51
TOPIC, SUBSCRIPTION = "jobs", "workers"
LATER_MS = 3_600_000
PATIENCE_MS = 60_000

looked_at: set[str] = set()
full_syncs: list[int] = []
called: list[tuple[object, ...]] = []


def hide() -> None:
    """Be on a Mac, as far as names go. Nothing of the package may be loaded yet."""
    assert not [name for name in sys.modules if name.startswith("stratalog")]
    setattr(select, "kqueue", _Kqueue(select.epoll.fromfd))  # noqa: B010
    for module, pattern in HIDDEN.items():
        for name in [name for name in dir(module) if re.match(pattern, name)]:
            delattr(module, name)
    setattr(sys, "platform", "darwin")  # noqa: B010  # mypy knows one platform
    platform.machine = lambda: "arm64"
    _hide_in_libc()
    _hide_files()
    _have_full_sync()


class _Kqueue:
    """macOS's, as far as the store uses it: it takes over a descriptor as an epoll does."""

    def __init__(self, fromfd: Callable[[int], Any]) -> None:
        self.fromfd = fromfd

    def __call__(self) -> None:
        raise OSError("nothing is polled here")


def _hide_in_libc() -> None:
    def hiding(library: type[ctypes.CDLL]) -> type[ctypes.CDLL]:
        class Library(library):  # type: ignore[misc, valid-type]
            def __getattr__(self, name: str) -> Any:
                if name in NOT_IN_LIBC:
                    raise AttributeError(name)
                return _never if name in NOT_TO_BE_CALLED else super().__getattr__(name)

            def __getitem__(self, name: str) -> Any:
                return _never if name in NOT_TO_BE_CALLED else super().__getitem__(name)

        return Library

    setattr(ctypes, "CDLL", hiding(ctypes.CDLL))  # noqa: B010
    setattr(ctypes, "PyDLL", hiding(ctypes.PyDLL))  # noqa: B010


class _Never:
    """A function of the C library that must not be called."""

    def __call__(self, *given: object) -> int:
        called.append(given)  # a thread that helps may end by an error that nobody sees
        raise AssertionError("a call of Linux's is made")


_never = _Never()


def _hide_files() -> None:
    def hiding(call: Callable[..., Any]) -> Callable[..., Any]:
        def hidden(path: Any = ".", *rest: Any, **how: Any) -> Any:
            if not isinstance(path, int) and os.fsdecode(path).startswith(FOLDERS):
                looked_at.add(os.fsdecode(path))
                raise FileNotFoundError(2, os.strerror(2), path)
            return call(path, *rest, **how)

        return hidden

    for name in ("stat", "lstat", "open", "listdir", "scandir", "readlink", "access"):
        setattr(os, name, hiding(getattr(os, name)))
    builtins.open = io.open = hiding(io.open)


def _have_full_sync() -> None:
    real, sync = fcntl.fcntl, os.fsync

    def call(descriptor: int, command: int, *rest: Any) -> Any:
        if command == F_FULLFSYNC:
            full_syncs.append(descriptor)
            return sync(descriptor)
        return real(descriptor, command, *rest)

    def weaker(_: int) -> None:
        raise AssertionError("a force is less than F_FULLFSYNC")

    setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC)  # noqa: B010
    setattr(fcntl, "fcntl", call)  # noqa: B010
    setattr(os, "fsync", weaker)  # noqa: B010


# -- the work -----------------------------------------------------------------------------------------


def opened(folder: Path) -> MessageStore:
    """The store of the test, with every kind of tier."""
    from stratalog import CacheConfig, MessageStore, StoreConfig  # noqa: PLC0415  # after `hide`

    size, beside = 1 << 20, folder.parent
    cache = CacheConfig(size, size, size, size, private_file_folder=beside, persistent_folder=beside)
    return MessageStore.open(folder, StoreConfig(lanes=2, segment_bytes=1 << 20, cache=cache))


def appended(store: MessageStore, first: int) -> int:
    """Append ten messages in each way that there is, the first one with this number; the next number."""
    after = first + 10
    datas = [b"%d" % number for number in range(first, after)]
    store.append(TOPIC, 0, datas[0])
    store.append(TOPIC, 0, datas[1], deliver_at_ms=1)
    store.append(TOPIC, 1, datas[2], deliver_at_ms=time.time_ns() // 1_000_000 + LATER_MS)
    assert store.submit(TOPIC, 1, datas[3]).result() >= 0
    store.append_batch([(TOPIC, 2, data) for data in datas[4:6]])
    payload = b"".join(datas[6:8])
    store.append_columns([(TOPIC, 3)], [0, 0], np.array([len(data) for data in datas[6:8]]), payload)
    with store.transaction() as tx:
        for data in datas[8:]:
            tx.append(TOPIC, 0, data)
    return after


def numbers(store: MessageStore) -> list[int]:
    """The numbers of all messages, sorted."""
    found = [int(data) for queue in store.queues(TOPIC) for data in _datas(store, queue)]
    return sorted(found)


def _datas(store: MessageStore, queue: int) -> Iterator[bytes]:
    begin, end = store.queue_bounds(TOPIC, queue)
    while begin < end:
        found = store.read(TOPIC, queue, begin, max_messages=500)
        yield from (message.data for message in found)
        begin = found[-1].offset + 1


def check(folder: Path) -> int:
    """Look at all that an earlier process has left, and try what `main` does not; how many messages there are."""
    from stratalog import MessageStore  # noqa: PLC0415
    from stratalog.bulk import ShardWriter, commit_shards  # noqa: PLC0415
    from stratalog.index.trackers.files import FolderFiles  # noqa: PLC0415
    from stratalog.tools import verify_folder  # noqa: PLC0415

    with opened(folder) as store, MessageStore.open(folder, read_only=True) as reader:
        have = numbers(store)
        assert have == list(range(len(have)))
        assert not store.stats()["log"]["direct_io"]
        sub = store.subscribe(TOPIC, SUBSCRIPTION)
        told = reader.stats()["live"]
        assert (told["page"], told["current"], told["mirror"]) == (True, True, False)
        store.append("told", 0, b"now")
        while not reader.read("told", 0, 0, wait_ms=1000):
            pass
        given = [one.message for one in sub.receive(max_messages=1 << 10, wait_ms=0)]
        assert all((message.deliver_at_ms or 0) < time.time_ns() // 1_000_000 for message in given)
        due = store.append("due", 0, b"now", deliver_at_ms=1)
        with store.subscribe("due", SUBSCRIPTION) as waiting:
            (delivery,) = waiting.receive(wait_ms=PATIENCE_MS)
            assert delivery.message.offset == due
            waiting.ack(delivery)
        with ShardWriter(folder) as writer:
            writer.append_columns([("bulk", 0)], [0], [4], b"many")
            commit_shards(folder, writer.finish(), name=f"load {len(have)}")
        assert [one.data for one in store.read("bulk", 0, 0, max_messages=100)] == [b"many"] * store.queue_bounds(
            "bulk", 0
        )[1]
    assert verify_folder(folder).ok
    files = FolderFiles(folder.parent / f"tracker {len(have)}")
    files.append("bucket", b"entries")
    files.flush("bucket")
    files.force("bucket")
    files.force_folder()
    return len(have)


def main(folder: Path, rounds: int | None) -> None:
    """Say what is there, and then go on for so many rounds, or until somebody kills this process."""
    print("there", check(folder), flush=True)
    with opened(folder) as store:
        sub = store.subscribe(TOPIC, SUBSCRIPTION)
        number = len(numbers(store))
        for _ in count() if rounds is None else range(rounds):
            number = appended(store, number)
            sub.ack_batch(sub.receive(max_messages=3, wait_ms=0))
            assert looked_at <= PROBES, looked_at
            assert full_syncs and not called
            print("acknowledged", number, flush=True)


if __name__ == "__main__":
    hide()
    main(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else None)
