"""The commit of a transaction: its messages and acknowledgements are one request, stored as a whole or not at all.

A small one is one frame in each of its lanes. A large one is cut into blocks of messages, of which each lane's frames
are made: see `log.joint_group`. It is in memory as a whole, so it has at most `MOST_MESSAGES` and `MOST_BYTES`: of the
messages, of their ids, and of the records of acknowledgements. Records of ids are the store's own, and do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from ..errors import MessageTooLarge, StoreError
from ..format.arrays import Int64s
from ..format.extras import Extras
from ..format.layout import MAX_FRAME_MESSAGES
from ..format.message_ids import ID_BYTES
from ..log.atomic_group import AtomicGroup
from ..log.joint_group import BlockCutter, Blocks
from ..log.message_ids import MOST_WITH_IDS, RECORD_COST_BYTES
from ..log.request import Request
from ..log.streams import Stream
from .acknowledging import Acknowledging
from .joint_ids import JointIds
from .parts import Appending

ACK_BYTES = 40  # of a record, at the most: for one message, and for its head
MOST_MESSAGES = 1 << 20
MOST_BYTES = 1 << 30


class PendingMessages:
    """Checked messages that are not appended yet, in columns.

    Attributes:
        names: (topic, queue id) of each.
        size_bytes: of all, with keys and properties.
        has_extras: some message has a delivery time, a key or properties.
        digests: of the message ids, None for a message without one.
        id_bytes: that these ids take.
    """

    __slots__ = ("datas", "digests", "extras", "has_extras", "id_bytes", "names", "size_bytes")

    def __init__(self) -> None:
        self.names: list[tuple[str, int]] = []
        self.datas: list[bytes] = []
        self.extras: list[Extras | None] = []
        self.digests: list[bytes | None] = []
        self.size_bytes = self.id_bytes = 0
        self.has_extras = False

    def add(
        self, topic: str, queue_id: int, data: bytes, extras: Extras | None, digest: bytes | None = None
    ) -> None:  # fmt: skip
        """Add one. Raises MessageTooLarge."""
        size, id_bytes = len(data), 0 if digest is None else ID_BYTES
        if extras is not None:
            size += extras.size_bytes
        if len(self.datas) >= MOST_MESSAGES or self.size_bytes + self.id_bytes + size + id_bytes > MOST_BYTES:
            self.check_room(1, size + id_bytes)  # raises
        self.digests.append(digest)
        self.names.append((topic, queue_id))
        self.datas.append(data)
        self.extras.append(extras)
        self.size_bytes += size
        self.id_bytes += id_bytes
        if extras is not None:
            self.has_extras = True

    def check_room(self, count: int, size_bytes: int) -> None:
        """Raises MessageTooLarge if there is no room for so many more messages, or bytes, with those of ids."""
        count, size = len(self.datas) + count, self.size_bytes + self.id_bytes + size_bytes
        if count > MOST_MESSAGES or size > MOST_BYTES:
            raise _too_large(f"{count} messages and {size} bytes")

    def only(self, rows: Collection[int]) -> PendingMessages:
        """Some of them, without ids."""
        found = PendingMessages()
        for row in rows:
            found.add(*self.names[row], self.datas[row], self.extras[row])
        return found

    @property
    def sizes(self) -> list[int]:
        """The bytes of each, with keys and properties."""
        pairs = zip(self.datas, self.extras, strict=True)
        return [len(data) + (0 if extras is None else extras.size_bytes) for data, extras in pairs]


class Committing:
    """One commit. Its steps: `admit_ids`; `hand_over`; the request's answer settles the acknowledgements;
    `compact_in_time`.

    Invariant: once a message is ACKED by it, the outcome of its request, or the lack of one, settles it.
    """

    __slots__ = ("_all", "_all_blocks", "_appender", "_blocks", "_cutter", "_find", "_ids", "_joints", "_messages")

    def __init__(
        self, appender: Appending, messages: PendingMessages, receipts: Mapping[Acknowledging, Collection[int]],
        *, are_again: bool = False, ids: JointIds | None = None,
    ) -> None:  # fmt: skip
        """`receipts`: the messages to acknowledge, by subscription. `are_again`: the store has had these messages.
        `ids`: of the messages, if some have one.
        """
        self._appender = appender
        self._find = appender.find_again if are_again else appender.find_or_make
        self._messages = self._all = messages
        self._cutter = BlockCutter(appender.frame_bytes)
        is_one = len(messages.datas) <= MOST_WITH_IDS and messages.size_bytes <= appender.frame_bytes // 2
        self._blocks: Blocks = () if is_one else self._cutter.add(messages.sizes)
        self._all_blocks = self._blocks
        self._ids = ids
        self._joints = [(acks, acks.joint(each)) for acks, each in receipts.items()]

    def let_pass(self) -> None:
        """Let other threads pass that acknowledge messages of the same subscriptions. For threads alone."""
        for _, joint in self._joints:
            joint.let_pass()

    def admit_ids(self) -> Sequence[Request]:
        """Leave out messages whose ids their topics have seen: (). Or all that is to be waited for; then call it again.

        Raises as `Transaction.commit` does: nothing is stored.
        """
        if self._ids is None:
            return ()
        self._appender.check_open()
        busy = self._ids.admit(self._all.names, self._all_blocks)
        if not busy:
            self._messages = self._all.only(self._ids.stored)
            self._blocks = [self._all_blocks[row] for row in self._ids.stored] if self._all_blocks else ()
        return busy

    def take_back_ids(self, error: BaseException) -> None:
        """The commit has raised: unless a queue has them, others with its ids try by themselves."""
        if self._ids is not None:
            self._ids.take_back(error)

    def hand_over(self, put: Callable[[AtomicGroup], object]) -> AtomicGroup | None:
        """Acknowledge the messages in memory and `put` the request; None if there is nothing to write.

        Raises as `Transaction.commit` does: then nothing is stored, unless it is an interrupt.
        """
        appender, joints = self._appender, self._joints
        appender.check_open()
        self._check_size()
        streams = self._find(self._messages.names, self._acknowledged)
        for acks, joint in joints:
            if acks.is_unfinished:
                acks.finish()
            if len(joints) > 1:
                joint.check()  # all of them before the first is marked
        request: AtomicGroup | None = None
        try:
            for _, joint in joints:
                joint.mark()
            request = self._request(streams)
            if request is not None:
                put(request)
        except StoreError as error:
            if request is None or not request.done():  # else its answer has done so, and others may have them by now
                self._settle(error)
            raise
        except BaseException:  # an interrupt: the request may be on its way
            for acks, joint in joints:
                acks.cut_joint_short(joint)
            raise
        return request

    def _request(self, streams: list[Stream]) -> AtomicGroup | None:
        """The request; None if all messages to acknowledge were removed, and there are no others."""
        datas, extras = self._messages.datas, self._messages.extras if self._messages.has_extras else []
        blocks, is_large = list[int](), not self.fits
        if is_large:
            blocks += self._blocks or self._cutter.add(self._messages.sizes)
        marked = [joint for _, joint in self._joints if joint.rows]
        for joint in marked:  # after the messages: see `AtomicGroup`
            for record in joint.records():
                streams.append(joint.stream)
                datas.append(record)
                if extras:
                    extras.append(None)
        if not datas:
            return None
        if is_large:
            blocks += self._cutter.add([len(data) for data in datas[len(blocks) :]])
        ids = self._ids.ids if self._ids is not None else ()
        request = self._appender.atomic_group(streams, datas, extras, self._settle, ids, blocks)
        for joint in marked:
            joint.request = request
        return request

    def _acknowledged(self) -> Counter[str]:
        """By topic, how many messages are to be acknowledged."""
        found = Counter[str]()
        for _, joint in self._joints:
            found[joint.topic] += len(joint.receipts)
        return found

    @property
    def fits(self) -> bool:
        """Whether one frame of a lane can have all of it."""
        count, size = self._size()
        records = 0 if self._ids is None else len(self._ids.ids)
        size += RECORD_COST_BYTES * records
        return count + records <= MAX_FRAME_MESSAGES and size <= self._appender.most_atomic_bytes

    def _size(self) -> tuple[int, int]:
        """The messages, with those of acknowledgements, and bytes, with those of ids; both at the most."""
        count, size = len(self._messages.datas), self._messages.size_bytes
        for _, joint in self._joints:
            count, size = count + joint.most_records, size + ACK_BYTES * (1 + len(joint.receipts))
        for one in self._ids.ids if self._ids is not None else ():
            size += ID_BYTES * len(one.digests)
        return count, size

    def _check_size(self) -> None:
        count, size = self._size()
        if count > MOST_MESSAGES or size > MOST_BYTES:
            raise _too_large(f"{count} messages and {size} bytes, with those for acknowledgements")

    def _settle(self, error: StoreError | None) -> None:
        for _, joint in self._joints:
            joint.settle(error)

    def offsets_of(self, request: AtomicGroup | None) -> Int64s:
        """The offset of each message of the transaction; `request` has its answer."""
        stored = np.empty(0, np.int64) if request is None else request.offsets[: len(self._messages.names)]
        return stored if self._ids is None else self._ids.offsets_of(stored)

    @property
    def wants_compaction(self) -> bool:
        """Whether `compact_in_time` has something to do."""
        return any([joint.wants_compaction for _, joint in self._joints])

    def compact_in_time(self) -> None:
        """Compact the subscriptions' records if they have grown."""
        for _, joint in self._joints:
            joint.compact_in_time()


def _too_large(what: str) -> MessageTooLarge:
    return MessageTooLarge(
        f"the transaction has {what}; it can have {MOST_MESSAGES} and {MOST_BYTES}. Nothing was stored. Cut it, or use "
        "a bulk commit (stratalog.bulk)"
    )
