"""Ids whose messages are durable, in columns: 52 to 104 bytes an id, and no object of Python for any of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from ..format.arrays import Int64s
from ..format.message_ids import FEW, QueueIds

CHAINS = 2  # for each id that there is room for: so most new ids find an empty chain
LEAST = 64  # ids that there is room for at the least
MOST_ROOM = 8  # times the room that is needed: a larger ring becomes smaller
NONE = -1  # no id, no offset
_HALVES = struct.Struct("<qq")  # of a digest


class DurableIds:
    """Which ids there are, with queue and offset of their messages. The oldest leave first. Not safe for threads.

    Ids are numbered in the order in which they came. The columns are a ring: id `n` is in row `n % size`. The ids whose
    digests begin alike are a chain: `_newest` has the number of its newest, and `_before` leads from each to the one
    before. Numbers fall along a chain, so it is over at the first one that is less than `begin`. Chains are short:
    there are `CHAINS` for each id that there is room for, and digests spread evenly over them. Nothing is done for an
    id that leaves: only `begin` goes on.

    Invariants:
        * the ids from `begin` to `end` are there, and no others;
        * the size is a power of two, and at most `MOST_ROOM` times what there was when the last ids came, or `LEAST`.

    Attributes:
        begin, end: the numbers of the oldest id, and of the next one to come.
    """

    def __init__(self) -> None:
        self.begin = self.end = 0
        self._is_whole = True  # False where an interrupt has ended `add`: its ids are in some chains
        self._make(LEAST)

    def _make(self, size: int) -> None:
        self._mask = size - 1
        self._heads = np.empty(size, np.int64)  # of the digests: their first eight bytes
        self._rests = np.empty(size, np.int64)
        self._queue_ids = np.empty(size, np.uint32)
        self._offsets = np.empty(size, np.int64)
        self._before = np.empty(size, np.int64)
        self._newest = np.full(CHAINS * size, NONE, np.int64)
        self._chains = CHAINS * size - 1
        columns = self._heads, self._rests, self._queue_ids, self._offsets, self._before, self._newest
        self._each = tuple([column.data for column in columns])  # an element of these costs a third of an array's

    def __len__(self) -> int:
        return self.end - self.begin

    def find(self, digest: bytes) -> tuple[int, int] | None:
        """The queue and the offset of an id's message; None if the id is not there."""
        head, rest = _HALVES.unpack(digest)
        row = self._row_from(self._each[-1][head & self._chains], head, rest)
        return None if row < 0 else (self._each[2][row], self._each[3][row])

    def _row_from(self, number: int, head: int, rest: int) -> int:
        """The row of an id, in the chain that begins with this number; `NONE` if it is not there."""
        heads, rests, _, _, before, _ = self._each
        mask, begin = self._mask, self.begin
        while number >= begin:
            row: int = number & mask
            if heads[row] == head and rests[row] == rest:
                return row
            number = before[row]
        return NONE

    def offsets_of(self, digests: Sequence[bytes]) -> list[int] | None:
        """The offset of each id's message, `NONE` where an id is not there; None if none is."""
        if len(digests) <= FEW:
            few = [self.find(digest) for digest in digests]
            return [NONE if one is None else one[1] for one in few] if any(few) else None
        many = self.find_all(b"".join(digests))
        return None if many is None else many[1].tolist()

    def find_all(self, packed: bytes) -> tuple[Int64s, Int64s] | None:
        """Queues and offsets of some ids' messages, int64 (n) each, `NONE` where an id is not there; None if none is.

        `packed` has the digests, one after the other.
        """
        heads, rests = _columns(packed)
        mask, begin = self._mask, self.begin
        found: list[tuple[Int64s, Int64s]] = []
        numbers = self._newest.take(heads & self._chains)  # `take` takes half the time of brackets
        asked = (numbers >= begin).nonzero()[0]
        numbers = numbers.take(asked)
        while len(asked) > FEW:
            rows = numbers & mask
            is_like = self._heads.take(rows) == heads.take(asked)
            if is_like.any():
                like, there = asked[is_like], rows[is_like]
                is_it = self._rests[there] == rests[like]
                if is_it.any():
                    found.append((like[is_it], there[is_it]))
            numbers = self._before.take(rows)
            left = (numbers >= begin).nonzero()[0]
            asked, numbers = asked.take(left), numbers.take(left)
        few = [
            self._row_from(*one)
            for one in zip(numbers.tolist(), heads[asked].tolist(), rests[asked].tolist(), strict=True)
        ]
        if any([row >= 0 for row in few]):
            rows = np.array(few)
            found.append((asked[rows >= 0], rows[rows >= 0]))
        if not found:
            return None
        queue_ids, offsets = np.full(len(heads), NONE), np.full(len(heads), NONE)
        for some, rows in found:
            queue_ids[some], offsets[some] = self._queue_ids[rows], self._offsets[rows]
        return queue_ids, offsets

    def add(self, packed: bytes, queue_ids: QueueIds, offsets: Sequence[int] | Int64s) -> None:
        """Ids have become durable that are not there. They are all different, the oldest first."""
        count = len(offsets)
        needed = len(self) + count
        if not self._is_whole or needed > self._mask + 1 or self._mask + 1 > max(MOST_ROOM * needed, LEAST):
            self._remake(max(needed, LEAST))
        self._is_whole = False
        if count <= FEW:
            self._add_few(packed, queue_ids, offsets)
        else:
            heads, rests = _columns(packed)
            numbers = np.arange(self.end, self.end + count)
            rows = self._rows(self.end, count)
            self._heads[rows], self._rests[rows] = heads, rests
            self._queue_ids[rows], self._offsets[rows] = queue_ids, offsets
            self._chain(numbers, heads)
        self.end += count
        self._is_whole = True

    def _add_few(self, packed: bytes, queue_ids: QueueIds, offsets: Sequence[int] | Int64s) -> None:
        heads, rests, queues, all_offsets, before, newest = self._each
        number, mask = self.end, self._mask
        for (head, rest), queue_id, offset in zip(_HALVES.iter_unpack(packed), queue_ids, offsets, strict=True):
            row, chain = number & mask, head & self._chains
            heads[row], rests[row], queues[row], all_offsets[row] = head, rest, queue_id, offset
            before[row] = newest[chain]
            newest[chain] = number
            number += 1

    def _rows(self, first: int, count: int) -> slice | Int64s:
        """The rows of ids that follow each other."""
        row = first & self._mask
        if row + count <= self._mask + 1:
            return slice(row, row + count)
        return np.arange(first, first + count) & self._mask

    def _chain(self, numbers: Int64s, heads: Int64s) -> None:
        """Put ids into their chains. Of several ids of one chain the oldest comes first.

        A pass puts in one id of each chain. There are few, as digests spread evenly over the chains.
        """
        newest, mask = self._newest, self._mask
        chains = heads & self._chains
        while True:
            self._before[numbers & mask] = newest[chains]
            newest[chains[::-1]] = numbers[::-1]  # of several ids of one chain the last is assigned, the oldest
            left = np.flatnonzero(newest[chains] != numbers)
            numbers, chains = numbers[left], chains[left]
            if len(left) <= FEW:
                break
        each_before, each_newest = self._each[-2:]
        for number, chain in zip(numbers.tolist(), chains.tolist(), strict=True):
            each_before[number & mask], each_newest[chain] = each_newest[chain], number

    def _remake(self, needed: int) -> None:
        """Have a ring with room for so many ids, and the chains new."""
        count = len(self)
        rows = self._rows(self.begin, count)
        kept = [column[rows] for column in (self._heads, self._rests, self._queue_ids, self._offsets)]
        self._make(1 << (needed - 1).bit_length())
        rows = self._rows(self.begin, count)
        self._heads[rows], self._rests[rows], self._queue_ids[rows], self._offsets[rows] = kept
        self._chain(np.arange(self.begin, self.end), self._heads[rows])


def _columns(packed: bytes) -> tuple[Int64s, Int64s]:
    halves = np.frombuffer(packed, "<i8")
    return halves[::2], halves[1::2]
