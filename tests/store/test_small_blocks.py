"""Blocks of 512 bytes, where the device writes so: what they cost, and what they must not cost."""

from __future__ import annotations

import random
import struct
import threading
from _thread import get_ident
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreCorrupt, StoreReader, inspect_folder, verify_folder
from stratalog.store.format.layout import BLOCK_BYTES, DATA_START, FINE_BLOCK_BYTES, SegmentHeader, segment_name
from stratalog.store.log.at_once import AtOnce
from stratalog.store.segment.zeros import Zeros
from stratalog.store.testing import Kind, Operation, SimulatedDisk
from tests.seeds import draw_seed

from . import golden
from .disks import GatedDisk
from .helpers import put_snapshot, segment_path, take_snapshot, tiny

pytestmark = pytest.mark.disk

BLOCKS = (FINE_BLOCK_BYTES, BLOCK_BYTES)
JOBS = 40
JOB = b"thirty bytes of work to do ..."
AN_ACK_EACH = 3  # writes of a job: the message, its attempt, its acknowledgement


def jobs(path: Path, disk: SimulatedDisk, **settings: Any) -> dict[str, Any]:
    """40 jobs of 30 B, one at a time: the log's figures."""
    with MessageStore.open(path, tiny(segment_bytes=1 << 20, **settings), disk=disk) as store:
        worker = store.subscribe("jobs", "worker", max_attempts=3, dead_letter_topic="failed")
        before = store.stats()["log"]["written_bytes"]
        for _ in range(JOBS):
            store.append("jobs", 0, JOB)
            (delivery,) = worker.receive(max_messages=1)
            worker.ack(delivery)
        found: dict[str, Any] = {**store.stats()["log"]}
        found["written_bytes"] -= before
    assert len(JOB) == 30
    return found


@pytest.mark.parametrize(
    ("block_bytes", "durability", "most_bytes"),
    [(512, "force", 5 * 1024), (4096, "force", AN_ACK_EACH * 4096), (512, "os", 5 * 1024), (4096, "os", 5 * 1024)],
)
def test_a_job_of_thirty_bytes_costs_a_small_block_a_step(
    tmp_path: Path, block_bytes: int, durability: str, most_bytes: int
) -> None:
    figures = jobs(tmp_path, SimulatedDisk(block_bytes=block_bytes), durability=durability)
    assert figures["written_bytes"] <= JOBS * most_bytes
    assert figures["block_bytes"] == (512 if durability == "os" else block_bytes)


def test_blocks_are_of_four_kib_without_direct_writes_whatever_the_device_says(tmp_path: Path) -> None:
    figures = jobs(tmp_path, SimulatedDisk(block_bytes=512), direct_io=False)
    assert figures["block_bytes"] == 4096
    assert figures["written_bytes"] == JOBS * AN_ACK_EACH * 4096


STEPPING: set[int] = set()  # the threads that write zeros ahead of a log


