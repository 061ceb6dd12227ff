"""The request of a transaction that one frame of one lane cannot have: it is over several lanes, or large."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from ..errors import StoreError
from ..format.extras import Extras, ExtrasWithIds
from ..format.layout import MAX_FRAME_MESSAGES
from .atomic_group import AtomicGroup
from .message_ids import MOST_WITH_IDS, PendingIds, ids_of
from .queue import RequestQueue
from .request import Request
from .streams import Stream

Blocks = Sequence[int]  # of each message of a large transaction, the number of its block: see `BlockCutter`


class BlockCutter:
    """Cuts a large transaction into blocks of messages that follow each other. A frame has whole blocks.

    A block has at most `MOST_WITH_IDS` messages: each may have a record of ids beside it. Its messages have at most
    half the bytes of a frame; or it is one message.
    """

    def __init__(self, frame_bytes: int) -> None:
        self._most_bytes = frame_bytes // 2
        self._block = self._count = self._size = 0

    def add(self, sizes: Sequence[int]) -> list[int]:
        """The number of the block of each of the next messages; they have these sizes, in bytes."""
        found = []
        for size in sizes:
            if self._count and (self._count == MOST_WITH_IDS or self._size + size > self._most_bytes):
                self._block, self._count, self._size = self._block + 1, 0, 0
            self._count, self._size = self._count + 1, self._size + size
            found.append(self._block)
        return found


class JointGroup(AtomicGroup):
    """It goes to the queue of the rounds, and never to a lane's.

    Its answer comes when all of it is durable and shown in all of its lanes, or nothing ever will be.
    """

    __slots__ = ("_blocks", "_parts", "_queue")

    def __init__(
        self, queue: RequestQueue[Request], streams: list[Stream], datas: list[bytes],
        row_extras: Sequence[Extras | None], settle: Callable[[StoreError | None], None] | None, blocks: Blocks = (),
    ) -> None:  # fmt: skip
        """`blocks`: of a large one; none if a frame has room for all of it."""
        super().__init__(streams, datas, row_extras, settle)
        self._queue = queue
        self._blocks = blocks
        self._parts: dict[int, list[JointFrame]] = {}

    @property
    def queue(self) -> RequestQueue[Request]:
        return self._queue

    @property
    def is_large(self) -> bool:
        """Whether it may need several frames in a lane."""
        return len(self._blocks) > 0

    def cut(self, frame_bytes: int) -> dict[int, list[JointFrame]]:
        """Its frames in each lane, by the lane's index: the same ones each time, as nothing is built of a round that
        found no space. `frame_bytes`: the payloads that a frame of several blocks has at the most.
        """
        if not self._parts:
            cut: dict[int, list[int]] = defaultdict(list)
            for row, stream in enumerate(self.streams):
                cut[stream.lane.index].append(row)
            frame_of = {lane: self._frames(rows, frame_bytes) for lane, rows in cut.items()}
            ids: dict[tuple[int, int], list[PendingIds]] = defaultdict(list)
            for one in ids_of(self):
                assert isinstance(one, PendingIds), "of a transaction"
                lane, block = one.target.stream.lane.index, self._blocks[one.rows[0]] if self._blocks else 0
                ids[lane, frame_of[lane][block]].append(one)
            self._parts = {
                lane: [
                    JointFrame(mine, self._of(mine, ids[lane, at])) for at, mine in enumerate(self._by(frames, rows))
                ]
                for (lane, rows), frames in zip(cut.items(), frame_of.values(), strict=True)
            }
        return self._parts

    def _frames(self, rows: Sequence[int], frame_bytes: int) -> dict[int, int]:
        """In which frame of their lane each block's messages are; `rows` are all of these. As few frames as they need.

        The messages of a block may each have a record of ids beside them.
        """
        if not self._blocks:
            return {0: 0}
        frames: dict[int, int] = {}
        frame = count = size = 0
        for block, mine in groupby(rows, self._blocks.__getitem__):
            sizes = [self.sizes[row] + self._extra_bytes(row) for row in mine]
            more, more_bytes = (1 if self.extras is None else 2) * len(sizes), sum(sizes)
            if frames and (count + more > MAX_FRAME_MESSAGES or size + more_bytes > frame_bytes):
                frame, count, size = frame + 1, 0, 0
            frames[block], count, size = frame, count + more, size + more_bytes
        return frames

    def _by(self, frames: dict[int, int], rows: list[int]) -> list[list[int]]:
        """The rows of each frame of a lane."""
        if not self._blocks:
            return [rows]
        return [list(mine) for _, mine in groupby(rows, lambda row: frames[self._blocks[row]])]

    def _extra_bytes(self, row: int) -> int:
        extras = self.row_extras[row] if self.row_extras else None
        return 0 if extras is None else extras.size_bytes

    def _of(self, rows: Sequence[int], ids: Sequence[PendingIds]) -> AtomicGroup:
        extras = [self.row_extras[row] for row in rows] if self.row_extras else []
        part = AtomicGroup([self.streams[row] for row in rows], [self.datas[row] for row in rows], extras, None)
        if ids:
            place = {row: at for at, row in enumerate(rows)}
            for one in ids:
                one.rows = [place[row] for row in one.rows]
            part.extras = ExtrasWithIds.of(None, ids)
        return part


def atomic_group(
    rounds: RequestQueue[Request] | None, streams: list[Stream], datas: list[bytes],
    extras: Sequence[Extras | None], settle: Callable[[StoreError | None], None] | None, ids: Sequence[PendingIds],
    blocks: Blocks = (),
) -> AtomicGroup:  # fmt: skip
    """The request of a transaction: a lane's, or one for `rounds` if it is large or its streams are in several lanes.

    `blocks`: of a large one.
    """
    if rounds is None or not (blocks or len({stream.lane for stream in streams}) > 1):
        request = AtomicGroup(streams, datas, extras, settle)
    else:
        request = JointGroup(rounds, streams, datas, extras, settle, blocks)
        for one in ids:  # before it is put
            one.queue = rounds
    if ids:
        request.extras = ExtrasWithIds.of(None, ids)
    return request


class JointFrame(NamedTuple):
    """The messages of one transaction in one frame: which of its rows they are, and their request there."""

    rows: list[int]
    request: AtomicGroup
