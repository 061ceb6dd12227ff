"""The input of the cache: the columns of one or more frames, over one buffer of payloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Batch:
    """n messages in columns, each of shape (n,).

    Attributes:
        streams: int64, small numbers from 0 on (columns are indexed by them).
        offsets: int64; within a batch, those of one stream ascend.
        lengths: int64, bytes.
        starts: int64, where each payload begins in `payload`.
        tags: int64, 0 to 2**32 - 1: a value that comes back with a hit, such as a checksum.
        payload: anything with the buffer protocol, as flat bytes.
    """

    streams: Ints
    offsets: Ints
    lengths: Ints
    starts: Ints
    tags: Ints
    payload: memoryview

    @classmethod
    def of(
        cls,
        streams: npt.ArrayLike,
        offsets: npt.ArrayLike,
        lengths: npt.ArrayLike,
        payload: bytes | bytearray | memoryview,
        starts: npt.ArrayLike | None = None,
        tags: npt.ArrayLike | None = None,
    ) -> Batch:
        """A batch of anything that numpy can make columns of. Without `starts` the payloads lie back to back."""
        sizes = np.asarray(lengths, np.int64)
        ends = sizes.cumsum()
        at = ends - sizes if starts is None else np.asarray(starts, np.int64)
        batch = cls(
            np.asarray(streams, np.int64),
            np.asarray(offsets, np.int64),
            sizes,
            at,
            np.zeros(len(sizes), np.int64) if tags is None else np.asarray(tags, np.int64),
            memoryview(payload).cast("B"),
        )
        assert len(batch.streams) == len(batch.offsets) == len(sizes) == len(at) == len(batch.tags)
        if len(sizes):
            assert int(batch.tags.min()) >= 0 and int(batch.tags.max()) < 1 << 32, "a tag has 32 bits"
            assert int(sizes.min()) >= 0 and int(at.min()) >= 0 and int(batch.streams.min()) >= 0
            assert int((at + sizes).max()) <= len(batch.payload), "a message lies outside of the payload buffer"
        return batch

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, which: slice | Mask | Ints) -> Batch:
        """Some of the messages, over the same buffer."""
        return Batch(
            self.streams[which],
            self.offsets[which],
            self.lengths[which],
            self.starts[which],
            self.tags[which],
            self.payload,
        )

    def cuts(self, limit: int, weights: Ints) -> Iterator[slice]:
        """Yield slices in order, each of a weight of at most `limit`, or of one message."""
        ends = weights.cumsum()
        begin, count = 0, len(self)
        while begin < count:
            before = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(ends.searchsorted(before + limit, side="right")))
            yield slice(begin, end)
            begin = end


def grown(column: Ints, index: int, fill: int) -> Ints:
    """The column, or a longer copy if it has no row `index`; new rows are `fill`."""
    size = len(column)
    if index < size:
        return column
    return np.append(column, np.full(max(index + 1 - size, size), fill, np.int64))


def first_of_each(streams: Ints) -> Mask:
    """(n,) whether each is the first of its stream; `streams` are sorted, and at least one."""
    first = np.empty(len(streams), np.bool_)
    first[0] = True
    np.not_equal(streams[1:], streams[:-1], out=first[1:])
    return first


@dataclass(frozen=True, slots=True)
class Runs:
    """A batch sorted by stream, so that the messages of each stream are neighbours: a *run*.

    Attributes:
        batch: sorted, offsets ascending in each run.
        order: (n,) the row of each message before sorting.
        begins: (runs + 1,) index of each run's first message, and n.
        streams: (runs,) stream of each run.
        run_of: (n,) the run of each message.
    """

    batch: Batch
    order: Ints
    begins: Ints
    streams: Ints
    run_of: Ints

    @classmethod
    def of(cls, batch: Batch) -> Runs:
        """Sort a batch of at least one message."""
        order = batch.streams.argsort(kind="stable")
        batch = batch.part(order)
        first = first_of_each(batch.streams)
        inside = ~first[1:]
        assert bool((batch.offsets[1:] > batch.offsets[:-1])[inside].all()), "a stream's offsets ascend in a batch"
        begins = np.flatnonzero(first)
        return cls(batch, order, np.append(begins, len(batch)), batch.streams[begins], first.cumsum() - 1)

    def sums(self, column: Ints) -> Ints:
        """(runs,) the sum of a column over each run."""
        return np.add.reduceat(column, self.begins[:-1])

    def before(self, column: Ints) -> Ints:
        """(n,) the sum of a column over the messages before each one in its run."""
        total = column.cumsum() - column
        sums: Ints = total - total[self.begins[:-1]][self.run_of]
        return sums
