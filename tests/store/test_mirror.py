"""The mirror: readers in other processes take the newest bytes out of memory, and are never given others."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stratalog.portable import POSIX_ALONE
from stratalog.store import MessageStore, StoreReader
from stratalog.store.device.ring import NOWHERE
from stratalog.store.device.shared_memory import SharedMemory
from stratalog.store.format.layout import BLOCK_BYTES
from stratalog.store.format.mirror import END, LOW, MirrorHeader, mirror_name, table_word
from stratalog.store.live.followed_ring import FollowedRing
from stratalog.store.live.mirror import Mirror

from .helpers import run_child, small, tiny, until

QUEUE = ("t", 0)
MEMFD = pytest.mark.skipif(POSIX_ALONE or not hasattr(os, "memfd_create"), reason="the system has no such memory")
pytestmark = MEMFD


def message(offset: int) -> bytes:
    return b"%08d" % offset * 12


def mirror_of(store: MessageStore) -> Mirror:
    publisher: Any = store._running.live
    found: Mirror = publisher._mirror
    return found


def ring_of(reader: StoreReader) -> FollowedRing:
    ring = reader._lanes[0].ring
    assert isinstance(ring, FollowedRing)
    return ring


class Pair:
    """A writer and a reader that has its mirror."""

    def __init__(self, store: MessageStore, reader: StoreReader) -> None:
        self.store, self.reader, self.count = store, reader, 0
        until(self.is_mirrored)

    def append(self, count: int = 1) -> None:
        rows = [(*QUEUE, message(at)) for at in range(self.count, self.count + count)]
        others = [("other", 0, b"-" * 500) for _ in rows]
        self.store.append_batch([row for both in zip(rows, others, strict=True) for row in both])
        self.count += count

    def is_mirrored(self) -> bool:
        self.append()
        assert self.reader.queue_bounds(*QUEUE) == (0, self.count)
        time.sleep(0.006)
        return ring_of(self.reader).low != NOWHERE

    def from_device(self) -> int:
        """Messages that the reader has had from the device."""
        found: int = self.reader.stats()["reads"]["device_messages"]
        return found

    def check(self, first: int = 0) -> None:
        """All ways of reading give the right bytes from `first` on."""
        wanted = [message(at) for at in range(first, self.count)]
        assert [one.data for one in self.reader.read(*QUEUE, first, max_messages=len(wanted))] == wanted
        assert list(self.reader.get_range(*QUEUE, first, len(wanted)).values()) == wanted
        batch = self.reader.read_batch(*QUEUE, first, max_messages=len(wanted))
        assert [bytes(batch.payload(at)) for at in range(len(batch))] == wanted


@contextmanager
def pair(folder: Path, **changes: Any) -> Iterator[Pair]:
    with MessageStore.open(folder, small(**changes)) as store, MessageStore.open(folder, read_only=True) as reader:
        yield Pair(store, reader)


def test_what_is_new_is_read_from_memory(folder: Path) -> None:
    with pair(folder) as both:
        before, first = both.from_device(), both.count
        for count in (1, 3, 100, 2):
            both.append(count)
            both.check(first)
        assert both.from_device() == before
        assert both.reader.stats()["live"]["mirror"]


def test_it_takes_no_memory_and_is_not_filled_while_nobody_reads(folder: Path) -> None:
    with MessageStore.open(folder, small()) as store:
        mirror = mirror_of(store)
        store.append_batch([(*QUEUE, bytes(50_000))] * 10)
        time.sleep(0.06)
        store.append(*QUEUE, b"x")
        assert not mirror.is_read
        number = mirror._memory._owner.fileno()
        assert os.fstat(number).st_blocks * 512 <= BLOCK_BYTES  # the header


def test_it_is_filled_until_the_last_reader_has_gone(folder: Path) -> None:
    with pair(folder) as both:
        mirror = mirror_of(both.store)
        assert mirror.is_read
        both.reader.close()

        def is_left() -> bool:
            both.append()
            return not mirror.is_read

        until(is_left)


def test_reader_that_looks_once_has_nothing_copied(folder: Path) -> None:
    with MessageStore.open(folder, small()) as store:
        store.append(*QUEUE, b"x")
        with MessageStore.open(folder, read_only=True) as reader:
            assert reader.read(*QUEUE, 0)
            assert reader.topics() == ["t"]
            assert not reader.stats()["live"]["mirror"]
            assert not mirror_of(store)._memory.is_wanted()


def test_what_it_has_lost_is_read_from_the_file(folder: Path) -> None:
    with pair(folder) as both:
        ring = ring_of(both.reader)
        while both.count * len(message(0)) < 2 * ring.size_bytes:
            both.append(1000)
        assert ring.low != NOWHERE
        assert both.reader.read(*QUEUE, 0)[0].data == message(0)
        both.check(both.count - 3000)
        assert both.from_device() > 0


def test_reader_that_is_overtaken_while_it_copies_gets_the_right_bytes(folder: Path, monkeypatch: Any) -> None:
    with pair(folder) as both:
        both.append(200)
        end, ring = both.count, ring_of(both.reader)
        real: Callable[..., list[bytes]] = ring.copies
        held_up: list[int] = []

        def copies(base: int, starts: Any, lengths: Any) -> list[bytes]:
            if not held_up:
                held_up.append(base)
                for _ in range(2 * ring.size_bytes // 60_000 + 1):
                    both.store.append(*QUEUE, b"\xff" * 60_000)
            return real(base, starts, lengths)

        monkeypatch.setattr(ring, "copies", copies)
        batch = both.reader.read_batch(*QUEUE, end - 100, max_messages=100)
        assert held_up
        assert bytes(batch.payload(0)) == message(end - 100)
        held_up.clear()
        assert [one.data for one in both.reader.read(*QUEUE, end - 100, max_messages=100)] == [
            message(at) for at in range(end - 100, end)
        ]


def test_nothing_of_it_is_trusted(folder: Path) -> None:
    """Other bytes in it, of messages as of heads of frames: the file has the right ones."""
    with pair(folder) as both:
        both.append(100)
        both.check()
        lane: Any = mirror_of(both.store).lanes[0]
        lane._bytes[:] = b"\xee" * len(lane._bytes)
        both.check()
        both.append(50)
        lane._bytes[:] = b"\xee" * len(lane._bytes)
        both.check()
        words = lane._words
        for sequence in range(1, 4):  # segments begin elsewhere
            words[table_word(sequence) + 1] += 512
        both.append(50)
        both.check()


def test_mirror_of_another_writer_is_not_asked_for_what_this_one_wrote(folder: Path, monkeypatch: Any) -> None:
    """It reaches up to where its own writer had forced the log."""
    with pair(folder) as both:
        ring, lane = ring_of(both.reader), mirror_of(both.store).lanes[0]
        words: Any = lane._words
        low, end = words[LOW], words[END]
        assert ring.low == ring._mirror[1] + low
        monkeypatch.setattr(lane, "bring_up", lambda forced: None)  # as after its writer's death
        both.append(10)
        assert words[END] == end
        both.check()
        assert ring.low == NOWHERE


def test_next_writer_has_a_mirror_of_its_own(folder: Path) -> None:
    with pair(folder) as both:
        first, held = both.count, ring_of(both.reader)
        before = held._mirror[1]
        both.store.close()
        assert held.low >= NOWHERE
        both.check()
        both.store = MessageStore.open(folder, small())
        until(both.is_mirrored)
        assert held._mirror[1] > before
        device = both.from_device()
        both.append(100)
        both.check(both.count - 100)
        assert both.from_device() == device
        both.check(first - 1)
        both.store.close()


def test_several_lanes_and_segments(folder: Path) -> None:
    with (
        MessageStore.open(folder, tiny(lanes=3)) as store,
        MessageStore.open(folder, read_only=True) as reader,
    ):
        for count in itertools.count():
            rows = [("t", queue, b"%d %d" % (queue, count) * 50) for queue in range(6)]
            store.append_batch(rows)
            for queue in range(6):
                (found,) = reader.read("t", queue, count)
                assert found.data == rows[queue][2]
            if count >= 400 and reader.stats()["segments"]["sealed"] and reader.stats()["reads"]["recent_messages"]:
                break  # else the background, which seals and provides the mirror, has not come to it
            if count == 20 or count >= 400:
                time.sleep(0.06)  # so that it has the interpreter


def test_memory_of_another_process_is_found_by_its_name_alone(tmp_path: Path) -> None:
    code = (
        "import sys; from stratalog.store import MessageStore\n"
        "with MessageStore.open(sys.argv[1]) as store:\n"
        "    print(store._store_id.hex(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None and writer.stdin is not None
        store_id = bytes.fromhex(writer.stdout.readline())
        found = SharedMemory.find(writer.pid, mirror_name(store_id, 1))
        assert found is not None
        header = MirrorHeader.unpack(found.map(0, BLOCK_BYTES)[:])
        assert header is not None
        assert (header.store_id, header.lanes, header.size_bytes) == (store_id, 1, found.size_bytes)
        with pytest.raises((TypeError, ValueError)):
            found.map(0, BLOCK_BYTES)[0] = 1  # to read only
        with pytest.raises(OSError):
            os.truncate(f"/proc/{writer.pid}/fd/{_number(writer.pid, store_id)}", 0)  # that would kill both
        assert SharedMemory.find(writer.pid, mirror_name(bytes(16), 1)) is None
        writer.stdin.close()
    assert SharedMemory.find(writer.pid, mirror_name(store_id, 1)) is None
    found.close()


def _number(pid: int, store_id: bytes) -> str:
    folder = Path(f"/proc/{pid}/fd")
    return next(one.name for one in folder.iterdir() if mirror_name(store_id, 1) in os.readlink(one))


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_another_user_reads_the_files(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from stratalog.store.device.shared_memory import SharedMemory\n"
        "from stratalog.store.format.mirror import mirror_name\n"
        "name = mirror_name(bytes.fromhex(sys.argv[2]), 1)\n"
        "assert SharedMemory.find(int(sys.argv[1]), name) is not None\n"
        "os.setuid(65534)\n"
        "assert SharedMemory.find(int(sys.argv[1]), name) is None\n"
    )
    with MessageStore.open(tmp_path, small()) as store:
        done = run_child(code, str(os.getpid()), store._store_id.hex())
        assert done.returncode == 0, done.stderr


def test_header_is_read_back_and_garbage_is_none() -> None:
    header = MirrorHeader(bytes(range(16)), 3, 1 << 20, 77, 5)
    assert MirrorHeader.unpack(header.pack()) == header
    assert MirrorHeader.unpack(bytes(BLOCK_BYTES)) is None
    assert MirrorHeader.unpack(header.pack()[:-1] + b"\0") is None
    assert header.size_bytes == header.words_at(3)
