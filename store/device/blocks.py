"""How small a write may be, so that a power cut in it harms nothing beside it.

A store writes no block again once it was forced (R4). That protects acknowledged messages only if the device does not
do it either: a device whose own block is larger than what is written reads that block, changes a part of it and writes
it again, with messages in it that were forced long ago. So the log's blocks have 4,096 bytes unless all of this holds;
then they have 512:

* the kernel says that the device's physical block, "the smallest unit a physical storage device can write atomically",
  has 512 bytes. For NVMe it is what the device promises for a loss of power (AWUPF, NPWG);
* it is the word of the device itself: an NVMe or ATA disk of this machine. Loop devices, mappers, RAIDs, network disks
  (iSCSI, Fibre Channel, Ceph) and virtual disks pass on a figure, or make one up: QEMU says 512 of a file on a disk
  with blocks of 4,096. So no disk of a virtual machine counts;
* the file system takes O_DIRECT in units of 512 bytes, and the log is written with it: the page cache writes whole
  pages.

Where answers do not wait for forces (durability "os"), a write may be smaller than the device's block between two
forces, as nothing in that block was promised to survive a power cut. After a force the next one begins in a block of
its own.
"""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress
from pathlib import Path

from ..format.layout import BLOCK_BYTES, FINE_BLOCK_BYTES

_OWN = ("/nvme/", "/ata")  # in the path of a device: its figures are its own
_HEARSAY = ("/virtual/", "/virtio", "/vbd", "/vmbus", "/xen", "/session", "/rport")  # they are not
_AT_FDCWD, _STATX_DIOALIGN = -100, 0x2000
_STATX_BYTES, _MASK_AT, _OFFSET_ALIGN_AT = 256, 0, 0x9C


def device_block_bytes(path: Path, system: Path = Path("/sys"), processors: Path = Path("/proc/cpuinfo")) -> int:
    """512 where a write of 512 bytes to this file is safe, else 4,096. Whatever is unknown counts as unsafe.

    `system`, `processors`: where the kernel describes its devices and the processors.
    """
    with suppress(OSError, ValueError):
        number = os.stat(path).st_dev
        device = (system / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True)
        if (device / "partition").exists():
            device = device.parent
        sizes = [int((device / "queue" / f"{kind}_block_size").read_text()) for kind in ("logical", "physical")]
        is_own = any(part in f"{device}/" for part in _OWN) and not any(part in f"{device}/" for part in _HEARSAY)
        is_own = is_own and _is_bare(processors.read_text())
        if is_own and sizes == [FINE_BLOCK_BYTES] * 2 and 0 < direct_unit_bytes(path) <= FINE_BLOCK_BYTES:
            return FINE_BLOCK_BYTES
    return BLOCK_BYTES


def _is_bare(text: str) -> bool:
    """Do the processors say that they are no virtual machine's? x86 says it among their flags."""
    flags = [line.split() for line in text.splitlines() if line.startswith("flags")]
    return bool(flags) and not any("hypervisor" in words for words in flags)


def direct_unit_bytes(path: Path) -> int:
    """The unit of O_DIRECT writes to a file, by the kernel; 0 where it takes none, or does not say (before Linux 6.1).

    Raises OSError.
    """
    try:
        call = ctypes.CDLL(None, use_errno=True).statx
    except AttributeError:
        return 0
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if call(_AT_FDCWD, os.fsencode(path), 0, _STATX_DIOALIGN, found):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    (mask,) = struct.unpack_from("<I", found.raw, _MASK_AT)
    (unit,) = struct.unpack_from("<I", found.raw, _OFFSET_ALIGN_AT)
    return int(unit) if mask & _STATX_DIOALIGN else 0
