"""Ranges of files that the device reads into the process's memory, many at once and past the page cache.

A message that is read once, far from any other that is wanted, is not worth pages of the page cache. They are more than
the message, and on a virtual machine the first touch of a fresh page costs more than the copy of a message does.

These are the kernel's asynchronous reads (`io_submit`): one call asks for all ranges, a second one waits for all of
them. With a call for each, a thread would sleep and be woken for each.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ...portable import POSIX_ALONE
from ..format.layout import BLOCK_BYTES

SLOT_BYTES = 512 << 10
SLOT_REQUESTS = 64
MOST_SPARE = 64  # 32 MiB
IOCB_BYTES, EVENT_BYTES = 64, 32


class _Calls(NamedTuple):
    """Numbers of the system's calls; the C library has no functions for them."""

    setup: int
    destroy: int
    submit: int
    getevents: int


_NUMBERS = {"x86_64": _Calls(206, 207, 209, 208), "aarch64": _Calls(0, 1, 2, 4)}
# A request: its number, the file, where to, how much, from where; opcode 0 is a read.
_REQUEST = struct.Struct("<QIIHhIQQqQII")
_EVENT = struct.Struct("<QQqq")  # of an answer, the third is what a read would return

_CALLS = None if POSIX_ALONE else _NUMBERS.get(platform.machine())  # on another system they are other calls
_SYSCALL: Any = None
with contextlib.suppress(OSError, TypeError, AttributeError):
    _SYSCALL = ctypes.CDLL(None, use_errno=True).syscall  # without the interpreter lock: each of the calls may sleep


class DirectFile(Protocol):
    """A file that was opened with O_DIRECT."""

    def fileno(self) -> int:
        """Its descriptor."""


Range = tuple[DirectFile, int, int]  # file, position, bytes


class DirectReads:
    """Reads for any number of threads.

    Each thread that reads has half a MiB of memory meanwhile; the memory of up to MOST_SPARE of them is kept.
    """

    def __init__(self) -> None:
        self._spare: deque[_RequestSlot] = deque(maxlen=MOST_SPARE)
        self.is_refused = _SYSCALL is None or _CALLS is None

    def read(self, ranges: Sequence[Range]) -> tuple[list[bytes], int, int] | None:
        """See `RangeReads.read`. None also where the system has no such calls."""
        if self.is_refused:
            return None
        try:
            slot = self._spare.pop()
        except IndexError:
            try:
                slot = _RequestSlot()
            except OSError:  # refused, or too many in the whole system
                self.is_refused = True
                return None
        found = slot.read(ranges)
        if slot.is_idle:  # else it waits for the device when it goes, as it does where a signal's handler has raised
            self._spare.append(slot)
        return found

    def clear(self) -> None:
        """Let go of the memory that nobody uses."""
        self._spare.clear()


class _RequestSlot:
    """Memory that the device writes to, and the kernel's side of the requests for it. For one thread at a time.

    Invariants:
        * the memory stays until the kernel has answered, or `io_destroy` has waited for it;
        * `is_idle` is False while an answer may be missing.
    """

    _context: ctypes.c_ulong | None = None

    def __init__(self) -> None:
        """Raises OSError where the system refuses it."""
        assert _CALLS is not None
        self.is_idle = True
        self._calls, self._pid = _CALLS, os.getpid()
        self._context = ctypes.c_ulong(0)
        self._memory = mmap.mmap(-1, SLOT_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._requests = ctypes.create_string_buffer(IOCB_BYTES * SLOT_REQUESTS)
        self._events = ctypes.create_string_buffer(EVENT_BYTES * SLOT_REQUESTS)
        first = ctypes.addressof(self._requests)
        each = [first + IOCB_BYTES * number for number in range(SLOT_REQUESTS)]
        self._pointers = (ctypes.c_void_p * SLOT_REQUESTS)(*each)
        if _SYSCALL(ctypes.c_long(_CALLS.setup), ctypes.c_long(SLOT_REQUESTS), ctypes.byref(self._context)):
            raise OSError("the system refuses asynchronous reads")

    def __del__(self) -> None:
        context = self._context
        if context is not None and context.value and self._pid == os.getpid():  # a forked child has none
            _SYSCALL(ctypes.c_long(self._calls.destroy), context)

    def read(self, ranges: Sequence[Range]) -> tuple[list[bytes], int, int] | None:
        """As `DirectReads.read`."""
        found: list[bytes] = []
        memory, size, calls = self._memory, 0, 0
        while len(found) < len(ranges):
            places, requests, used = _planned(ranges, len(found), self._address)
            if not places or not self._run(requests):
                return None
            found += [memory[at : at + length] for at, length in places]
            size += used
            calls += len(requests)
        return found, size, calls

    def _run(self, requests: list[list[int]]) -> bool:
        """Have all requests answered; False if one of them did not get all of its bytes."""
        for number, (fd, to, position, size) in enumerate(requests):
            _REQUEST.pack_into(self._requests, IOCB_BYTES * number, number, 0, 0, 0, 0, fd, to, size, position, 0, 0, 0)
        count = asked = len(requests)
        self.is_idle = False
        submitted = self._submit(count)
        if submitted < count:
            asked = submitted
        is_whole = self._answered(asked, requests)
        return is_whole and asked == count

    def _submit(self, count: int) -> int:
        """Submit the first requests; return how many the kernel took."""
        done = 0
        while done < count:
            pointers = ctypes.byref(self._pointers, ctypes.sizeof(ctypes.c_void_p) * done)
            taken = _SYSCALL(ctypes.c_long(self._calls.submit), self._context, ctypes.c_long(count - done), pointers)
            if taken <= 0:
                break
            done += taken
        return done

    def _answered(self, count: int, requests: list[list[int]]) -> bool:
        """Wait for `count` answers; True if each read has got all of its bytes."""
        is_whole, missing = True, count
        number, wanted = ctypes.c_long(self._calls.getevents), ctypes.c_long(count)
        while missing:
            wanted.value = missing
            got = _SYSCALL(number, self._context, wanted, wanted, self._events, None)
            if got <= 0:
                if ctypes.get_errno() != errno.EINTR:  # a signal whose handler has not raised
                    return False
                continue
            for at in range(0, EVENT_BYTES * got, EVENT_BYTES):
                index, _, size, _ = _EVENT.unpack_from(self._events, at)
                is_whole = is_whole and size == requests[index][3]
            missing -= got
        self.is_idle = True
        return is_whole


def _planned(ranges: Sequence[Range], begin: int, address: int) -> tuple[list[tuple[int, int]], list[list[int]], int]:
    """What a slot has room for, of the ranges from `begin` on: where in it each will be, and the requests for them
    (descriptor, address, position, bytes), and their bytes.
    """
    places: list[tuple[int, int]] = []
    requests: list[list[int]] = []
    used = shift = 0
    last_file, last_low, last_high = None, 0, 0
    for file, position, length in ranges[begin:]:
        low = position & -BLOCK_BYTES
        high = (position + (length or 1) + BLOCK_BYTES - 1) & -BLOCK_BYTES
        if file is last_file and last_low <= low <= last_high:
            more = max(high - last_high, 0)
            if used + more > SLOT_BYTES:
                break
            requests[-1][3] += more
            used += more
            last_high += more
        else:
            if used + high - low > SLOT_BYTES or len(requests) == SLOT_REQUESTS:
                break
            requests.append([file.fileno(), address + used, low, high - low])
            last_file, last_low, last_high, shift = file, low, high, used - low
            used += high - low
        places.append((position + shift, length))
    return places, requests, used
