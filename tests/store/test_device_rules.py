"""Rules of the device that sources are read for: no guess at what a file can do, no mapping that nothing guards."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from stratalog.store.device.direct_reads import DirectReads
from stratalog.store.device.disk import Disk, ReadingDisk
from stratalog.store.device.lease import OsLease
from stratalog.store.device.linux_disk import LinuxDisk
from stratalog.store.device.linux_file import LinuxFile
from stratalog.store.device.log_file import Lease, LogFile, RangeReads
from stratalog.store.device.looking import LookingDisk
from stratalog.store.device.posix_disk import PosixDisk
from stratalog.store.device.posix_file import NoRangeReads, PosixFile
from stratalog.store.testing import SimulatedDisk, SimulatedFile
from stratalog.store.testing.memory import SimulatedLease, SimulatedReads

from .helpers import ROOT

# mypy compares each of these with the interface, member by member.
FILES: tuple[type[LogFile], ...] = (LinuxFile, PosixFile, SimulatedFile)
DISKS: tuple[type[Disk], ...] = (LinuxDisk, PosixDisk, ReadingDisk, LookingDisk, SimulatedDisk)
LEASES: tuple[type[Lease], ...] = (OsLease, SimulatedLease)
READS: tuple[type[RangeReads], ...] = (DirectReads, NoRangeReads, SimulatedReads)

# Who may map a file; `device/leased.py` says why each is safe.
MAPPING = {
    "store/device/lease.py", "store/device/mapped.py", "store/device/prefault.py", "store/device/shared_memory.py",
    "cache/tier.py",
}  # fmt: skip


@cache
def calls() -> list[tuple[str, ast.Call]]:
    return [
        (path.relative_to(ROOT).as_posix(), node)
        for folder in ("store", "cache", "index", "pipeline")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]


def last_name(called: ast.expr) -> str:
    """`mmap` of `mmap.mmap(..)`; nothing where what is called has no name."""
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def members() -> set[str]:
    """The names of all that the device's interfaces have."""
    return {
        name
        for kind in (LogFile, Disk, Lease, RangeReads)
        for name in (*vars(kind), *kind.__annotations__)
        if not name.startswith("_")
    }


def test_no_code_looks_whether_a_file_or_disk_has_an_ability() -> None:
    names = members()
    assert {"read_into", "lease", "share", "range_reads", "map", "direct", "memory"} <= names
    guesses = [
        f"{path}:{node.lineno}"
        for path, node in calls()
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and len(node.args) > 1
        if isinstance(node.args[1], ast.Constant) and node.args[1].value in names
    ]
    assert guesses == []


def test_files_are_mapped_where_something_guards_the_mapping_and_nowhere_else() -> None:
    found = set()
    for path, node in calls():
        name = last_name(node.func)
        if name == "mmap" and ast.unparse(node.func).endswith("mmap.mmap") and ast.unparse(node.args[0]) != "-1":
            found.add(path)
        if name == "_MMAP":  # the system's own
            found.add(path)
        assert not name.endswith(("memmap", "fromfile")), path  # numpy's ways to map or read a file by its path
    assert found == MAPPING


def test_a_disk_to_look_at_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"data")

    def tree() -> dict[str, bytes | None]:
        return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(tmp_path.rglob("*"))}

    before, disk = tree(), LookingDisk()
    disk.make_folder(tmp_path / "new" / "folder")
    disk.link(tmp_path / "file", tmp_path / "other")
    disk.rename(tmp_path / "file", tmp_path / "other")
    disk.remove(tmp_path / "file")
    disk.remove_folder(tmp_path / "empty")
    disk.force_folder(tmp_path)
    for file in (disk.open(tmp_path / "file"), disk.open(tmp_path / "made", create=True)):
        file.write([b"other"], 0, force=True)
        file.truncate(0)
        file.reserve(1 << 20)
        file.force()
        assert not file.begin_write_back(0, 4)
        file.close()
    assert disk.make_shared("name", 4096) is None
    assert tree() == before
