"""Mappings, leases and bad sectors of the simulated disk, and stores that serve while their files are harmed."""

from __future__ import annotations

import errno
import io
import random

import pytest

from stratalog.store.device.leased import LeasedMap
from stratalog.store.testing import BLOCK_BYTES, BusError, SimulatedDisk, SimulatedFile
from stratalog.store.testing.memory import SimulatedReads

from ..seeds import draw_seed
from .engine import Ticks, deterministic, home
from .explore import Effort, explore
from .shape import Settings, Shape
from .tally import Tally

FILE = home() / "f"
SIZE = 4 * BLOCK_BYTES


@pytest.fixture
def disk() -> SimulatedDisk:
    """A disk with a forced file of four blocks."""
    made = SimulatedDisk()
    made.make_folder(home())
    made.put(FILE, b"a" * SIZE)
    return made


def refused(file: SimulatedFile) -> int | None:
    """The error number of a read of all."""
    with pytest.raises(OSError) as told:
        file.read(0, SIZE)
    return told.value.errno


def test_a_cut_waits_for_the_lease_and_is_a_signal_to_who_looks_at_the_mapping_later(disk: SimulatedDisk) -> None:
    lease = disk.open_to_read(FILE).lease()
    assert lease.is_whole() and lease.memory[0:3] == b"aaa"
    assert not disk.cut(FILE, BLOCK_BYTES)
    assert disk.has_waiting() and not lease.is_whole()
    assert lease.memory[SIZE - 3 : SIZE] == b"aaa"  # the one who cuts it waits
    lease.give_back()
    assert not disk.has_waiting() and disk.bytes_of(FILE) == b"a" * BLOCK_BYTES
    with pytest.raises(BusError):
        lease.memory[0:3]


def test_who_opens_a_file_for_writing_asks_for_the_lease_and_keeps_others_from_one(
    disk: SimulatedDisk,
) -> None:
    lease = disk.open_to_read(FILE).lease()
    writer = disk.open(FILE)
    assert not lease.is_whole()
    lease.give_back()
    with pytest.raises(OSError) as told:
        disk.open_to_read(FILE).lease()
    assert told.value.errno == errno.EAGAIN
    writer.close()
    assert disk.open_to_read(FILE).lease().is_whole()
    with pytest.raises(OSError, match="no lease"):
        disk.open(FILE).lease()


def test_a_bad_sector_is_an_error_of_reads_a_missing_page_and_a_signal_in_a_mapping(disk: SimulatedDisk) -> None:
    file = disk.open_to_read(FILE)
    lease = file.lease()
    disk.spoil(FILE, BLOCK_BYTES + 5)
    assert refused(file) == errno.EIO == refused(file.sequential())
    assert file.read(0, BLOCK_BYTES) == b"a" * BLOCK_BYTES
    assert SimulatedReads().read([(file.sequential(), BLOCK_BYTES, 1)]) is None
    assert lease.is_resident(0, BLOCK_BYTES) and not lease.is_resident(0, SIZE)
    assert file.populate(0, BLOCK_BYTES) and not file.populate(0, SIZE)
    with pytest.raises(BusError):
        lease.memory[BLOCK_BYTES : BLOCK_BYTES + 1]
    for left in (disk.copy(), disk.crash(random.Random(1))):
        assert refused(left.open(FILE)) == errno.EIO
    disk.open(FILE).write([b"b" * BLOCK_BYTES], BLOCK_BYTES)
    assert file.read(BLOCK_BYTES, 1) == b"b"


def test_reads_past_the_page_cache_are_those_of_the_file(disk: SimulatedDisk) -> None:
    disk.put(FILE, bytes(range(256)) * 64)
    file = disk.open_to_read(FILE).sequential()
    assert file.direct
    found = SimulatedReads().read([(file, 10, 4), (file, BLOCK_BYTES - 1, 2), (file, SIZE - 1, 1)])
    assert found is not None and found[0] == [bytes(range(10, 14)), b"\xff\x00", b"\xff"]
    assert SimulatedReads().read([(file, SIZE - 1, 2)]) is None
    view = memoryview(bytearray(10))
    assert file.read_into([view[:3], view[3:]], SIZE - 5) == 5 and view[:5] == bytes(range(251, 256))
    assert not file.direct  # as the kernel's refusal of an unaligned read has it
    with pytest.raises(io.UnsupportedOperation):
        file.fileno()


def test_a_leased_map_does_not_look_at_a_page_that_cannot_be_read(disk: SimulatedDisk) -> None:
    with deterministic():
        mapped, found = LeasedMap(disk.open_to_read(FILE)), bytearray(8)
        assert mapped.copied_pieces(memoryview(found), [0], [8]) and found == b"a" * 8
        Ticks.now += 1.0
        disk.spoil(FILE, 0)
        assert not mapped.copied_pieces(memoryview(found), [0], [8])
        assert not disk.cut(FILE, 0)
        assert mapped.is_wanted()
        mapped.let_go()
        assert not mapped.copied_pieces(memoryview(found), [0], [8])
        assert disk.bytes_of(FILE) == b""
        disk.put(FILE, b"b" * SIZE)
        again = LeasedMap(disk.open_to_read(FILE))
        assert again.copied_pieces(memoryview(found), [0], [8])
        again.let_go()  # also where nobody waits
        assert not again.copied_pieces(memoryview(found), [0], [8])


def test_a_store_serves_right_bytes_or_errors_while_its_files_are_harmed() -> None:
    seed = draw_seed()
    effort = Effort(moments=0.1, subsets=1, nested=0, again=0, opened=0, repairs=0, readers=0, served=0.5)
    shape = Shape(queues=3, steps=250, lives=(Settings(segment_bytes=64 << 10),) * 2)
    tally = Tally()
    for run in range(8):  # as many as count enough: what one run reads under harm is luck
        explore(seed + run, shape, effort, limit=tally.states + 40, tally=tally)
        if tally.parts["served"] > 3 and tally.parts["served: messages while files are harmed"] > 100:
            return
    pytest.fail(f"8 runs have served too little: {tally.parts}")
