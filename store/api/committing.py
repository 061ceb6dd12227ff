"""The commit of a transaction: its messages and acknowledgements become one request, which one frame has as a whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from ..errors import InvalidMessage, MessageTooLarge, StoreError
from ..format.extras import Extras
from ..format.layout import MAX_FRAME_MESSAGES
from ..log.atomic_group import AtomicGroup
from ..subscriptions.acknowledging import Acknowledging
from .appender import Appender

ACK_BYTES = 40  # of a record, at the most: for one message, and for its head


class CheckedMessage(NamedTuple):
    """A message that was checked, and its stream by name."""

    topic: str
    queue_id: int
    data: bytes
    extras: Extras | None

    @property
    def size_bytes(self) -> int:
        """With key and properties."""
        return len(self.data) + (0 if self.extras is None else self.extras.size_bytes)


class Committing:
    """One commit. Its steps: `hand_over`; the request's answer settles the acknowledgements; `compact_in_time`.

    Invariant: once a message is ACKED by it, the outcome of its request, or the lack of one, settles it.
    """

    def __init__(
        self,
        appender: Appender,
        messages: Sequence[CheckedMessage],
        receipts: Mapping[Acknowledging, Collection[int]],
    ) -> None:
        """`receipts`: the messages to acknowledge, by subscription."""
        self._appender = appender
        self._messages = messages
        self._joints = [(acks, acks.joint(each)) for acks, each in receipts.items()]

    def hand_over(self, put: Callable[[AtomicGroup], object]) -> AtomicGroup | None:
        """Acknowledge the messages in memory and `put` the request; None if there is nothing to write.

        Raises as `Transaction.commit` does: then nothing is stored, unless it is an interrupt.
        """
        joints = [joint for _, joint in self._joints]
        self._appender.check_open()
        self._check_size()
        streams = self._appender.find_or_make([(one.topic, one.queue_id) for one in self._messages])
        self._check_lanes([stream.lane.index for stream in [*streams, *(joint.stream for joint in joints)]])
        for joint in joints if len(joints) > 1 else ():
            joint.check()  # all of them before the first is marked
        try:
            for joint in joints:
                joint.mark()
            marked = [joint for joint in joints if joint.rows]
            datas = [*(one.data for one in self._messages), *(joint.record() for joint in marked)]
            if not datas:
                return None
            extras = [*(one.extras for one in self._messages), *([None] * len(marked))]
            request = AtomicGroup([*streams, *(joint.stream for joint in marked)], datas, extras, self._settle)
            for joint in marked:
                joint.request = request
            put(request)
        except StoreError as error:
            self._settle(error)
            raise
        except BaseException:  # an interrupt: the request may be on its way
            for acks, joint in self._joints:
                acks.cut_joint_short(joint)
            raise
        return request

    def _check_size(self) -> None:
        config, limit_bytes = self._appender.config, self._appender.most_atomic_bytes
        count = len(self._messages) + len(self._joints)
        size = sum([one.size_bytes for one in self._messages])
        size += ACK_BYTES * sum([1 + len(joint.receipts) for _, joint in self._joints])
        if count > MAX_FRAME_MESSAGES or size > limit_bytes:
            raise MessageTooLarge(
                f"the transaction has {count} messages, with one for the acknowledgements of each subscription, and "
                f"{size} bytes; it can have {MAX_FRAME_MESSAGES} and {limit_bytes} (max_message_bytes is "
                f"{config.max_message_bytes}). Nothing was stored. Cut it, or use a bulk commit (stratalog.bulk)"
            )

    def _check_lanes(self, lanes: Collection[int]) -> None:
        if len(set(lanes)) > 1:
            raise InvalidMessage(
                "the queues and subscriptions of the transaction are in several lanes, and a transaction can have "
                "those of one alone. Nothing was stored. A store with lanes=1, the default, has all in one"
            )

    def _settle(self, error: StoreError | None) -> None:
        for _, joint in self._joints:
            joint.settle(error)

    @property
    def count(self) -> int:
        """How many messages it appends."""
        return len(self._messages)

    @property
    def wants_compaction(self) -> bool:
        """Whether `compact_in_time` has something to do."""
        return any([joint.wants_compaction for _, joint in self._joints])

    def compact_in_time(self) -> None:
        """Compact the subscriptions' records if they have grown."""
        for _, joint in self._joints:
            joint.compact_in_time()
