"""Numbers the distinct texts of columns: equal texts get the same number, and other texts another one.

A text of n bytes is n / 8 words of 64 bits, the last one filled up with zeros. A hash of the words finds a known text
that may be the same, and all of the words and the length are compared with it: a hash alone decides nothing. All of
that is done for thousands of texts at once. Only texts that are not found so are looked up one by one, each distinct
one once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..format.arrays import Bools, Indexes, Int64s
from ..format.blobs import NONE, Buffer

MOST_TEXTS = 10_000  # remembered; then a new object begins
MOST_BYTES = 8 << 20
NO_TEXT = 0  # the number of a row without a text
_FEW = 32  # rows; so few are looked up one by one
_LONGEST_WORDS = 64  # longer texts are looked up one by one
_SLOT_BITS = 14
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
_FACTORS = np.random.default_rng(29).integers(0, 1 << 63, _LONGEST_WORDS + 2, np.uint64) * np.uint64(2) + np.uint64(1)
_TAILS = np.array([0xFFFFFFFFFFFFFFFF] + [(1 << 8 * size) - 1 for size in range(1, 8)], np.uint64)  # of n % 8 bytes


class TextNumbers:
    """Numbers texts from 1 on. One thread at a time.

    Invariants, also after an interrupt at any place:
        * the text of number n is `texts[n]`;
        * `_slots` has for a hash the number of a text with that hash, or NO_TEXT: a text need not be there;
        * a text whose length is in `_lengths` has its words in `_words`.

    Attributes:
        texts: the texts by their numbers; the first one is None, of rows without a text.
    """

    def __init__(self) -> None:
        self.texts: list[bytes | None] = [None]
        self._numbers: dict[bytes, int] = {}
        self._size_bytes = 0
        self._slots = np.empty(0, np.int32)  # made when it is needed
        self._lengths = np.full(64, NONE)  # of each text by number; NONE if its words are not kept
        self._begins = np.zeros(64, np.int64)  # of its words in `_words`
        self._words = np.zeros(1024, np.uint64)  # of all texts, and so many zeros that a look beyond a text is harmless
        self._end = 0  # of the words in use

    @property
    def is_full(self) -> bool:
        """Whether it is time to begin with another object."""
        return len(self.texts) > MOST_TEXTS or self._size_bytes > MOST_BYTES

    def number(self, text: bytes | None) -> int:
        """The number of one text."""
        if text is None:
            return NO_TEXT
        found = self._numbers.get(text)
        if found is None:
            found = len(self.texts)
            self.texts.append(text)
            self._size_bytes += len(text)
            self._numbers[text] = found
        return found

    def number_all(self, lengths: Int64s, data: Buffer) -> Int64s:
        """(n,) the number of each of the texts that lie back to back in `data`; a negative length is no text."""
        sizes = np.maximum(lengths, 0)
        ends = sizes.cumsum()
        begins = ends - sizes
        found = np.zeros(len(lengths), np.int64)
        alone = np.flatnonzero(lengths >= 0) if len(lengths) <= _FEW else self._together(lengths, begins, data, found)
        view = memoryview(data)
        for row, begin, end in zip(alone.tolist(), begins[alone].tolist(), ends[alone].tolist(), strict=True):
            found[row] = self.number(bytes(view[begin:end]))
        return found

    def _together(self, lengths: Int64s, begins: Int64s, data: Buffer, found: Int64s) -> Indexes:
        """Number the texts that are not too long. Returns the rows (m,) that are left."""
        if not len(self._slots):
            self._slots = np.zeros(1 << _SLOT_BITS, np.int32)
        plain = np.concatenate([np.frombuffer(data, np.uint8), np.zeros(8 * _LONGEST_WORDS, np.uint8)])
        counts = np.minimum((lengths + 7) >> 3, _LONGEST_WORDS + 1)
        first = int(counts[0])
        if 0 < first <= _LONGEST_WORDS and (counts == first).all():
            found[:] = self._of_words(first, lengths, begins, plain)
            return np.empty(0, np.intp)
        for count in np.flatnonzero(np.bincount(counts))[1:].tolist():
            if count <= _LONGEST_WORDS:
                rows = np.flatnonzero(counts == count)
                found[rows] = self._of_words(count, lengths[rows], begins[rows], plain)
        return np.flatnonzero((lengths == 0) | (counts > _LONGEST_WORDS))

    def _of_words(self, count: int, lengths: Int64s, begins: Int64s, plain: Bytes) -> Int64s:
        """(n,) the numbers of texts of `count` words each."""
        rows = np.ndarray((len(plain) - 8 * count + 1,), f"V{8 * count}", plain.data, strides=(1,))
        words = rows[begins].view("<u8").reshape(-1, count)  # a copy
        words[:, -1] &= _TAILS.take(lengths & 7)
        hashes = words @ _FACTORS[:count] + lengths.astype(np.uint64) * _FACTORS[-1]
        hashes ^= hashes >> np.uint64(32)
        hashes *= _FACTORS[-2]
        slots = (hashes >> np.uint64(64 - _SLOT_BITS)).astype(np.intp)
        found: Int64s = self._slots.take(slots).astype(np.int64)
        if self._are_all(found, lengths, words):
            return found
        new = np.flatnonzero(~self._are(found, lengths, words))
        found[new] = self._look_up(plain, begins[new], lengths[new], words[new], hashes[new], slots[new])
        return found

    def _are_all(self, numbers: Int64s, lengths: Int64s, words: Words) -> bool:
        """Whether `_are` is true for each row; quicker than asking for each."""
        if not (self._lengths.take(numbers) == lengths).all():
            return False
        count = words.shape[1]
        rows = np.ndarray((len(self._words) - count + 1,), f"V{8 * count}", self._words.data, strides=(8,))
        known = rows[self._begins.take(numbers)].view(np.uint64).reshape(-1, count)
        return bool((known == words).all())

    def _are(self, numbers: Int64s, lengths: Int64s, words: Words) -> Bools:
        """(n,) whether the texts of these numbers have these lengths and words (n, m)."""
        same: Bools = self._lengths.take(numbers) == lengths
        begins = self._begins.take(numbers)
        for at in range(words.shape[1]):
            same &= self._words.take(begins + at) == words[:, at]
        return same

    def _look_up(
        self, plain: Bytes, begins: Int64s, lengths: Int64s, words: Words, hashes: Words, slots: Indexes
    ) -> Int64s:
        """(n,) the numbers of texts that were not found by their slots. They take over their slots."""
        _, firsts, which = np.unique(hashes, return_index=True, return_inverse=True)
        texts = _texts(plain, begins[firsts], lengths[firsts])
        numbers = np.array([self.number(text) for text in texts], np.int64)
        self._keep_words(numbers, lengths[firsts], words[firsts])
        self._slots[slots[firsts]] = numbers
        found: Int64s = numbers[which]
        others = np.flatnonzero(~self._are(found, lengths, words))  # other texts with the same hash
        found[others] = [self.number(text) for text in _texts(plain, begins[others], lengths[others])]
        return found

    def _keep_words(self, numbers: Int64s, lengths: Int64s, words: Words) -> None:
        """Keep the words (n, m) of texts, so that they can be found by these."""
        more = len(self.texts) - len(self._lengths)
        if more > 0:
            self._begins = np.concatenate([self._begins, np.zeros(len(self._lengths) + more, np.int64)])
            self._lengths = np.concatenate([self._lengths, np.full(len(self._lengths) + more, NONE)])
        new = np.flatnonzero(self._lengths.take(numbers) == NONE)
        count, end = words.shape[1], self._end + len(new) * words.shape[1]
        if end + _LONGEST_WORDS > len(self._words):
            self._words = np.concatenate([self._words, np.zeros(end + _LONGEST_WORDS, np.uint64)])
        begin, self._end = self._end, end  # first: after an interrupt nothing else is written there
        self._words[begin:end] = words[new].ravel()
        self._begins[numbers[new]] = np.arange(begin, end, count)
        self._lengths[numbers[new]] = lengths[new]  # last: from here on they are found


def _texts(plain: Bytes, begins: Int64s, lengths: Int64s) -> list[bytes]:
    ends = (begins + lengths).tolist()
    return [plain.data[begin:end].tobytes() for begin, end in zip(begins.tolist(), ends, strict=True)]
