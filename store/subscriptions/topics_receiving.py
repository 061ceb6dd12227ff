"""A receive from several topics: it goes round the members that may have messages, by turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import StoreError
from ..log.request import Request
from .calling import Sleeper
from .delivery import Delivery, DeliveryBatch, joined
from .members import Member, Members
from .receiving import ReceiveCall
from .settings import ReceiveArguments

LEAST_SHARE = 8  # a batch goes on to another topic while one in so many of its bytes are left


class Part(NamedTuple):
    """The messages of one member."""

    member: Member
    batch: DeliveryBatch
    noted: Sequence[Request]  # make their attempts durable


class TopicsLook:
    """The looks of one call. A look costs by the topics that have news, not by all.

    Attributes:
        is_through: no member has more to look at, as far as the newest look has seen.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self.is_through = True

    def has_changed(self, sleeper: Sleeper) -> bool:
        """Whether there is something new, and this consumer is to look at it."""
        return self._members.has_news and self._members.calling.may_look(sleeper)

    def may_sleep(self) -> bool:
        """Whether no member may have messages."""
        return not self._members.has_news

    def take(self, wanted: ReceiveArguments, call: ReceiveCall) -> DeliveryBatch | None:
        """Messages of the members whose turn it is. One that meets an error stops no other."""
        members = self._members
        if call.sleeper is not None:
            members.calling.begins()
        members.raise_failed()
        members.join_new()
        members.check_left()
        members.wake()
        parts: list[Part] = []
        try:
            self._go_round(wanted, parts)
            self._wait_for_attempts(parts)
        except BaseException:  # passed on, mostly an interrupt: nobody gets these
            for part in parts:
                part.member.undo(part.batch.receipts)
            raise
        call.has_more = members.has_news
        if not parts:
            members.raise_failed()
            return None
        return together([part.batch for part in parts], members.name)

    def _go_round(self, wanted: ReceiveArguments, parts: list[Part]) -> None:
        members, left = self._members, wanted
        self.is_through = True
        for _ in range(len(members.ready)):
            topic = members.first()
            if topic is None or not self._has_room(wanted, left):
                break
            part = self._part_of(topic, left)
            if part is None:
                continue
            size = int(part.batch.lengths.sum())
            if parts and size > left.size_bytes:  # a member gives one message at the least
                part.member.undo(part.batch.receipts)
                break
            parts.append(part)
            members.receipts.note(int(part.batch.receipts[0]), len(part.batch), topic)
            left = left._replace(messages=left.messages - len(part.batch), size_bytes=left.size_bytes - size)

    @staticmethod
    def _has_room(wanted: ReceiveArguments, left: ReceiveArguments) -> bool:
        return left.messages > 0 and left.size_bytes * LEAST_SHARE >= wanted.size_bytes

    def _part_of(self, topic: str, left: ReceiveArguments) -> Part | None:
        members, found = self._members, None
        try:
            with members.turn(topic):
                member = members.by_topic[topic]
                batch, noted, until_ms = member.look(left)
                found = None if batch is None else Part(member, batch, noted)
                if members.looked_at(topic, until_ms):
                    self.is_through = False
        except StoreError as error:  # it stays ready
            members.failed = error
        return found

    def _wait_for_attempts(self, parts: list[Part]) -> None:
        """Return when the attempts of all are durable. What failed is taken out of `parts`, and comes again."""
        for part in [part for part in parts if part.noted]:
            try:
                part.member.wait_for(part.noted, part.batch.receipts)
            except StoreError as error:
                self._members.failed = error
                parts.remove(part)


def together(batches: Sequence[DeliveryBatch], name: str) -> DeliveryBatch:
    """Batches of several topics as one, one after another."""
    if len(batches) == 1:
        return batches[0]
    receipts, attempts = (np.concatenate([getattr(one, it) for one in batches]) for it in ("receipts", "attempts"))
    return DeliveryBatch(joined(batches), receipts, attempts, name)


def take_few(members: Members, count: int, visibility_ms: int, *, in_loop: bool = False) -> list[Delivery] | None:
    """`count` messages of the topic whose turn it is, if they are at hand: quicker than a look. None if not."""
    members.wake()
    topic = None if members.failed is not None or members.joining else members.first()
    if topic is None:
        return None
    member = members.by_topic[topic]
    if member.closed:
        return None  # a look finds out why
    few = (member.take_at_hand if in_loop else member.take_few)(count, visibility_ms)
    if few:
        members.receipts.note(few[0].receipt, len(few), topic)
        members.served(topic)
    return few
