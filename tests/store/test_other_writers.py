"""Readers that outlive writers of other settings: what one writer has told them says nothing of the next one."""

from __future__ import annotations

import mmap
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.portable import POSIX_ALONE
from stratalog.store import MessageStore, StoreCorrupt, StoreReader
from stratalog.store.device.mapped import MappedFile
from stratalog.store.device.ring import NOWHERE
from stratalog.store.format.frame import decode_at
from stratalog.store.format.layout import BLOCK_BYTES, FRAME_HEADER_BYTES, FrameHeader
from stratalog.store.format.live_page import LIVE_FILE, LiveHeader
from stratalog.store.format.mirror import END, LOW, WORDS_BYTES, MirrorHeader, table_word
from stratalog.store.live import mirror as mirror_module
from stratalog.store.live.followed_ring import FollowedRing
from stratalog.store.live.mirror import LaneMirror
from stratalog.store.live.publisher import Publisher

from ..seeds import draw_seed
from .helpers import calls_that_read, small, until

MEMFD = pytest.mark.skipif(POSIX_ALONE or not hasattr(os, "memfd_create"), reason="the system has no such memory")
FRAME_BYTES = (64 << 10, 4 << 10, 52 << 10)  # of one writer after the other: their rings have other sizes
FAR_MS = 1 << 50


def row(at: int) -> tuple[bytes, bytes, dict[str, str], int]:
    return b"data %d " % at * 8, b"key %d" % at, {"n": str(at)}, FAR_MS + at


def append(store: MessageStore, count: int) -> None:
    """Some messages in frames of their own size, each with all that a message may have."""
    first = store.queue_bounds("t", 0)[1]
    tickets = []
    for at in range(first, first + count):
        data, key, properties, due_ms = row(at)
        tickets.append(store.submit("t", 0, data, key=key, properties=properties, deliver_at_ms=due_ms))
    for ticket in tickets:
        ticket.result()


def check(reader: StoreReader, first: int) -> int:
    """Every way of reading gives all of each message; where the queue ends."""
    end = reader.queue_bounds("t", 0)[1]
    wanted, count = [row(at) for at in range(first, end)], end - first
    found = reader.read("t", 0, first, max_messages=count)
    assert [(one.data, one.key, one.properties, one.deliver_at_ms) for one in found] == wanted
    assert [*reader.get_range("t", 0, first, count).values()] == [data for data, *_ in wanted]
    batch = reader.read_batch("t", 0, first, max_messages=count)
    rows = [batch.message(at) for at in range(len(batch))]
    assert [(one.data, one.key, one.properties, one.deliver_at_ms) for one in rows] == wanted
    return end


@MEMFD
def test_reader_gets_each_message_with_its_own_key_under_writers_with_other_rings(folder: Path) -> None:
    MessageStore.open(folder, small()).close()
    with MessageStore.open(folder, read_only=True) as reader:
        ring: Any = reader._lanes[0].ring
        sizes, end = [], 0
        for size in FRAME_BYTES:
            with MessageStore.open(folder, small(max_frame_bytes=size, max_message_bytes=size)) as store:
                until(lambda store=store: _is_mirrored(store, reader))  # type: ignore[misc]
                sizes.append(ring.size_bytes)
                for _ in range(5):
                    append(store, 40)
                    before = reader.stats()["reads"]["device_messages"]
                    end = check(reader, reader.queue_bounds("t", 0)[1] - 40)
                    assert reader.stats()["reads"]["device_messages"] == before
            check(reader, end - 100)
        assert len(set(sizes)) == len(FRAME_BYTES)
        assert any(big % less for big in sizes for less in sizes)  # a multiple of one size is none of another's
        check(reader, 0)


def _is_mirrored(store: MessageStore, reader: StoreReader) -> bool:
    append(store, 1)
    reader.queue_bounds("t", 0)
    ring: Any = reader._lanes[0].ring
    return bool(ring.low != NOWHERE)


def filled(size: int, log: bytes, base: int) -> tuple[mmap.mmap, mmap.mmap]:
    """The memory of a mirror of that size, as its writer fills it with a log that begins at `base`."""
    words, memory = mmap.mmap(-1, WORDS_BYTES), mmap.mmap(-1, size)
    numbers = memoryview(words).cast("Q")
    end = base + len(log)
    for at in range(max(base, end - size), end):
        memory[at % size] = log[at - base]
    numbers[LOW], numbers[END] = max(base, end - size), end
    numbers[table_word(1) + 1] = base
    numbers[table_word(1)] = 1
    return words, memory


