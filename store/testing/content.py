"""The bytes of one simulated file, twice: as the kernel has them, and as the device has them for certain."""

from __future__ import annotations

import weakref
from itertools import repeat

from .memory import SimulatedLease
from .survivors import BLOCK_BYTES, Survivors

ZERO = bytes(BLOCK_BYTES)

Versions = tuple[bytes, ...]


class Content:
    """A file's blocks and length, twice: as written, and as forced.

    Invariants:
        * a block that is neither in `unforced` nor in `doubtful` is the same written and forced;
        * `unforced[i]` are the states of block i since it was last forced, the oldest first; the last one is the
          written one. A force settles them;
        * `doubtful[i]` are states that a failed force dropped: the device may have them, and no later force
          settles that, as the kernel takes the block for clean. Only a new write of the block does;
        * `bad` are blocks that the device cannot read until they are written again;
        * a cut from outside is in `cuts` until the last of `leases` was given back.

    Blocks that are missing in a dict are zeros. `written` and `forced` may be shared with copies, and may be the same
    object: `_own` comes before every change of them.
    """

    __slots__ = (
        "_fingerprint", "_shared", "bad", "cuts", "doubtful", "forced", "forced_size", "leases", "reserved", "sharers",
        "size", "sizes", "unforced", "writers", "written",
    )  # fmt: skip

    def __init__(self) -> None:
        self.written: dict[int, bytes] = {}
        self.forced: dict[int, bytes] = {}
        self.unforced: dict[int, Versions] = {}
        self.doubtful: dict[int, Versions] = {}
        self.size = 0
        self.forced_size = 0
        self.sizes: tuple[int, ...] = ()  # since the last force, oldest first
        self.reserved = 0
        self.sharers = 0  # open files that keep it from being used again
        self.writers = 0  # open files that may write to it
        self.bad: frozenset[int] = frozenset()
        self.cuts: tuple[int, ...] = ()
        self.leases: weakref.WeakSet[SimulatedLease] = weakref.WeakSet()
        self._shared = False
        self._fingerprint: int | None = None  # of the written bytes; None after a change

    @classmethod
    def of(cls, data: bytes) -> Content:
        """A forced file with these bytes."""
        made = cls()
        if data:
            made.write(0, data)
        made.force()
        return made

    # -- the kernel's state ---------------------------------------------------------------------------

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes as written; fewer only at the end."""
        end = min(position + size, self.size)
        if end <= position:
            return b""
        first, skip = divmod(position, BLOCK_BYTES)
        blocks = range(first, (end - 1) // BLOCK_BYTES + 1)
        whole = b"".join(map(self.written.get, blocks, repeat(ZERO)))
        return whole if len(whole) == end - position else whole[skip : skip + end - position]

    def data_from(self, position: int) -> int:
        """The first byte from `position` on in a block that was ever written or is bad; `size` where there is none."""
        return self._first(position, is_data=True)

    def hole_from(self, position: int) -> int:
        """The first byte from `position` on in a block that was never written and can be read; `size` where none is."""
        return self._first(position, is_data=False)

    def _first(self, position: int, *, is_data: bool) -> int:
        for index in range(position // BLOCK_BYTES, -(-self.size // BLOCK_BYTES)):
            if (index in self.written or index in self.bad) is is_data:
                return max(position, index * BLOCK_BYTES)
        return max(position, self.size)

    def is_bad(self, begin: int, end: int) -> bool:
        """Whether the device cannot read one of these bytes."""
        return bool(self.bad) and not self.bad.isdisjoint(range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)))

    def can_read(self, position: int, size: int) -> bool:
        """Whether the file has all of a range, and the device can read it."""
        return position < position + size <= self.size and not self.is_bad(position, position + size)

    def spoil(self, position: int) -> None:
        """Make a block unreadable for the device."""
        self.bad |= {position // BLOCK_BYTES}
        self._fingerprint = None

    def cut(self, size: int) -> bool:
        """Another program cuts the file; False if it waits for a lease."""
        self.ask_for()
        if self.leases:
            self.cuts = (*self.cuts, size)
            return False
        self.truncate(min(size, self.size))
        self.force()
        return True

    def ask_for(self) -> None:
        """Another object wants to write to the file: holders of leases are told."""
        for lease in list(self.leases):
            lease.ask_for()

    def given_back(self, lease: SimulatedLease) -> None:
        """Remove a lease. After the last one, make the cuts that waited for it."""
        self.leases.discard(lease)
        if self.leases:
            return
        cuts, self.cuts = self.cuts, ()
        for size in cuts:
            self.cut(size)

    def write(self, position: int, data: bytes) -> None:
        """Write without a force."""
        end = position + len(data)
        first, last = position // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        if self.bad:
            self.bad -= set(range(first, last + 1))
        for index in range(first, last + 1):
            at = index * BLOCK_BYTES - position
            if at >= 0 and at + BLOCK_BYTES <= len(data):
                block = data[at : at + BLOCK_BYTES]
            else:
                old = self.written.get(index, ZERO)
                part = data[max(0, at) : at + BLOCK_BYTES]
                begin = max(0, -at)
                block = old[:begin] + part + old[begin + len(part) :]
            self._put(index, ZERO if block == ZERO else block)
        if end > self.size:
            self._resize(end)

    def endanger(self, begin: int, end: int, unit_bytes: int) -> None:
        """What lies beside a range in the device's own blocks may be lost until it is forced again."""
        low, high = begin // unit_bytes * unit_bytes, -(-end // unit_bytes) * unit_bytes
        for at, size in ((low, begin - low), (end, min(high, self.size) - end)):
            if size > 0:
                whole = self.read(at, size)
                self.write(at, bytes(byte ^ 0xFF for byte in whole))
                self.write(at, whole)

    def _own(self) -> None:
        """Copy the blocks if they are shared, so that they can be changed."""
        if self._shared:
            self.written, self.forced, self._shared = dict(self.written), dict(self.forced), False

    def _put(self, index: int, block: bytes) -> None:
        self._own()
        self.written[index] = block
        self.unforced[index] = (*self.unforced.get(index, ()), block)
        self._fingerprint = None

    def _resize(self, size: int) -> None:
        self.size = size
        self.sizes = (*self.sizes, size)
        self._fingerprint = None

    def reserve(self, size: int) -> None:
        """Take space; the file grows to `size` if it is shorter."""
        self.reserved = max(self.reserved, size)
        if size > self.size:
            self._resize(size)

    def truncate(self, size: int) -> None:
        """Cut or grow. Bytes after a cut are zeros if the file grows again."""
        for index in [index for index in self.written if (index + 1) * BLOCK_BYTES > size]:
            kept = max(0, size - index * BLOCK_BYTES)
            block = self.written[index][:kept].ljust(BLOCK_BYTES, b"\0")
            if block != self.written[index]:
                self._put(index, ZERO if not kept else block)
        self.reserved = min(self.reserved, size)
        if size != self.size:
            self._resize(size)

    # -- the device's state ---------------------------------------------------------------------------

    def force(self) -> None:
        """Bring all written bytes, and the length, to the device."""
        if self.unforced:
            self._own()
            for index in self.unforced:
                self.forced[index] = self.written[index]
                self.doubtful.pop(index, None)
            self.unforced = {}
        self._force_size()

    def force_range(self, position: int, end: int) -> None:
        """Bring only this range to the device, and the length if the range needs it.

        The file system writes whole blocks from its cache, but promises no more than the range: the rest of
        a block at its edge stays in doubt.
        """
        self._own()
        for index in range(position // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1):
            if index not in self.unforced:
                continue
            begin, stop = index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES
            new = self.written[index]
            if begin < position or stop > end:
                old = self.forced.get(index, ZERO)
                low, high = max(0, position - begin), min(BLOCK_BYTES, end - begin)
                mixed = old[:low] + new[low:high] + old[high:]
                self.forced[index] = mixed
                self.unforced[index] = tuple(
                    version[:low] + new[low:high] + version[high:] for version in self.unforced[index]
                )
                if mixed != new:
                    continue
            self.forced[index] = new
            del self.unforced[index]
            self.doubtful.pop(index, None)
        if end > self.forced_size:
            self._force_size()

    def _force_size(self) -> None:
        self.forced_size = self.size
        self.sizes = ()

    def fail_force(self) -> None:
        """A force failed: the kernel takes its blocks for clean, and the device may have any of their states."""
        for index, versions in self.unforced.items():
            self.doubtful[index] = (*self.doubtful.get(index, ()), *versions)
        self.unforced = {}

    def flip(self, position: int, bit: int) -> None:
        """Change one bit of the written and of the forced bytes."""
        index, at = divmod(position, BLOCK_BYTES)
        self._own()
        for blocks in (self.written, self.forced):
            block = bytearray(blocks.get(index, ZERO))
            block[at] ^= 1 << bit
            blocks[index] = bytes(block)
        self._fingerprint = None

    @property
    def unforced_blocks(self) -> int:
        """The number of blocks that a power cut decides about."""
        return len(self.unforced.keys() | self.doubtful.keys())

    @property
    def is_forced(self) -> bool:
        """True if a power cut takes nothing."""
        return not (self.unforced or self.doubtful or self.sizes)

    @property
    def allocated_bytes(self) -> int:
        """The space that the file takes."""
        return max(self.reserved, self.size)

    def survive(self, survivors: Survivors) -> Content:
        """The file as a power cut leaves it, forced."""
        if self.is_forced:
            return self.copy()
        found = Content()
        found.bad = self.bad
        blocks = dict(self.forced)
        for index in sorted({*self.unforced, *self.doubtful}):
            unforced = self.doubtful.get(index, ()) + self.unforced.get(index, ())
            blocks[index] = survivors.block(blocks.get(index, ZERO), unforced)
        size = survivors.size(self.forced_size, self.sizes) if self.sizes else self.forced_size
        found.size = found.forced_size = size
        found.reserved = min(self.reserved, size)
        if size != self.size or self.sizes:
            blocks = {index: _cut(block, size - index * BLOCK_BYTES) for index, block in blocks.items()}
        found.written = found.forced = blocks
        found._shared = True
        return found

    def fingerprint(self) -> int:
        """A number that is equal for files with the same written bytes; within one process only."""
        if self._fingerprint is None:
            blocks = frozenset([(index, block) for index, block in self.written.items() if block is not ZERO])
            self._fingerprint = hash((self.size, blocks, self.bad))
        return self._fingerprint

    def copy(self) -> Content:
        """A copy in this state, which can be changed independently."""
        twin = Content()
        twin.bad = self.bad
        twin.written, twin.forced = self.written, self.forced
        twin._shared = self._shared = True
        twin.unforced, twin.doubtful = dict(self.unforced), dict(self.doubtful)
        twin.size, twin.forced_size = self.size, self.forced_size
        twin.sizes, twin.reserved = self.sizes, self.reserved
        twin._fingerprint = self._fingerprint
        return twin


def _cut(block: bytes, kept: int) -> bytes:
    """A block of a file that ends `kept` bytes after the block's start."""
    if kept >= BLOCK_BYTES:
        return block
    return block[:kept].ljust(BLOCK_BYTES, b"\0") if kept > 0 else ZERO
