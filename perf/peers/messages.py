"""The messages that all peers get: number n of a queue is the same bytes in every run of a seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ..workload.checker import WrongResult
from ..workload.contest import HEADER, HEADER_BYTES, Content, Sizes
from .peer import Chunk, Row

DRAWN = 4096  # sizes, which repeat


class Messages:
    """Makes messages and compares what came back."""

    def __init__(self, seed: int, sizes: Sizes) -> None:
        self.content = Content(seed, sizes.high)
        self._sizes: list[int] = sizes.draw(np.random.default_rng([seed, 9]), DRAWN).tolist()
        self.mean_bytes = round(sizes.mean)
        self.varies = sizes.low != sizes.high
        self._made_of = seed, sizes

    def __reduce__(self) -> tuple[type[Messages], tuple[int, Sizes]]:
        """For another process: made again there."""
        return Messages, self._made_of

    def _size(self, queue: int, number: int) -> int:
        return self._sizes[(31 * queue + number) % DRAWN]

    def make(self, queue: int, number: int) -> bytes:
        """One message."""
        return self.content.make(queue, number, self._size(queue, number))

    def rows(self, queues: int, first: int = 0) -> Iterator[Row]:
        """All messages, the queues by turns, from the message `first` on; without an end."""
        index = first
        while True:
            number, queue = divmod(index, queues)
            yield queue, number, self.make(queue, number)
            index += 1

    def shares(self, count: int, queues: int) -> dict[int, int]:
        """Queue -> messages, of the first `count` of `rows`."""
        return {queue: (count - queue + queues - 1) // queues for queue in range(min(count, queues))}

    def bytes_of(self, written: dict[int, int]) -> int:
        """The bytes of these messages."""
        return sum(self._size(queue, number) for queue, count in written.items() for number in range(count))

    def matches(self, data: bytes, queue: int, number: int) -> bool:
        """Whether these are the bytes of that message."""
        return queue >= 0 and data == self.make(queue, number)

    def check(self, chunks: Iterable[Chunk], written: dict[int, int], *, at_least: bool = False) -> int:
        """Compare all messages; `written`: queue -> messages. Returns their number. Raises WrongResult.

        `at_least`: a process was killed while it wrote, so that messages after those of `written` may be there.
        """
        seen: dict[int, int] = {}
        for chunk in chunks:
            for data in chunk:
                queue = HEADER.unpack_from(data)[0] if len(data) >= HEADER_BYTES else -1
                number = seen.get(queue, 0)
                if not self.matches(data, queue, number):
                    raise WrongResult(f"queue {queue}: message {number} is not what was written")
                seen[queue] = number + 1
        for queue in seen.keys() | written.keys():
            found, expected = seen.get(queue, 0), written.get(queue, 0)
            if found != expected and not (at_least and found > expected):
                raise WrongResult(f"queue {queue} holds {found} messages, acknowledged were {expected}")
        return sum(seen.values())