def test_places_of_each_mirror_are_those_of_its_writer() -> None:
    chance = random.Random(draw_seed())
    ring = FollowedRing()
    before: list[int] = []
    for _ in range(30):
        size = BLOCK_BYTES * chance.randint(1, 7)
        log, base = chance.randbytes(chance.randint(1, 3 * size)), chance.randrange(5 * size)
        ring.take(*filled(size, log, base))
        assert ring.low == NOWHERE  # until it is known what may be shown
        found = ring.base_of(1)
        assert found is not None
        ring.show(found + len(log))
        assert all(at < ring.low for at in before)
        low = ring.low - found
        assert low == max(0, len(log) - size)
        for _ in range(10):
            at = chance.randrange(low, len(log))
            length = chance.randint(1, len(log) - at)
            assert ring.copy(found + at, length) == log[at : at + length]
            assert b"".join(ring.parts(found + at, found + at + length)) == log[at : at + length]
            assert ring.copies(found, [at], [length]) == [log[at : at + length]]
        before = [found, found + len(log) - 1]
    ring.close()
    assert ring.low == NOWHERE and ring.base_of(1) is None


class ChangedMidway(FollowedRing):
    """Another mirror comes while a call is in its first step."""

    next: tuple[mmap.mmap, mmap.mmap] | None = None

    @property
    def shape(self) -> tuple[int, int, mmap.mmap]:
        """As it was before."""
        before, coming = self._shape, self.next
        if coming is not None:
            self.next = None
            self.take(*coming)
        return before

    @shape.setter
    def shape(self, shape: tuple[int, int, mmap.mmap]) -> None:
        self._shape = shape


@pytest.mark.parametrize("way", ["copy", "copies", "copies across the end"])
def test_read_beside_a_change_of_mirrors_takes_one_of_them(way: str) -> None:
    """The place, and the bytes, of the one that it began with: so it has what it wanted, or finds it overtaken."""
    ring, log = ChangedMidway(), bytes(range(256)) * 80
    ring.take(*filled(3 * BLOCK_BYTES, log, 77))
    base = ring.base_of(1)
    assert base is not None
    ring.show(base + len(log))
    at = 2 * 3 * BLOCK_BYTES - 77 - 50 if way == "copies across the end" else 10_000
    ring.next = filled(BLOCK_BYTES, b"\xff" * BLOCK_BYTES, 0)
    found = ring.copy(base + at, 100) if way == "copy" else ring.copies(base, [at], [100])[0]
    assert ring.next is None
    assert ring.low == NOWHERE
    assert found == log[at : at + 100] or way == "copies across the end"


