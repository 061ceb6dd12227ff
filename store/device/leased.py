"""A mapping of a file that readers copy from without a system call, and that does not kill the process.

To touch a mapped page that the file does not have any more, or that the device cannot read, is the signal SIGBUS, and
the end of the process. So there is one rule for the whole package: **a file that others can cut is mapped here and
nowhere else, and looked at under the lock, after the checks below.** All else is read by system calls: footers, logs,
buckets, shards, notes. What is mapped besides:

* memory without a file: the ring, buffers, tables;
* memory that is shared with other processes, which is sealed: nobody can cut it, its maker included, and the kernel
  provides all of it before it is touched (`shared_memory`, `live/mirror`);
* the page LIVE (`mapped`), because other processes sleep on it. It is a small file that only the store makes, and it is
  read once before it is mapped. A program that cuts it ends the writer and its readers: do not copy over a LIVE file;
* a file of the cache that has no name, or is the cache's own (`cache/tier`);
* `prefault`, which has the kernel fill the pages and touches none itself: there it is an error, not a signal.

Two things stand against the signal here:

* A lease (`F_SETLEASE`). As long as we have it, the kernel holds up a program that opens the file for writing or cuts
  it, for `/proc/sys/fs/lease-break-time` (45 s). Readers look every LOOK_S whether a program waits, and copy nothing
  from the mapping any more if so. The store's background looks as well and gives the lease back: the other one goes on.
* Only windows are copied from whose pages were all in memory TRUST_S ago or later (`mincore`). A page that is there was
  read without an error. So for a signal, a page must be evicted within that time, and the device must fail to read what
  it has read before.

Where there is no lease to be had (a file system without leases, another owner, a program that has the file open for
writing), there is no mapping, and reads are system calls.

Not covered: a process that is stopped in the middle of a copy for longer than the kernel waits, while a program cuts
the file; and a file system that other machines write to, where it grants leases without asking them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from time import monotonic

from ..format.layout import checksum64
from .log_file import LogFile, Memory

WINDOW_SHIFT = 20
WINDOW_BYTES = 1 << WINDOW_SHIFT
TRUST_S = 0.5
AGAIN_S = 0.1  # after a look that found pages missing: they may have been read meanwhile
LOOK_S = 1.0
MISS_S = 1.0  # of pages that nobody has asked for, as far as we know
NEAR_MESSAGES = 4  # of a window, and more: their windows are looked at together
LOW_32 = 0xFFFFFFFF  # of a checksum: what a message keeps


class Maps:
    """One lock for all mappings of the process. It is enough: a reader that copies has the interpreter lock as well.

    Attributes:
        lock: taken to copy from a mapping, and to give a lease back.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def after_fork(self) -> None:
        """In a forked child: a thread that is not there may have the lock."""
        self.lock = threading.Lock()


MAPS = Maps()
os.register_at_fork(after_in_child=MAPS.after_fork)


