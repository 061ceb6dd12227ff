"""A small file that processes share through a mapping, and the sleep until a word of it changes (a futex).

The kernel finds the sleepers of a shared mapping by the file's inode. So a reader needs no more than a mapping to read,
and its mount may be read-only.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import time
from pathlib import Path
from typing import Protocol

import numpy as np

from ...portable import POSIX_ALONE
from .background import Bell
from .descriptor import open_descriptor

_NUMBERS = {
    "x86_64": 202,
    "aarch64": 98,
    "riscv64": 98,
}  # of the system call `futex`; on another system, of other calls
_NUMBER = None if POSIX_ALONE else _NUMBERS.get(platform.machine())
_WAIT, _WAKE = 0, 1
_ALL = (1 << 31) - 1
_USUAL = frozenset({errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR})
POLL_S = 0.002  # where there is no futex
LONGEST_POLL_S = 0.05
BOOT_ID_BYTES = 16


def _call(library: type[ctypes.CDLL]) -> ctypes._NamedFuncPointer | None:
    try:
        return library(None, use_errno=True)["syscall"] if _NUMBER is not None else None
    except (OSError, TypeError, AttributeError):
        return None


_SLEEP = _call(ctypes.CDLL)  # without the interpreter lock
_RING = _call(ctypes.PyDLL)  # with it: the call is over sooner than the lock could be had again


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Mapped(Protocol):
    """A mapped file. Positions are in bytes."""

    inode: int

    def load(self, at: int, size: int) -> bytes:
        """A copy of some bytes. One that another process is writing may be torn."""

    def store(self, at: int, data: bytes) -> None:
        """Write some bytes."""

    def word(self, at: int) -> int:
        """The unsigned 64-bit word at a multiple of 8."""

    def set_word(self, at: int, value: int) -> None:
        """Write the unsigned 64-bit word at a multiple of 8, at once."""

    def store_and_set(self, at: int, data: bytes, word_at: int, value: int) -> None:
        """Write some bytes, and then the word at a multiple of 8, at once."""

    def wake(self) -> None:
        """Wake all that sleep on the bell."""

    def sleep(self, seen: int, patience_s: float) -> None:
        """Sleep while the bell is `seen`, no longer than `patience_s`. It may return for no reason."""

    def is_in_place(self) -> bool:
        """True if the path still leads to this file."""

    def close(self) -> None:
        """Give the mapping back."""


class MappedFile:
    """A `Mapped` of the operating system. `bell_at` is the position of the word that is slept on."""

    def __init__(self, path: Path, size_bytes: int, bell_at: int, *, write: bool) -> None:
        """Raises OSError, also where the file is shorter than `size_bytes`."""
        self._path = path
        owner = open_descriptor(path, os.O_RDWR if write else os.O_RDONLY)
        try:
            found = os.fstat(owner.fileno())
            if found.st_size < size_bytes:
                raise OSError(errno.EINVAL, "the file is too short to be mapped", str(path))
            os.pread(owner.fileno(), size_bytes, 0)  # so a bad sector is an error here, and no signal later
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
            self._map = mmap.mmap(owner.fileno(), size_bytes, prot=protection)
        finally:
            owner.close()
        self.inode = found.st_ino
        self._words = memoryview(self._map).cast("Q")
        address = np.frombuffer(self._map, np.uint8).ctypes.data + bell_at
        self._bell_at = bell_at
        self._address = ctypes.c_void_p(address)
        self._woken = Bell()  # for a sleeper of this process that looks
        # Made once: to convert them costs more than the call.
        self._ring = (ctypes.c_long(_NUMBER or 0), self._address, ctypes.c_int(_WAKE), ctypes.c_int(_ALL))

    def load(self, at: int, size: int) -> bytes:
        return self._map[at : at + size]

    def store(self, at: int, data: bytes) -> None:
        self._map[at : at + len(data)] = data

    def word(self, at: int) -> int:
        return self._words[at >> 3]

    def set_word(self, at: int, value: int) -> None:
        self._words[at >> 3] = value

    def store_and_set(self, at: int, data: bytes, word_at: int, value: int) -> None:
        self._map[at : at + len(data)] = data
        self._words[word_at >> 3] = value

    def wake(self) -> None:
        if _RING is not None:
            _RING(*self._ring)
        self._woken.set()

    def sleep(self, seen: int, patience_s: float) -> None:
        if _SLEEP is None:
            self._poll(seen, patience_s)
            return
        whole = int(patience_s)
        until = _Time(whole, int((patience_s - whole) * 1e9))
        low = ctypes.c_uint(seen & 0xFFFFFFFF)
        failed = _SLEEP(ctypes.c_long(_NUMBER or 0), self._address, ctypes.c_int(_WAIT), low, ctypes.byref(until))
        if failed and ctypes.get_errno() not in _USUAL:  # refused, as in a sandbox
            self._poll(seen, patience_s)

    def _poll(self, seen: int, patience_s: float) -> None:
        """Look again and again, less and less often, unless this process wakes the sleeper: an end does not wait."""
        until, nap_s = time.monotonic() + patience_s, POLL_S
        self._woken.clear()
        while self.word(self._bell_at) == seen and (left := until - time.monotonic()) > 0:
            if self._woken.wait(min(nap_s, left)):
                return
            nap_s = min(2 * nap_s, LONGEST_POLL_S)

    def is_in_place(self) -> bool:
        try:
            return os.stat(self._path).st_ino == self.inode
        except OSError:
            return False

    def close(self) -> None:
        """Does nothing: the mapping ends with its last reader."""


def boot_id() -> bytes:
    """16 bytes that change with each start of the machine; zeros where the system does not tell."""
    try:
        text = _boot_session() if POSIX_ALONE else Path("/proc/sys/kernel/random/boot_id").read_text()
        return bytes.fromhex(text.strip().replace("-", "")).ljust(BOOT_ID_BYTES, b"\0")[:BOOT_ID_BYTES]
    except (OSError, ValueError):
        return bytes(BOOT_ID_BYTES)


def _boot_session() -> str:
    """What macOS says of its start, a UUID; nothing on other systems. Raises OSError."""
    try:
        call = ctypes.CDLL(None, use_errno=True).sysctlbyname
    except (OSError, TypeError, AttributeError):
        return ""
    found = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(len(found))
    if call(b"kern.bootsessionuuid", found, ctypes.byref(size), None, ctypes.c_size_t(0)):
        raise OSError(ctypes.get_errno(), "the system does not name its start")
    return found.value.decode()
