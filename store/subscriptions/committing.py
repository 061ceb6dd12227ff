"""The commit of a transaction: its messages and acknowledgements are one request, stored as a whole or not at all.

A small one is one frame in each of its lanes. A large one is cut into blocks of messages, of which each lane's frames
are made: see `log.joint_group`. It is in memory as a whole, so it has at most `MOST_MESSAGES` and `MOST_BYTES`: of the
messages, of their ids, and of the records of acknowledgements. Records of ids are the store's own, and do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from ..errors import MessageTooLarge, StoreError
from ..format.arrays import Int64s
from ..format.extras import Extras
from ..format.layout import MAX_FRAME_MESSAGES
from ..format.message_ids import ID_BYTES
from ..log.atomic_group import NO_OFFSETS, AtomicGroup
from ..log.joint_group import BlockCutter, Blocks
from ..log.message_ids import MOST_WITH_IDS, RECORD_COST_BYTES
from ..log.request import Request
from ..log.streams import Stream
from .acknowledging import Acknowledging
from .joint_acks import RECORD_ACKS, JointAcks
from .joint_ids import JointIds
from .parts import Appending

ACK_BYTES = 40  # of a record, at the most: for one message, and for its head
MOST_MESSAGES = 1 << 20
MOST_BYTES = 1 << 30
ValueT = TypeVar("ValueT")


class PendingMessages:
    """Checked messages that are not appended yet, in columns.

    Attributes:
        names: (topic, queue id) of each.
        datas: of each.
        extras, digests: the optional columns, and those of message ids; None for a message without. They end with the
            last message that has some.
        size_bytes: of all, with keys and properties.
        id_bytes: that their ids take.
    """

    __slots__ = ("datas", "digests", "extras", "id_bytes", "names", "size_bytes")

    def __init__(self) -> None:
        self.names: list[tuple[str, int]] = []
        self.datas: list[bytes] = []
        self.extras: list[Extras | None] = []
        self.digests: list[bytes | None] = []
        self.size_bytes = self.id_bytes = 0

    def add(
        self, topic: str, queue_id: int, data: bytes, extras: Extras | None, digest: bytes | None = None
    ) -> None:  # fmt: skip
        """Add one. Raises MessageTooLarge."""
        row, size, id_bytes = len(self.datas), len(data), 0 if digest is None else ID_BYTES
        if extras is not None:
            size += extras.size_bytes
        if row >= MOST_MESSAGES or self.size_bytes + self.id_bytes + size + id_bytes > MOST_BYTES:
            self.check_room(1, size + id_bytes)  # raises
        if digest is not None:
            self.digests += [*[None] * (row - len(self.digests)), digest]
            self.id_bytes += id_bytes
        if extras is not None:
            self.extras += [*[None] * (row - len(self.extras)), extras]
        self.names.append((topic, queue_id))
        self.datas.append(data)
        self.size_bytes += size

    def check_room(self, count: int, size_bytes: int) -> None:
        """Raises MessageTooLarge if there is no room for so many more messages, or bytes, with those of ids."""
        count, size = len(self.datas) + count, self.size_bytes + self.id_bytes + size_bytes
        if count > MOST_MESSAGES or size > MOST_BYTES:
            raise _too_large(f"{count} messages and {size} bytes")

    def only(self, rows: Collection[int]) -> PendingMessages:
        """Some of them, without ids."""
        found, extras = PendingMessages(), self.all_of(self.extras)
        for row in rows:
            found.add(*self.names[row], self.datas[row], extras[row] if extras else None)
        return found

    def all_of(self, column: list[ValueT | None]) -> list[ValueT | None]:
        """`extras` or `digests` with an element for each message; empty if none has any."""
        return column + [None] * (len(self.datas) - len(column)) if column else column

    @property
    def sizes(self) -> list[int]:
        """The bytes of each, with keys and properties."""
        sizes = list(map(len, self.datas))
        for row, extras in enumerate(self.extras):
            sizes[row] += 0 if extras is None else extras.size_bytes
        return sizes


class Committing:
    """One commit. Its steps: `admit_ids`; `hand_over`; the request's answer settles the acknowledgements;
    `compact_in_time`.

    Invariant: once a message is ACKED by it, the outcome of its request, or the lack of one, settles it.

    Attributes:
        ids: of the messages; None if none has one.
        joints: the acknowledgements, with the part of their subscription that makes them.
    """

    __slots__ = ("_all", "_all_blocks", "_appender", "_are_again", "_blocks", "_cutter", "_messages", "ids", "joints")

    def __init__(
        self, appender: Appending, messages: PendingMessages, receipts: Mapping[Acknowledging, Collection[int]],
        *, are_again: bool = False, ids: JointIds | None = None,
    ) -> None:  # fmt: skip
        """`receipts`: the messages to acknowledge, by subscription. `are_again`: the store has had these messages.
        `ids`: of the messages, if some have one.
        """
        self._appender = appender
        self._are_again = are_again
        self._messages = self._all = messages
        self._cutter: BlockCutter | None = None  # of a large one
        self._blocks: Blocks = ()
        if len(messages.datas) > MOST_WITH_IDS or messages.size_bytes > appender.frame_bytes // 2:
            self._cutter = BlockCutter(appender.frame_bytes)
            self._blocks = self._cutter.add(messages.sizes)
        self._all_blocks = self._blocks
        self.ids = ids
        self.joints: list[tuple[Acknowledging, JointAcks]] = []
        for acks, each in receipts.items():
            self.joints.append((acks, acks.joint(each)))

    def let_pass(self) -> None:
        """Let other threads pass that acknowledge messages of the same subscriptions. For threads alone."""
        for _, joint in self.joints:
            joint.let_pass()

    def admit_ids(self) -> Sequence[Request]:
        """Leave out messages whose ids their topics have seen: (). Or all that is to be waited for; then call it again.

        Raises as `Transaction.commit` does: nothing is stored.
        """
        if self.ids is None:
            return ()
        self._appender.check_open()
        busy = self.ids.admit(self._all.names, self._all_blocks)
        if not busy:
            self._messages = self._all.only(self.ids.stored)
            self._blocks = [self._all_blocks[row] for row in self.ids.stored] if self._all_blocks else ()
        return busy

    def take_back_ids(self, error: BaseException) -> None:
        """The commit has raised: unless a queue has them, others with its ids try by themselves."""
        if self.ids is not None:
            self.ids.take_back(error)

    def hand_over(self, put: Callable[[AtomicGroup], object]) -> AtomicGroup | None:
        """Acknowledge the messages in memory and `put` the request; None if there is nothing to write.

        Raises as `Transaction.commit` does: then nothing is stored, unless it is an interrupt.
        """
        appender, joints = self._appender, self.joints
        appender.check_open()
        count, size = self._size()
        if count > MOST_MESSAGES or size > MOST_BYTES:
            raise _too_large(f"{count} messages and {size} bytes, with those for acknowledgements")
        find = appender.find_again if self._are_again else appender.find_or_make
        streams = find(self._messages.names, self._acknowledged)
        for acks, joint in joints:
            if acks.is_unfinished:
                acks.finish()
            if len(joints) > 1:
                joint.check()  # all of them before the first is marked
        request: AtomicGroup | None = None
        try:
            for _, joint in joints:
                joint.mark()
            request = self._request(streams, is_large=not self._fits(count, size))
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

    def _request(self, streams: list[Stream], *, is_large: bool) -> AtomicGroup | None:
        """The request; None if all messages to acknowledge were removed, and there are no others."""
        messages, joints = self._messages, self.joints
        datas, extras = messages.datas, messages.all_of(messages.extras) if messages.extras else []
        for _, joint in joints:  # after the messages: see `AtomicGroup`
            for record in joint.records():
                streams.append(joint.stream)
                datas.append(record)
                if extras:
                    extras.append(None)
        if not datas:
            return None
        blocks = self._all_of_large(datas) if is_large else ()
        ids = self.ids.ids if self.ids is not None else ()
        settle = None if not joints else joints[0][1].settle if len(joints) == 1 else self._settle
        request = self._appender.atomic_group(streams, datas, extras, settle, ids, blocks)
        for _, joint in joints:
            joint.request = request
        return request

    def _all_of_large(self, datas: list[bytes]) -> Blocks:
        """The blocks of a large one's messages, and of the records after them."""
        if self._cutter is None:  # its acknowledgements make it large, or its ids
            self._cutter = BlockCutter(self._appender.frame_bytes)
            self._blocks = self._cutter.add(self._messages.sizes)
        return [*self._blocks, *self._cutter.add([len(data) for data in datas[len(self._blocks) :]])]

    def _acknowledged(self) -> Counter[str]:
        """By topic, how many messages are to be acknowledged."""
        found = Counter[str]()
        for _, joint in self.joints:
            found[joint.topic] += len(joint.receipts)
        return found

    @property
    def fits(self) -> bool:
        """Whether one frame of a lane can have all of it."""
        return self._fits(*self._size())

    def _fits(self, count: int, size_bytes: int) -> bool:
        records = 0 if self.ids is None else len(self.ids.ids)
        size_bytes += RECORD_COST_BYTES * records
        return count + records <= MAX_FRAME_MESSAGES and size_bytes <= self._appender.most_atomic_bytes

    def _size(self) -> tuple[int, int]:
        """The messages, with those of acknowledgements, and bytes, with those of ids; both at the most."""
        count, size = len(self._messages.datas), self._messages.size_bytes
        for _, joint in self.joints:
            acks = len(joint.receipts)
            count += -(-acks // RECORD_ACKS)  # records, rounded up
            size += ACK_BYTES * (1 + acks)
        for one in () if self.ids is None else self.ids.ids:
            size += ID_BYTES * len(one.digests)
        return count, size

    def _settle(self, error: StoreError | None) -> None:
        for _, joint in self.joints:
            joint.settle(error)

    def offsets_of(self, request: AtomicGroup | None) -> Int64s:
        """The offset of each message of the transaction; `request` has its answer."""
        stored = NO_OFFSETS if request is None else request.offsets[: len(self._messages.names)]
        return stored if self.ids is None else self.ids.offsets_of(stored)

    @property
    def wants_compaction(self) -> bool:
        """Whether `compact_in_time` has something to do."""
        return any([joint.journal.wants_compaction for _, joint in self.joints])

    def compact_in_time(self) -> None:
        """Compact the subscriptions' records if they have grown."""
        for _, joint in self.joints:
            joint.compact_in_time()


def _too_large(what: str) -> MessageTooLarge:
    return MessageTooLarge(
        f"the transaction has {what}; it can have {MOST_MESSAGES} and {MOST_BYTES}. Nothing was stored. Cut it, or use "
        "a bulk commit (stratalog.bulk)"
    )
