"""Acknowledging and giving back messages of several topics together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..format.arrays import Int64s
from ..log.atomic_group import AtomicGroup
from .committing import Committing, PendingMessages
from .delivery import Delivery
from .members import Member, Members
from .parts import Parts
from .settings import receipts_of, stale

Split = Mapping[Member, Int64s]  # receipts by their member


def split(members: Members, receipts: npt.ArrayLike | Sequence[Delivery]) -> Split:
    """Receipts or deliveries by their members. Raises StaleReceipt, InvalidMessage."""
    plain = receipts_of(receipts)
    found: dict[Member, list[Int64s]] = {}
    if isinstance(receipts, list | tuple) and any(isinstance(one, Delivery) for one in receipts):
        for delivery in receipts:  # they say their topic, also if another object has received them
            found.setdefault(members.of(delivery), []).append(receipts_of([delivery]))
        return {member: np.unique(np.concatenate(parts)) for member, parts in found.items()}
    by_topic, unknown = members.receipts.by_topic(plain)
    if len(unknown):
        raise stale(members.name, unknown.tolist())
    return {members.by_topic[topic]: mine for topic, mine in by_topic.items()}


def _check(receipts: Split) -> None:
    """Raise StaleReceipt if one is not a consumer's, before anything is done. Of one member its call does that."""
    for member, mine in receipts.items() if len(receipts) > 1 else ():
        member.check(mine)


def ack_all(parts: Parts, receipts: Split) -> None:
    """Acknowledge messages: those of several members by one transaction, unless it would be a large one."""
    _check(receipts)
    if len(receipts) > 1 and parts.appending is not None:
        by_member = {member.acks: mine.tolist() for member, mine in receipts.items()}
        committing = Committing(parts.appending, PendingMessages(), by_member)
        if committing.fits:
            committing.let_pass()
            committing.hand_over(AtomicGroup.put_and_sleep)
            if committing.wants_compaction:
                committing.compact_in_time()
            return
    for member, mine in receipts.items():
        member.ack_batch(mine)


def nack_all(receipts: Split, delay_ms: int, reason: str | None) -> None:
    """Give messages back."""
    _check(receipts)
    for member, mine in receipts.items():
        member.nack_batch(mine, delay_ms, reason=reason)