def test_read_beside_changes_of_mirrors_is_right_or_known_to_be_overtaken() -> None:
    ring, sizes = FollowedRing(), (BLOCK_BYTES, 5 * BLOCK_BYTES, 3 * BLOCK_BYTES)
    log = bytes(range(256)) * (BLOCK_BYTES // 256)
    mirrors = [filled(size, bytes([at]) + log[1:], 0) for at, size in enumerate(sizes)]
    base: list[tuple[int, int]] = []
    over = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        try:
            while not over.is_set():
                which, begin = base[-1]
                if begin >= ring.low:
                    origin, size, memory = ring.shape
                    found = memoryview(memory)[(begin - origin) % size :][: len(log)]
                    copied, one = ring.copy(begin, len(log)), bytes(found)
                    if begin >= ring.low and not copied == one == bytes([which]) + log[1:]:
                        wrong.append((which, len(copied), len(one)))
        except BaseException as error:
            wrong.append(error)

    interval = sys.getswitchinterval()
    base.append((0, -1))
    readers = [threading.Thread(target=read) for _ in range(2)]
    try:
        sys.setswitchinterval(1e-6)
        for reader in readers:
            reader.start()
        for turn in range(300):
            which = turn % len(mirrors)
            ring.take(*mirrors[which])
            begin = ring.base_of(1)
            assert begin is not None
            ring.show(begin + len(log))
            base.append((which, begin))
    finally:
        over.set()
        sys.setswitchinterval(interval)
        for reader in readers:
            reader.join()
    assert not wrong


@MEMFD
def test_mirror_of_a_writer_that_was_killed_is_let_go_of_with_the_first_state_of_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its positions may have been given to other bytes since, as after a repair."""
    store = MessageStore.open(folder, small())
    with MessageStore.open(folder, read_only=True) as reader:
        until(lambda: _is_mirrored(store, reader))
        ring: Any = reader._lanes[0].ring
        monkeypatch.setattr(LaneMirror, "close", lambda self: None)  # as after a kill: it says what it has said
        store.close()
        assert reader.stats()["live"]["mirror"] and ring.base_of(1) is not None
        monkeypatch.setattr(mirror_module.Mirror, "of", classmethod(lambda *given: None))
        reader._fetcher.follower._look_at = float("inf")  # type: ignore[attr-defined]  # it does not look for another mirror yet
        with MessageStore.open(folder, small()):
            reader.queue_bounds("t", 0)
            assert not reader.stats()["live"]["mirror"]
            assert ring.low == NOWHERE and ring.base_of(1) is None
            check(reader, 0)


def test_page_names_the_next_writer_before_it_has_a_state_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MessageStore.open(folder, small()).close()
    first = LiveHeader.unpack((folder / LIVE_FILE).read_bytes())
    assert first is not None
    seen: list[LiveHeader | None] = []
    publish: Callable[..., None] = Publisher._publish

    def publishing(self: Publisher, told: Any) -> None:
        if not seen:
            seen.append(LiveHeader.unpack((folder / LIVE_FILE).read_bytes()))
        publish(self, told)

    monkeypatch.setattr(Publisher, "_publish", publishing)
    with MessageStore.open(folder, small()):
        last = LiveHeader.unpack((folder / LIVE_FILE).read_bytes())
    assert seen == [last] and last == first._replace(openings=first.openings + 1)


def test_page_of_another_boot_is_believed_only_when_its_states_are_new(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MessageStore.open(folder, small()).close()
    page = folder / LIVE_FILE
    old = LiveHeader.unpack(page.read_bytes())
    assert old is not None
    old = old._replace(boot_id=bytes(range(16)))
    page.write_bytes(old.pack() + page.read_bytes()[len(old.pack()) :])
    stored: list[LiveHeader] = []
    store = MappedFile.store

    def storing(self: MappedFile, at: int, data: bytes) -> None:
        if not at:
            header = LiveHeader.unpack(data)
            assert header is not None
            stored.append(header)
        store(self, at, data)

    monkeypatch.setattr(MappedFile, "store", storing)
    MessageStore.open(folder, small()).close()
    assert [header.openings - old.openings for header in stored] == [1, 1]
    assert stored[0].boot_id == old.boot_id != stored[1].boot_id


@MEMFD
def test_memory_that_names_another_page_is_no_mirror(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Openings are counted by the page: a new page counts from 1 again, and a process may write a store twice."""
    pack = MirrorHeader.pack
    monkeypatch.setattr(MirrorHeader, "pack", lambda self: pack(self._replace(inode=1)))
    with (
        MessageStore.open(folder, small()) as store,
        MessageStore.open(folder, read_only=True) as reader,
    ):
        for _ in range(10):
            append(store, 1)
            reader.queue_bounds("t", 0)
            reader._fetcher.follower._look_at = float("-inf")  # type: ignore[attr-defined]
        assert not reader.stats()["live"]["mirror"]
        check(reader, 0)


# -- the frame of a message is its own -----------------------------------------------------------------


def forged(head: bytes, **changes: Any) -> bytes:
    """The head of a frame that is whole, with some other fields."""
    frame = decode_at(head, 0)
    assert frame is not None
    header: FrameHeader = frame.header._replace(**changes)
    return header.seal(frame.head.columns)[0]


FORGERIES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "of another place": lambda own, other: forged(own, position=decode_at(other, 0).header.position),  # type: ignore[union-attr]
    "of another segment": lambda own, _: forged(own, sequence=7),
    "of another lane": lambda own, _: forged(own, lane=3),
    "of other numbers": lambda own, _: forged(own, first_entry=1000),
    "of another time": lambda own, _: forged(own, time_ms=1),
    "of other messages": lambda own, other: forged(
        other,
        **{name: getattr(decode_at(own, 0).header, name) for name in ("position", "first_entry", "time_ms")},  # type: ignore[union-attr]
    ),
}


@pytest.mark.parametrize("kind", FORGERIES)
@pytest.mark.parametrize("way", ["read", "read_batch"])
@pytest.mark.parametrize("is_own", [True, False], ids=["our ring", "another's ring"])
def test_frame_is_taken_for_a_message_only_if_it_is_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, way: str, is_own: bool
) -> None:
    """A whole frame that stands at a wrong place has the keys of other messages."""
    with MessageStore.open(folder, small()) as store:
        store.append("t", 0, b"first")  # defines the stream
        for _ in range(2):
            store.append("t", 0, b"data", key=b"key %d" % store.queue_bounds("t", 0)[1])
        store.append("t", 0, b"another", key=b"another")
        segment, table = store._lanes[0].view.open[-1]
        ring = store._lanes[0].ring
        begins = dict(zip(table.frame_entry, table.frame_position, strict=True))  # a mark has its successor's number
        heads = [segment.fetch(ring, begins[entry], table.flat[3 * entry] - begins[entry])[0] for entry in range(4)]
        wrong, position = FORGERIES[kind](heads[1], heads[3]), begins[1]
        assert len(wrong) >= FRAME_HEADER_BYTES and segment.base is not None
        real, at = type(ring).copy, segment.base + position
        monkeypatch.setattr(type(ring), "is_own", is_own)
        monkeypatch.setattr(
            type(ring), "copy", lambda self, place, size: wrong if place == at else real(self, place, size)
        )
        if not is_own:  # the file has the right one
            assert store.read("t", 0, 1, max_messages=1)[0].key == b"key 1"
            return
        with pytest.raises(StoreCorrupt, match="header is damaged") as raised:
            calls_that_read(store)[way]("t", 0, 1, max_messages=1)
        assert raised.value.position == position
        assert store.read("t", 0, 2, max_messages=1)[0].key == b"key 2"