class LeasedMap:
    """The whole of a file that nobody writes to. Any number of threads may use it.

    Invariants:
        * `memory` is looked into under the lock of `MAPS` alone, and the lease is given back under it, after `memory`
          is gone;
        * nothing is copied unless a look that is younger than LOOK_S and TRUST_S together has found the lease whole.

    Attributes:
        near: of each window, when all of its pages and all of the next one's were in memory; 0 without a mapping.
        used: see `was_used`; readers that go by `near` set it every TRUST_S.
    """

    def __init__(self, file: LogFile) -> None:
        """`file` is opened for reading alone. Raises OSError where it cannot be mapped, or not safely."""
        lease = self._lease = file.lease()
        self.memory: Memory | None = lease.memory
        windows = -(-len(lease.memory) // WINDOW_BYTES)
        self._seen = [0.0] * windows  # when all pages of a window were in memory
        self._missed = [0.0] * windows  # when one of them was not
        self.near = [0.0] * windows
        self.used = False
        self._look_at = monotonic() + LOOK_S

    def copied(self, flat: Sequence[int], entries: Sequence[int], found: dict[int, bytes]) -> int:
        """Add copies of messages with right checksums to `found`: how many, from the first on.

        The position, length and checksum of entry n are at 3 n, 3 n + 1, 3 n + 2 of `flat`. It stops at the first
        message that it cannot have: pages not in memory, wrong bytes, a place past the end.
        """
        begin = index = len(found)
        with MAPS.lock:
            memory, now = self.memory, monotonic()
            if memory is None or not (now < self._look_at or self._has_lease(now)):
                return 0
            self.used = True
            seen, old = self._seen, now - TRUST_S
            try:
                is_checked = len(entries) >= NEAR_MESSAGES and self._is_near(flat, entries, now)
                for entry in entries:
                    place = 3 * entry
                    at = flat[place]
                    end = at + flat[place + 1]
                    if not is_checked:
                        trusted = seen[at >> WINDOW_SHIFT] >= old <= seen[(end - 1) >> WINDOW_SHIFT]
                        if not (trusted and end - at <= WINDOW_BYTES) and not self._are_there(at, end, now):
                            break
                    data = memory[at:end]
                    if checksum64(data) & LOW_32 != flat[place + 2]:
                        break
                    found[index] = data
                    index += 1
            except IndexError:  # past the end of the file
                pass
        return index - begin

    def has_pages(self, flat: Sequence[int], entries: Sequence[int]) -> bool:
        """Whether all pages of these messages are in memory, and may be copied. A miss is believed for a while."""
        with MAPS.lock:
            memory, now = self.memory, monotonic()
            if memory is None or not (now < self._look_at or self._has_lease(now)):
                return False
            try:
                for entry in entries:
                    at = flat[3 * entry]
                    window = at >> WINDOW_SHIFT
                    if self._missed[window] >= now - MISS_S:
                        return False
                    if not self._are_there(at, at + flat[3 * entry + 1], now):
                        return False
            except IndexError:  # past the end of the file
                return False
        return True

    def copied_pieces(self, view: memoryview, begins: Sequence[int], ends: Sequence[int]) -> bool:
        """Fill a buffer with some ranges, back to back; False where one of them cannot be had."""
        with MAPS.lock:
            memory, now = self.memory, monotonic()
            if memory is None or not (now < self._look_at or self._has_lease(now)):
                return False
            self.used = True
            seen, old, at = self._seen, now - TRUST_S, 0
            try:
                for begin, end in zip(begins, ends, strict=True):
                    trusted = seen[begin >> WINDOW_SHIFT] >= old <= seen[(end - 1) >> WINDOW_SHIFT]
                    if not (trusted and end - begin <= WINDOW_BYTES) and not self._are_there(begin, end, now):
                        return False
                    following = at + end - begin
                    view[at:following] = memory[begin:end]
                    at = following
            except (IndexError, ValueError):  # past the end of the file
                return False
        return True

    def trust(self, window: int, now: float) -> bool:
        """Whether bytes that begin in a window, and are no longer than one, may be copied; `near` notes it.

        The caller has the lock. Raises IndexError past the end of the file.
        """
        memory, seen = self.memory, self._seen
        if memory is None or not (now < self._look_at or self._has_lease(now)):
            return False
        self.used = True
        after = min(window + 1, len(seen) - 1)
        if not self._are_there(window << WINDOW_SHIFT, (after + 1) << WINDOW_SHIFT, now):
            return False
        self.near[window] = min(seen[window], seen[after])
        return True

    def _is_near(self, flat: Sequence[int], entries: Sequence[int], now: float) -> bool:
        """Whether the messages lie so close together that their windows are looked at once, and are all there."""
        first, last = 3 * entries[0], 3 * entries[-1]
        begin, end = flat[first], flat[last] + flat[last + 1]
        return end - begin <= len(entries) * (WINDOW_BYTES // NEAR_MESSAGES) and self._are_there(begin, end, now)

    def _are_there(self, begin: int, end: int, now: float) -> bool:
        """Whether all pages of these bytes' windows are in memory. Raises IndexError past the end of the file."""
        seen, missed, old, lately = self._seen, self._missed, now - TRUST_S, now - AGAIN_S
        for window in range(begin >> WINDOW_SHIFT, ((end - 1) >> WINDOW_SHIFT) + 1):
            if seen[window] < old:
                if missed[window] >= lately:
                    return False
                if not self._is_resident(window):
                    missed[window] = now
                    return False
                seen[window] = now
        return True

    def _is_resident(self, window: int) -> bool:
        assert self.memory is not None
        at = window << WINDOW_SHIFT
        return self._lease.is_resident(at, min(WINDOW_BYTES, len(self.memory) - at))

    def _has_lease(self, now: float) -> bool:
        """Look whether the lease is whole; if not, copy nothing any more. The caller has the lock."""
        if self._lease.is_whole():
            self._look_at = now + LOOK_S
            return True
        self._forget()
        return False

    def _forget(self) -> None:
        """Copy nothing any more. The caller has the lock."""
        self.memory = None
        self.near = [0.0] * len(self.near)

    def is_wanted(self) -> bool:
        """Whether a program waits for the file: then nothing is copied any more. It goes on after `let_go`."""
        with MAPS.lock:
            return self.memory is None or not self._has_lease(monotonic())

    def was_used(self) -> bool:
        """Whether anything was copied since the last time that this was asked."""
        used, self.used = self.used, False
        return used

    def let_go(self) -> None:
        """Copy nothing any more, and give the lease back."""
        with MAPS.lock:
            self._forget()
            self._lease.give_back()

    def populate(self, position: int, size: int) -> bool:
        """Have the page cache and the mapping filled from a page on; False where that cannot be done so."""
        return self.memory is not None and self._lease.populate(position, size)