@pytest.fixture(autouse=True)
def stepping(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Zeros.step

    def step(zeros: Zeros) -> int:
        STEPPING.add(get_ident())
        try:
            return real(zeros)
        finally:
            STEPPING.discard(get_ident())

    monkeypatch.setattr(Zeros, "step", step)


class Rule:
    """Sees each operation of a disk: no block of the device may be written again once it was forced with frames, and
    zeros are written to no block that has any.
    """

    def __init__(self, disk: SimulatedDisk, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self.writes = 0
        self.zeroed: list[int] = []  # where zeros went over frames
        self._written: dict[Path, int] = {}
        self._forced: dict[Path, int] = {}
        self._disk = disk
        self.begin()

    def begin(self) -> None:
        """See them from now on."""
        self._disk.on_operation = self.see

    def see(self, operation: Operation) -> None:
        """Raises AssertionError."""
        path, begin = operation.path, operation.position
        if path.suffix != ".seg" or path.name.startswith("retired"):
            return
        if get_ident() in STEPPING:
            if operation.kind == "write" and begin < self._written.get(path, 0):
                self.zeroed.append(begin)  # an error would come out in the background
        elif operation.kind == "write" and (begin >= DATA_START or operation.size > DATA_START):
            self.writes += 1
            forced = -(-self._forced.get(path, 0) // self.block_bytes) * self.block_bytes
            assert begin >= forced, f"{path.name}: a write at {begin} of blocks that were forced up to {forced}"
            self._written[path] = max(self._written.get(path, 0), begin + operation.size)
        elif operation.kind == "force" and operation.size:
            self._forced[path] = self._written.get(path, 0)


@pytest.mark.parametrize("durability", ["force", "os"])
@pytest.mark.parametrize("alignment", ["pad", "trim", "adaptive"])
@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_no_block_of_the_device_is_written_again_once_it_was_forced(
    tmp_path: Path, block_bytes: int, alignment: str, durability: str
) -> None:
    chance, disk = random.Random(seed := draw_seed()), SimulatedDisk(block_bytes=block_bytes)
    # Through the page cache, a page is the block.
    rule = Rule(disk, block_bytes if durability == "force" else BLOCK_BYTES)
    config = tiny(alignment=alignment, durability=durability)
    sent = []
    for _ in range(3):
        with MessageStore.open(tmp_path, config, disk=disk) as store:
            for _ in range(60):
                sent += [chance.randbytes(chance.choice((0, 1, 30, 400, 700, 4000, 9000)))]
                if chance.random() < 0.7:
                    store.append("t", 0, sent[-1])
                else:
                    store.submit("t", 0, sent[-1])
                if chance.random() < 0.2:
                    store.flush()
    assert rule.writes > 100, seed
    assert not rule.zeroed, seed
    disk.on_operation = None
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        assert [message.data for message in store.read("t", 0, 0, max_messages=1000, max_bytes=1 << 30)] == sent


def all_data(store: StoreReader, queue: int = 0) -> list[bytes]:
    return [message.data for message in store.read("t", queue, 0, max_messages=10_000, max_bytes=1 << 30)]


def header_of(disk: SimulatedDisk, path: Path) -> SegmentHeader:
    file = disk.open(path)
    found = SegmentHeader.unpack(file.read(0, BLOCK_BYTES))
    file.close()
    assert found is not None
    return found


def test_a_store_goes_on_from_device_to_device(tmp_path: Path) -> None:
    """Each segment has the blocks that its header says. A resumed one goes on in blocks that both devices take."""
    disk, sent = SimulatedDisk(), []
    rule = Rule(disk, 4096)
    for life, unit in enumerate((4096, 512, 4096, 512, 512, 4096)):
        disk.unit_bytes = rule.block_bytes = unit
        rule.begin()
        with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
            for number in range(60):
                sent.append(b"%d, %d" % (life, number) * (number % 90))
                store.append("t", 0, sent[-1])
            assert all_data(store) == sent
        disk.on_operation = None
        with StoreReader.open(tmp_path, disk=disk) as reader:
            assert all_data(reader) == sent
    paths = [path for path in map(tmp_path.joinpath, disk.list(tmp_path / "lane-00")) if path.suffix == ".seg"]
    fine = {header_of(disk, tmp_path / "lane-00" / path.name).fine for path in paths[:-1]}
    assert fine == {0, 1}
    assert rule.writes > 300


def lone(path: Path, count: int, block_bytes: int = 512, **settings: Any) -> list[bytes]:
    """A store of one segment, left by a kill, with a frame for each message in such blocks."""
    sent = [b"message %d " % number * (1 + number % 70) for number in range(count)]
    with MessageStore.open(path.with_name("open"), tiny(block_bytes=block_bytes, **settings)) as store:
        if store.stats()["log"]["direct_io"] is False and settings.get("durability") != "os":
            pytest.skip("no O_DIRECT here")
        for data in sent:
            store.append("t", 0, data)
        put_snapshot(take_snapshot(path.with_name("open")), path)
    return sent


def frames_of(path: Path) -> list[int]:
    """Where the frames of the first segment begin."""
    content = segment_path(path, 1).read_bytes()
    return [at for at in range(DATA_START, len(content), 512) if content[at : at + 4] == b"\xf5SLf"]


@pytest.mark.parametrize("durability", ["force", "os"])
def test_a_log_cut_at_any_byte_keeps_the_messages_before(tmp_path: Path, durability: str) -> None:
    """The last frame is torn at each 128 bytes: with zeros, with what stood there before, and in each of its blocks."""
    chance = random.Random(draw_seed())
    sent = lone(tmp_path / "s", 60, durability=durability)
    whole = take_snapshot(tmp_path / "s")
    name = next(name for name in whole if name.endswith("0001.seg"))
    begin = frames_of(tmp_path / "s")[-1]
    end = begin + 1536  # the frame has 750 bytes and more
    for at in [*range(begin, end, 128), begin + 1, begin + 87, begin + 88]:
        for rest in (bytes(end - at), chance.randbytes(end - at)):
            put_snapshot({**whole, name: whole[name][:at] + rest + whole[name][end:]}, tmp_path / "torn")
            with MessageStore.open(tmp_path / "torn", tiny(block_bytes=512)) as store:
                found = all_data(store)
            assert found in (sent, sent[:-1])
            assert found == sent or at < begin + 1000


@pytest.mark.parametrize("durability", ["force", "os"])
def test_a_lone_message_that_is_lost_before_others_is_damage(tmp_path: Path, durability: str) -> None:
    """Zeros in the blocks of one message are not taken for padding, although they end before a block of 4 KiB does."""
    sent = lone(tmp_path / "s", 25, durability=durability)
    if durability == "os":
        MessageStore.open(tmp_path / "s", tiny(durability="os")).close()
    whole = take_snapshot(tmp_path / "s")
    name = next(name for name in whole if name.endswith("0001.seg"))
    begins = frames_of(tmp_path / "s")
    assert len(begins) >= len(sent)
    for index in (3, 8, 17):
        begin, end = begins[index], begins[index + 1]
        put_snapshot({**whole, name: whole[name][:begin] + bytes(end - begin) + whole[name][end:]}, tmp_path / "harmed")
        assert not verify_folder(tmp_path / "harmed").ok
        if durability == "force":  # else the segment is sealed, and only a look at its frames tells
            with pytest.raises(StoreCorrupt) as told:
                MessageStore.open(tmp_path / "harmed", tiny())
            assert begins[index - 1] < told.value.position <= begin
        with MessageStore.open(tmp_path / "harmed", tiny(), repair=True) as store:
            assert [loss.messages for loss in store.losses] == [1]
            left = {offset: data for offset, data in enumerate(sent) if offset != index}
            assert store.get_range("t", 0, 0, 100) == left
        assert verify_folder(tmp_path / "harmed").ok


def test_a_reader_beside_a_writer_tells_of_a_lone_message_that_is_lost_at_the_end(tmp_path: Path) -> None:
    """The live page says how far the log is durable: what is missing before that is damage, also in its last 4 KiB."""
    with MessageStore.open(tmp_path, tiny(block_bytes=512)) as store:
        if not store.stats()["log"]["direct_io"]:
            pytest.skip("no O_DIRECT here")
        for number in range(12):
            store.append("t", 0, b"%d" % number)
        *_, begin, _ = begins = frames_of(tmp_path)
        assert begin // BLOCK_BYTES == begins[-1] // BLOCK_BYTES
        with segment_path(tmp_path, 1).open("r+b") as file:
            file.seek(begin)
            file.write(bytes(1024))
        with pytest.raises(StoreCorrupt) as told:
            StoreReader.open(tmp_path).close()
        assert begins[-3] < told.value.position <= begin


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_a_repair_makes_a_lost_header_again_with_the_blocks_that_the_frames_show(
    tmp_path: Path, block_bytes: int
) -> None:
    sent = lone(tmp_path / "s", 30, block_bytes)
    path = segment_path(tmp_path / "s", 1)
    content = path.read_bytes()
    before = SegmentHeader.unpack(content[:BLOCK_BYTES])
    assert before is not None and before.block_bytes == block_bytes
    path.write_bytes(b"\xff" * BLOCK_BYTES + content[BLOCK_BYTES:])
    with MessageStore.open(tmp_path / "s", tiny(), repair=True) as store:
        assert all_data(store) == sent
    after = SegmentHeader.unpack(path.read_bytes()[:BLOCK_BYTES])
    assert after is not None and after.fine == before.fine
    assert verify_folder(tmp_path / "s").ok
    assert inspect_folder(tmp_path / "s")


def test_a_version_that_knows_no_fine_blocks_takes_the_segment_for_another_lanes() -> None:
    """It reads the lane as one number of 32 bits: then it reports damage, and never a log that ends at the padding."""
    header = golden.SEGMENT._replace(fine=1)
    lane = struct.unpack_from("<8sII", header.pack())[2]
    assert lane == golden.SEGMENT.lane + (1 << 16)
    assert SegmentHeader.unpack(header.pack()) == header
    assert struct.unpack_from("<8sII", golden.SEGMENT.pack())[2] == golden.SEGMENT.lane


@pytest.mark.parametrize("fine", [2, 3, 512, 65_535])
def test_a_header_of_unknown_blocks_is_none(fine: int) -> None:
    assert SegmentHeader.unpack(golden.SEGMENT._replace(fine=fine).pack()) is None


@pytest.mark.parametrize("durability", ["force", "os"])
def test_a_reader_follows_small_blocks(tmp_path: Path, durability: str) -> None:
    disk, sent = SimulatedDisk(block_bytes=512), []
    with MessageStore.open(tmp_path, tiny(durability=durability), disk=disk) as store:
        store.append("t", 0, b"")
        store.flush()
        with StoreReader.open(tmp_path, disk=disk) as reader:
            for number in range(200):
                sent.append(b"%d " % number * (number % 40))
                store.append("t", 0, sent[-1])
                if number % 7 == 0:
                    store.flush()
                    assert reader.read("t", 0, number + 1)[0].data == sent[-1]
            store.flush()
            assert all_data(reader) == [b"", *sent]


def test_a_reader_takes_what_fills_the_page_after_a_flush_for_padding(tmp_path: Path) -> None:
    """A closed log ends with a page, by its record, and its last frame 512 bytes after the one before."""
    with MessageStore.open(tmp_path, tiny(durability="os")) as store:
        for number in range(3):
            store.append("t", 0, b"%d" % number)
    (tmp_path / "LIVE").unlink()
    with StoreReader.open(tmp_path) as reader:
        assert all_data(reader) == [b"0", b"1", b"2"]
    described = inspect_folder(tmp_path)
    assert (described["verdict"], described["problems"]) == ("healthy", [])
    assert verify_folder(tmp_path).ok


def test_a_write_begins_after_one_that_fills_its_page_has_ended(tmp_path: Path) -> None:
    """Else zeros might come after the bytes that take their place."""
    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(durability="os"), disk=disk) as store:
        store.append("t", 0, b"first")
        disk.gate.clear()
        late = store.submit("t", 0, b"second")
        assert disk.waiting.acquire(timeout=10)
        (flusher,) = store._flushers

        def flush() -> None:
            with flusher.building:
                flusher.write_out(barrier=True)

        other = threading.Thread(target=flush)
        other.start()
        is_early = disk.waiting.acquire(timeout=0.2)
        disk.gate.set()
        other.join()
        assert not is_early, "a second write is with the device"
        assert late.result(10) == 1
        assert all_data(store) == [b"first", b"second"]
    with MessageStore.open(tmp_path, tiny()) as store:
        assert all_data(store) == [b"first", b"second"]


class FirstGated(GatedDisk):
    """The gate is before the first segment of each lane alone."""

    def meet(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> None:
        if path.name == segment_name(1):
            super().meet(kind, path, position, size)


def test_the_end_of_a_segment_of_small_blocks_waits_as_well_if_the_next_one_has_others(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(durability="os", block_bytes=512)) as store:
        store.append("t", 0, b"first")
    disk = FirstGated()
    with MessageStore.open(tmp_path, tiny(durability="os", block_bytes=4096), disk=disk) as store:
        disk.gate.clear()
        late = store.submit("t", 0, b"second")
        assert disk.waiting.acquire(timeout=10)
        (flusher,) = store._flushers

        def end() -> None:
            with flusher.building:
                AtOnce(flusher).make_room_of(60 << 10, lambda: 0)
                assert flusher.lane.block_bytes == 4096
                flusher.write_out(barrier=True)

        other = threading.Thread(target=end)
        other.start()
        is_early = disk.waiting.acquire(timeout=0.3)
        disk.gate.set()
        other.join()
        assert not is_early, "a second write is with the device"
        assert late.result(10) == 1
    with MessageStore.open(tmp_path, tiny()) as store:
        assert all_data(store) == [b"first", b"second"]


def test_what_was_flushed_survives_a_power_cut_in_a_later_write_of_the_same_kind(tmp_path: Path) -> None:
    """With "os" a write may end inside of a page, but a page that was forced is never written again."""
    first = draw_seed()
    for seed in range(first, first + 20):
        chance, disk = random.Random(seed), SimulatedDisk()
        with MessageStore.open(tmp_path / str(seed), tiny(durability="os"), disk=disk) as store:
            for number in range(6):
                store.append("t", 0, b"flushed %d" % number)
            store.flush()
            for number in range(chance.randrange(4)):
                store.append("t", 0, b"not flushed %d" % number)
            left = disk.crash(chance)
        with MessageStore.open(tmp_path / str(seed), tiny(), disk=left) as store:
            assert all_data(store)[:6] == [b"flushed %d" % number for number in range(6)], seed


def test_what_lies_beside_a_small_write_is_in_danger_on_a_device_of_larger_blocks(tmp_path: Path) -> None:
    """The simulated disk's rule, which finds a store that writes smaller blocks than its device has."""
    lost = 0
    for seed in range(60):
        disk = SimulatedDisk(block_bytes=4096)
        path = tmp_path / "file"
        file = disk.open(path, create=True, direct=True)
        disk.force_folder(tmp_path)
        file.write([b"x" * 4096], 0)
        file.force()
        file.write([b"y" * 512], 512)
        left = disk.crash(random.Random(seed), "sectors").open(path)
        lost += left.read(0, 512) != b"x" * 512
        file.force()
        assert disk.crash(random.Random(seed)).open(path).read(0, 1024) == b"x" * 512 + b"y" * 512
    assert lost
