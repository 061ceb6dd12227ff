"""The simulated disk itself: what survives a power cut and what does not, and how errors strike."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreConfig, StorePoisoned
from stratalog.store.testing import (
    BLOCK_BYTES,
    MANNERS,
    SECTOR_BYTES,
    Fault,
    Operation,
    PowerCut,
    SimulatedDisk,
    SimulatedFile,
    TunedConfig,
)

from .engine import home

HOME = home()
FILE = HOME / "f"
TRIES = 200


@pytest.fixture
def disk() -> SimulatedDisk:
    made = SimulatedDisk()
    made.make_folder(HOME)
    return made


@pytest.fixture
def file(disk: SimulatedDisk) -> SimulatedFile:
    """A forced file of four blocks of "a"."""
    made = disk.open(FILE, create=True)
    made.write([b"a" * 4 * BLOCK_BYTES], 0)
    made.force()
    disk.force_folder(HOME)
    return made


def crashes(disk: SimulatedDisk) -> Iterator[SimulatedDisk]:
    for seed in range(TRIES):
        yield disk.crash(random.Random(seed))


def left(disk: SimulatedDisk, path: Path = FILE) -> bytes:
    found = disk.open(path)
    return found.read(0, found.size())


# -- bytes --------------------------------------------------------------------------------------------


def test_what_is_written_is_read_across_blocks(disk: SimulatedDisk) -> None:
    chance = random.Random(1)
    file, model = disk.open(FILE, create=True), bytearray()
    for _ in range(200):
        data = chance.randbytes(chance.randrange(1, 3 * BLOCK_BYTES))
        at = chance.randrange(5 * BLOCK_BYTES)
        model.extend(bytes(max(0, at + len(data) - len(model))))
        model[at : at + len(data)] = data
        file.write([data[:7], memoryview(data)[7:]], at)
        if chance.random() < 0.2:
            size = chance.randrange(6 * BLOCK_BYTES)
            file.truncate(size)
            del model[size:]
            model.extend(bytes(size - len(model)))
        begin = chance.randrange(len(model) + 10)
        assert file.size() == len(model)
        assert file.read(begin, 5000) == bytes(model[begin : begin + 5000])
    assert left(disk.crash(chance, "all")) == bytes(model)


def test_forced_bytes_survive_every_crash(disk: SimulatedDisk, file: SimulatedFile) -> None:
    assert disk.is_forced()
    assert {left(crashed) for crashed in crashes(disk)} == {b"a" * 4 * BLOCK_BYTES}


def test_unforced_bytes_survive_in_any_subset_of_sectors(disk: SimulatedDisk, file: SimulatedFile) -> None:
    file.write([b"b" * 4 * BLOCK_BYTES], 0)
    assert not disk.is_forced()
    seen = {left(crashed) for crashed in crashes(disk)}
    assert b"a" * 4 * BLOCK_BYTES in seen, "nothing survives"
    assert b"b" * 4 * BLOCK_BYTES in seen, "everything survives"
    begins = range(0, 4 * BLOCK_BYTES, BLOCK_BYTES)
    blocks = {tuple(found[at : at + BLOCK_BYTES] == b"b" * BLOCK_BYTES for at in begins) for found in seen}
    assert (False, True, True, True) in blocks, "a block is lost and later ones are not"
    assert (False, False, True, False) in blocks, "a single one survives"
    torn = [found for found in seen if found[:SECTOR_BYTES] == b"a" * SECTOR_BYTES and b"b" in found[:BLOCK_BYTES]]
    assert torn, "a block is torn between sectors"
    sectors = {found[at : at + SECTOR_BYTES] for found in seen for at in range(0, len(found), SECTOR_BYTES)}
    assert any(len(set(sector)) == 2 for sector in sectors), "a sector is torn inside"


def test_earlier_unforced_state_may_survive_in_place_of_the_last(disk: SimulatedDisk, file: SimulatedFile) -> None:
    for letter in b"xyz":
        file.write([bytes([letter]) * BLOCK_BYTES], 0)
    assert {left(crashed)[0] for crashed in crashes(disk)} == set(b"axyz")


def test_forced_write_settles_its_own_bytes_alone(disk: SimulatedDisk, file: SimulatedFile) -> None:
    file.write([b"b" * BLOCK_BYTES], 0)
    file.write([b"c" * BLOCK_BYTES], BLOCK_BYTES, force=True)
    found = [left(crashed) for crashed in crashes(disk)]
    assert {data[0] for data in found} == set(b"ab")
    assert {data[BLOCK_BYTES : 2 * BLOCK_BYTES] for data in found} == {b"c" * BLOCK_BYTES}


def test_forced_write_of_part_of_a_block_leaves_the_rest_in_doubt(disk: SimulatedDisk, file: SimulatedFile) -> None:
    file.write([b"b" * BLOCK_BYTES], 0)
    file.write([b"c" * 1000], 1000, force=True)
    found = [left(crashed) for crashed in crashes(disk)]
    assert {data[1000:2000] for data in found} == {b"c" * 1000}
    assert {data[0] for data in found} == set(b"ab") == {data[2000] for data in found}


def test_process_death_takes_nothing(disk: SimulatedDisk, file: SimulatedFile) -> None:
    file.write([b"b" * 100], 5)
    disk.open(HOME / "g", create=True).write([b"new"], 0)
    disk.rename(FILE, HOME / "h")
    dead = disk.crash(random.Random(0), "all")
    assert dead.files() == disk.files()
    assert dead.is_forced()


def test_killed_process_forces_nothing(disk: SimulatedDisk, file: SimulatedFile) -> None:
    """The next life finds bytes and names as they were written; a power cut in it may take them still."""
    file.write([b"b" * BLOCK_BYTES], 0)
    disk.open(HOME / "g", create=True).force()
    killed = disk.kill().kill()
    assert killed.files() == disk.files()
    assert not killed.is_forced()
    assert {left(crashed)[0] for crashed in crashes(killed)} == set(b"ab")
    assert {tuple(crashed.list(HOME)) for crashed in crashes(killed)} == {("f",), ("f", "g")}
    killed.force_folder(HOME)
    assert {tuple(crashed.list(HOME)) for crashed in crashes(killed)} == {("f", "g")}
    assert {tuple(crashed.list(HOME)) for crashed in crashes(disk)} == {("f",), ("f", "g")}, "the dead one is unchanged"


# -- lengths ------------------------------------------------------------------------------------------


def test_unforced_growth_may_be_lost_with_its_bytes(disk: SimulatedDisk, file: SimulatedFile) -> None:
    file.write([b"b" * BLOCK_BYTES], 4 * BLOCK_BYTES)
    found = {left(crashed)[4 * BLOCK_BYTES :] for crashed in crashes(disk)}
    assert {b"", b"b" * BLOCK_BYTES, bytes(BLOCK_BYTES)} <= found


def test_forced_write_behind_the_end_forces_the_length(disk: SimulatedDisk, file: SimulatedFile) -> None:
    file.write([b"b" * BLOCK_BYTES], 4 * BLOCK_BYTES, force=True)
    assert {left(crashed)[4 * BLOCK_BYTES :] for crashed in crashes(disk)} == {b"b" * BLOCK_BYTES}


def test_unforced_cut_may_or_may_not_survive(disk: SimulatedDisk, file: SimulatedFile) -> None:
    file.truncate(5000)
    assert {len(left(crashed)) for crashed in crashes(disk)} == {5000, 4 * BLOCK_BYTES}
    file.force()
    assert {left(crashed) for crashed in crashes(disk)} == {b"a" * 5000}


def test_file_that_grows_again_behind_a_cut_reads_as_zeros(disk: SimulatedDisk, file: SimulatedFile) -> None:
    file.truncate(5000)
    file.truncate(9000)
    file.force()
    assert {left(crashed) for crashed in crashes(disk)} == {b"a" * 5000 + bytes(4000)}


# -- names --------------------------------------------------------------------------------------------


def test_new_name_is_lost_without_a_force_of_its_folder(disk: SimulatedDisk) -> None:
    file = disk.open(FILE, create=True)
    file.write([b"x"], 0)
    file.force()
    assert {tuple(crashed.list(HOME)) for crashed in crashes(disk)} == {(), ("f",)}
    disk.force_folder(HOME)
    assert {left(crashed) for crashed in crashes(disk)} == {b"x"}


def test_rename_is_atomic(disk: SimulatedDisk, file: SimulatedFile) -> None:
    disk.rename(FILE, HOME / "g")
    assert {tuple(crashed.list(HOME)) for crashed in crashes(disk)} == {("f",), ("g",)}
    disk.force_folder(HOME)
    assert {tuple(crashed.list(HOME)) for crashed in crashes(disk)} == {("g",)}
    assert file.read(0, 1) == b"a", "an open file stays open through a rename"


def test_removed_name_may_come_back_with_its_bytes(disk: SimulatedDisk, file: SimulatedFile) -> None:
    disk.remove(FILE)
    assert disk.list(HOME) == []
    assert {tuple(crashed.files().values()) for crashed in crashes(disk)} == {(), (b"a" * 4 * BLOCK_BYTES,)}


def test_changes_of_names_survive_in_any_subset(disk: SimulatedDisk) -> None:
    for name in "abc":
        disk.open(HOME / name, create=True)
    assert len({tuple(crashed.list(HOME)) for crashed in crashes(disk)}) == 8


def test_missing_files_are_errors(disk: SimulatedDisk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(FILE)
    with pytest.raises(FileNotFoundError):
        disk.remove(FILE)
    with pytest.raises(FileNotFoundError):
        disk.open(HOME / "no folder" / "f", create=True)
    assert disk.list(HOME.parent) == ["store"]
    assert disk.list(HOME / "no folder") == []


def test_relative_path_leads_from_the_working_directory(
    disk: SimulatedDisk, file: SimulatedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = HOME.parent / "other" / HOME.name
    disk.make_folder(other)
    monkeypatch.chdir(HOME.parent)
    path = Path(HOME.name) / "g"
    disk.open(path, create=True).write([b"here"], 0)
    monkeypatch.chdir(other.parent)
    disk.open(path, create=True).write([b"there"], 0)
    disk.remove(Path("..") / HOME.name / "f")
    assert (disk.list(HOME), disk.list(Path(HOME.name))) == (["g"], ["g"])
    assert (disk.bytes_of(HOME / "g"), disk.bytes_of(other / "g")) == (b"here", b"there")


# -- errors -------------------------------------------------------------------------------------------


def test_fault_strikes_the_nth_call_once_or_for_good(disk: SimulatedDisk, file: SimulatedFile) -> None:
    for for_good in (False, True):
        disk.inject(Fault("write", nth=2, error=errno.ENOSPC, for_good=for_good))
        file.write([b"1"], 0)
        with pytest.raises(OSError) as caught:
            file.write([b"2"], 0)
        assert caught.value.errno == errno.ENOSPC
        assert file.read(0, 1) == b"1"
        if for_good:
            with pytest.raises(OSError):
                file.write([b"3"], 0)
        else:
            file.write([b"3"], 0)
        assert disk.faults_struck == 1 + for_good


def test_short_write_leaves_its_first_part(disk: SimulatedDisk, file: SimulatedFile) -> None:
    disk.inject(Fault("write", short=0.5))
    with pytest.raises(OSError):
        file.write([b"b" * 1000], 0)
    assert file.read(0, 501) == b"b" * 500 + b"a"


def test_force_after_a_failed_force_proves_nothing(disk: SimulatedDisk, file: SimulatedFile) -> None:
    file.write([b"b" * BLOCK_BYTES], 0)
    disk.inject(Fault("force"))
    with pytest.raises(OSError):
        file.force()
    file.force()
    assert file.read(0, 1) == b"b"
    assert {left(crashed)[0] for crashed in crashes(disk)} == set(b"ab")
    file.write([b"c" * BLOCK_BYTES], 0, force=True)
    assert {left(crashed)[0] for crashed in crashes(disk)} == set(b"c")


def test_failed_calls_on_names_have_no_effect(disk: SimulatedDisk, file: SimulatedFile) -> None:
    disk.inject(*(Fault(kind) for kind in ("rename", "remove", "create", "open", "reserve", "force_folder")))
    for call in (
        lambda: disk.rename(FILE, HOME / "g"), lambda: disk.remove(FILE),
        lambda: disk.open(HOME / "new", create=True), lambda: disk.open(HOME / "new", create=True),
        lambda: file.reserve(1 << 20), lambda: disk.force_folder(HOME),
    ):  # fmt: skip
        with pytest.raises(OSError):
            call()
    assert disk.list(HOME) == ["f"]
    assert file.size() == 4 * BLOCK_BYTES


def test_full_disk_refuses_space(file: SimulatedFile, disk: SimulatedDisk) -> None:
    disk.capacity_bytes = 6 * BLOCK_BYTES
    file.reserve(6 * BLOCK_BYTES)
    with pytest.raises(OSError) as caught:
        disk.open(HOME / "g", create=True).write([b"x"], 0)
    assert caught.value.errno == errno.ENOSPC
    disk.remove(FILE)
    disk.open(HOME / "g", create=True).write([b"x"], 0)


def test_power_cut_freezes_the_disk(disk: SimulatedDisk, file: SimulatedFile) -> None:
    disk.cut_at = disk.operations + 2
    file.write([b"b"], 0)
    for call in (file.force, file.force, lambda: file.read(0, 1), lambda: disk.list(HOME)):
        with pytest.raises(PowerCut):
            call()
    assert {left(crashed)[0] for crashed in crashes(disk)} == set(b"ab")


def test_damage_from_outside_is_durable_at_once(disk: SimulatedDisk, file: SimulatedFile) -> None:
    disk.put(HOME / "g", b"other bytes")
    disk.take_away(FILE)
    assert disk.is_forced()
    assert [crashed.files() for crashed in crashes(disk)] == [{HOME / "g": b"other bytes"}] * TRIES
    assert file.read(0, 1) == b"a", "an open file stays"
    assert disk.sizes() == {HOME / "g": 11}


# -- as a tool ----------------------------------------------------------------------------------------


def test_same_seed_leaves_the_same(disk: SimulatedDisk, file: SimulatedFile) -> None:
    file.write([b"b" * 4 * BLOCK_BYTES], 0)
    for manner in MANNERS:
        one, other = (disk.crash(random.Random(7), manner) for _ in range(2))
        assert one.files() == other.files()
        assert one.fingerprint() == other.fingerprint()


def test_copy_and_crash_leave_the_disk_as_it_is(disk: SimulatedDisk, file: SimulatedFile) -> None:
    file.write([b"b" * BLOCK_BYTES], 0)
    before = disk.files()
    twin, crashed = disk.copy(), disk.crash(random.Random(1))
    for other in (twin, crashed):
        other.open(FILE).write([b"c"], 0, force=True)
        other.remove(FILE)
    assert disk.files() == before
    assert {left(crashed)[0] for crashed in crashes(disk)} == set(b"ab")


def test_disks_that_share_blocks_are_changed_apart(disk: SimulatedDisk, file: SimulatedFile) -> None:
    """A forced file is not copied by `copy` and `crash` before one of the disks changes it."""
    disks = [disk, disk.copy(), disk.crash(random.Random(1)), disk.copy().crash(random.Random(2))]
    changes = [
        lambda disk: disk.open(FILE).write([b"b"], 0),
        lambda disk: disk.open(FILE).write([b"c"], 0, force=True),
        lambda disk: disk.flip(FILE, 0, 7),
        lambda disk: disk.open(FILE).truncate(0),
    ]
    expected = [{b"a", b"b"}, {b"c"}, {b"\xe1"}, {b"a", b"\0", b""}]
    for at in range(len(disks)):
        changes[at](disks[at])
        for other in range(len(disks)):
            found = {left(crashed)[:1] for crashed in crashes(disks[other])}
            assert found <= expected[other] if other <= at else found == {b"a"}


def test_every_change_is_told_before_it_happens(disk: SimulatedDisk) -> None:
    told: list[tuple[Operation, tuple[str, ...]]] = []
    disk.on_operation = lambda operation: told.append((operation, tuple(disk.list(HOME))))
    file = disk.open(FILE, create=True)
    file.write([b"x" * 10], 5, force=True)
    disk.rename(FILE, HOME / "g")
    assert [(operation.kind, operation.position, operation.size) for operation, _ in told] == [
        ("create", 0, 0), ("write", 5, 10), ("force", 5, 10), ("rename", 0, 0),
    ]  # fmt: skip
    assert [names for _, names in told] == [(), ("f",), ("f",), ("f",)]


def test_real_store_with_its_threads_runs_on_it(tmp_path: Path) -> None:
    """As the package's docstring shows it: append, cut the power, open what is left."""
    disk = SimulatedDisk()
    config = TunedConfig(segment_bytes=64 << 10, max_message_bytes=8192, max_frame_bytes=8192, recent_bytes=0)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        sent = {store.append("t", 0, b"%d" % i * 500): b"%d" % i * 500 for i in range(100)}
        for seed in range(10):
            cut = disk.crash(random.Random(seed))
            del cut
        crashed = disk.crash(random.Random(3))
    with MessageStore.open(tmp_path, config, disk=crashed) as store:
        assert store.get_range("t", 0, 0, 200) == sent


def test_power_cut_under_a_running_store_poisons_it(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    with MessageStore.open(tmp_path, StoreConfig(segment_bytes=64 << 10), disk=disk) as store:
        store.append("t", 0, b"kept")
        disk.cut_at = disk.operations + 1
        with pytest.raises(StorePoisoned):
            store.append("t", 0, b"lost")
        crashed = disk.crash(random.Random(5))
    with MessageStore.open(tmp_path, disk=crashed) as store:
        assert store.get_range("t", 0, 0, 10)[0] == b"kept"
