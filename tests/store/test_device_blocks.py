"""Which devices are trusted with blocks of 512 bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import InvalidConfig, MessageStore
from stratalog.store.device import blocks
from stratalog.store.device.blocks import device_block_bytes, direct_unit_bytes
from stratalog.store.device.disk import OsDisk
from stratalog.store.testing import TunedConfig

from .helpers import tiny

BARE = "processor\t: 0\nflags\t\t: fpu vme sse2 ht nx\n"
DISK = "devices/pci0000:00/0000:00:1d.0/0000:01:00.0/nvme/nvme0/nvme0n1"


class Machine:
    """A kernel's description of the device that has a file."""

    def __init__(self, folder: Path, *, device: str, logical: int, physical: int, flags: str, is_part: bool) -> None:
        self.system, self.file, self.processors = folder / "sys", folder / "file", folder / "cpuinfo"
        self.file.write_bytes(b"")
        self.processors.write_text(flags)
        (queue := self.system / device / "queue").mkdir(parents=True)
        (queue / "logical_block_size").write_text(f"{logical}\n")
        (queue / "physical_block_size").write_text(f"{physical}\n")
        at = self.system / device
        if is_part:
            at = at / "part1"
            at.mkdir()
            (at / "partition").write_text("1\n")
        number = os.stat(self.file).st_dev
        links = self.system / "dev" / "block"
        links.mkdir(parents=True)
        (links / f"{os.major(number)}:{os.minor(number)}").symlink_to(at)

    def block_bytes(self) -> int:
        return device_block_bytes(self.file, self.system, self.processors)


@pytest.mark.parametrize(
    ("what", "changes", "expected"),
    [
        ("a device that writes 512 bytes at once", {}, 512),
        ("a partition of it", {"is_part": True}, 512),
        ("a SATA disk", {"device": "devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"}, 512),
        ("a disk of iSCSI", {"device": "devices/platform/host3/session1/target3:0:0/3:0:0:0/block/sdb"}, 4096),
        ("Ceph", {"device": "devices/rbd/0/block/rbd0"}, 4096),
        ("a volume of a RAID controller", {"device": "devices/pci0000:00/0000:01:00.0/host0/target0:2:0/sda"}, 4096),
        ("NVMe over a network", {"device": "devices/virtual/nvme-fabrics/ctl/nvme/nvme1/nvme1n1"}, 4096),
        ("512e: it reads, changes and writes 4 KiB", {"physical": 4096}, 4096),
        ("4Kn", {"physical": 4096, "logical": 4096}, 4096),
        ("a device with blocks of 16 KiB", {"physical": 16_384}, 4096),
        ("a loop device says 512 of any file", {"device": "devices/virtual/block/loop0"}, 4096),
        ("a mapper", {"device": "devices/virtual/block/dm-0"}, 4096),
        ("a disk that a hypervisor makes up", {"device": "devices/pci0000:00/0000:00:02.0/virtio1/block/vda"}, 4096),
        ("any disk of a virtual machine", {"flags": "flags : fpu hypervisor\n"}, 4096),
        ("a processor that does not say whether it is one", {"flags": "Features : fp asimd\n"}, 4096),
        ("a kernel that does not say the unit of O_DIRECT", {"unit": 0}, 4096),
        ("a file system with blocks of 4 KiB", {"unit": 4096}, 4096),
        ("a device that can write single bytes", {"unit": 1}, 512),
    ],
)  # fmt: skip
def test_a_device_gets_small_blocks_only_by_its_own_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, changes: dict[str, object], expected: int
) -> None:
    given = {"device": DISK, "logical": 512, "physical": 512, "flags": BARE, "is_part": False, **changes}
    unit = given.pop("unit", 512)
    monkeypatch.setattr(blocks, "direct_unit_bytes", lambda path: unit)
    assert Machine(tmp_path, **given).block_bytes() == expected, what  # type: ignore[arg-type]


def test_whatever_cannot_be_read_counts_as_unsafe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "direct_unit_bytes", lambda path: 512)
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "cpuinfo").write_text(BARE)
    assert device_block_bytes(tmp_path / "file", tmp_path / "nothing", tmp_path / "cpuinfo") == 4096
    assert device_block_bytes(tmp_path / "no file", tmp_path / "nothing", tmp_path / "cpuinfo") == 4096
    machine = Machine(tmp_path, device=DISK, logical=512, physical=512, flags=BARE, is_part=False)
    assert machine.block_bytes() == 512
    machine.processors.unlink()
    assert machine.block_bytes() == 4096
    machine.processors.write_text(BARE)
    (machine.system / DISK / "queue" / "physical_block_size").write_text("many\n")
    assert machine.block_bytes() == 4096


def test_the_unit_of_direct_writes_is_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(4096))
    unit = direct_unit_bytes(tmp_path / "file")
    assert unit == 0 or unit & (unit - 1) == 0
    with pytest.raises(OSError, match="No such file"):
        direct_unit_bytes(tmp_path / "nothing")
    if unit == 512 and hasattr(os, "O_DIRECT"):
        with MessageStore.open(tmp_path / "s", tiny(block_bytes=512)) as store:
            store.append("t", 0, b"")
            assert store.stats()["log"]["direct_io"], "the kernel has taken a write of 512 bytes"


def test_a_store_asks_its_disk_only_if_it_writes_past_the_page_cache(tmp_path: Path) -> None:
    asked = []

    class Asked(OsDisk):
        def safe_block_bytes(self, path: Path) -> int:
            asked.append(path)
            return super().safe_block_bytes(path)

    given: list[dict[str, Any]] = [{"direct_io": False}, {"durability": "os"}, {"block_bytes": 4096}, {}]
    for number, settings in enumerate(given):
        before = len(asked)
        with MessageStore.open(tmp_path / str(number), tiny(**settings), disk=Asked()) as store:
            assert len(asked) - before == (not settings and store.stats()["log"]["direct_io"])


@pytest.mark.parametrize("given", [0, 1, 256, 1024, 8192, -512, 512.0, "512", True, [512]])
def test_a_block_size_that_is_none_is_refused(given: object) -> None:
    with pytest.raises(InvalidConfig, match="block_bytes is None, 512 or 4096, not"):
        TunedConfig(block_bytes=given)  # type: ignore[arg-type]
