"""Bugs of transactions that are planted on purpose: see `planted`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from stratalog.store.format.frame import Frame
from stratalog.store.format.layout import ATOMIC
from stratalog.store.log.writes import PendingFrame, WritesInFlight
from stratalog.store.segment.checksums import whole_messages
from stratalog.store.segment.round_parts import Found, RoundParts


@contextmanager
def keep_a_part_of_a_torn_transaction() -> Iterator[None]:
    """Recovery keeps the whole messages of every torn frame."""

    def whole(frame: Frame, payload: memoryview) -> int:
        header = frame.header._replace(flags=frame.header.flags & ~ATOMIC)
        return whole_messages(replace(frame, head=frame.head._replace(header=header)), payload)

    with mock.patch("stratalog.store.segment.scanner.whole_messages", whole):
        yield


@contextmanager
def show_a_transaction_message_by_message() -> Iterator[None]:
    """What is durable of a transaction is shown, and vouched for by marks, before all of it is."""
    real = WritesInFlight.add_frame

    def add_frame(under_way: WritesInFlight, frame: PendingFrame) -> None:
        ends = list(frame.ends)
        if len(set(ends)) == 1 < len(ends):
            ends = [*range(ends[0] - 700 * (len(ends) - 1), ends[0], 700), ends[0]]  # about where each one ends
        real(under_way, frame._replace(ends=ends))

    with mock.patch.object(WritesInFlight, "add_frame", add_frame):
        yield


@contextmanager
def look_at_the_first_frame_of_a_part_alone() -> Iterator[None]:
    """Recovery takes the part of a large transaction for whole if its first frame is."""
    with mock.patch("stratalog.store.recovery.segment_scan.end_of_part", lambda frame, scanner: scanner):
        yield


@contextmanager
def forget_the_cut_of_a_round() -> Iterator[None]:
    """Recovery keeps a part of a round of which another lane has none."""
    with mock.patch.object(RoundParts, "is_lacking", lambda *given: False):
        yield


@contextmanager
def cut_a_round_that_was_complete() -> Iterator[None]:
    """Recovery takes a part that ends its log for one that was never there."""
    real = RoundParts._look_into

    def look_into(parts: RoundParts, *given: Any) -> Any:
        found, *rest = real(parts, *given)
        return (Found.LACKING if found is Found.THERE else found, *rest)

    with mock.patch.object(RoundParts, "_look_into", look_into):
        yield
