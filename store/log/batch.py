"""Between requests and columns: a batch of requests taken apart, and its offsets handed out."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ..format.arrays import Int64s
from ..format.extras import Extras
from .atomic_group import AtomicGroup, are_atomic
from .message_ids import IdRequest
from .request import AsyncRequest, BlockingRequest, Group, Request, RowGroup
from .streams import Stream
from .ticket import RecordTicket, SubmitRequest

SHARED_OFFSETS = 256  # of a frame, which an ended transaction may keep
PLAIN = frozenset({SubmitRequest, IdRequest, RecordTicket, BlockingRequest, AsyncRequest})  # one message each


def columns_of(requests: Sequence[Request], plain: bool) -> tuple[list[Stream], list[bytes], list[int]]:
    """(streams, payloads, payload sizes) of all messages; `plain` if each request is one message."""
    if plain:
        return (
            [request.stream for request in requests],
            [request.data for request in requests],
            [request.size_bytes for request in requests],
        )
    first = requests[0]
    if len(requests) == 1 and isinstance(first, RowGroup):
        return first.streams, first.datas, first.sizes
    streams: list[Stream] = []
    datas: list[bytes] = []
    sizes: list[int] = []
    for request in requests:
        if isinstance(request, RowGroup):
            streams += request.streams
            datas += request.datas
            sizes += request.sizes
        elif request.count:
            streams.append(request.stream)
            datas.append(request.data)
            sizes.append(request.size_bytes)
    return streams, datas, sizes


def extras_of(requests: Sequence[Request]) -> list[Extras | None]:
    """The optional columns, one element a message."""
    extras: list[Extras | None] = []
    for request in requests:
        mine = request.row_extras if isinstance(request, AtomicGroup) else ()
        extras.extend(mine or [request.extras] * request.count)
    return extras


def given_extras(requests: Sequence[Request], plain: bool) -> list[Extras]:
    """The optional columns of the messages that have some; `plain` if each request is one message."""
    if plain or not are_atomic(requests):
        return [request.extras for request in requests if request.extras is not None]
    given: list[Extras] = []
    for request in requests:
        if isinstance(request, AtomicGroup) and request.row_extras:
            given += [extras for extras in request.row_extras if extras is not None]
        elif request.extras is not None:
            given += [request.extras] * request.count
    return given


def hand_out(requests: Sequence[Request], offsets: array[int] | Int64s, plain: bool) -> None:
    """Tell each request its offset, or its offsets."""
    if plain:
        for request, offset in zip(requests, offsets, strict=True):
            request.offset = offset
        return
    each, at = np.asarray(offsets, np.int64), 0
    for request in requests:
        end = at + request.count
        if isinstance(request, AtomicGroup):
            # A view, which costs less: `Transaction.offsets` gives a copy. Of a large frame it would keep much alive.
            request.offsets = each[at:end] if len(each) <= SHARED_OFFSETS else each[at:end].copy()
        elif isinstance(request, Group):
            request.offsets = np.asarray(offsets[at:end], np.int64)  # of its own: a caller may keep it
        elif request.count:
            request.offset = int(offsets[at])
        at = end


def last_ends(requests: Sequence[Request], ends: Sequence[int]) -> list[int]:
    """The end of each request, from the ends of all messages; barriers have none."""
    counts = [request.count for request in requests if request.count]
    if ends[0] == ends[-1]:  # of an atomic frame, or of one message
        return [ends[0]] * len(counts)
    return [ends[count - 1] for count in accumulate(counts)]


def requests_within(requests: Sequence[Request], messages: int) -> int:
    """How many requests, from the first, consist only of the first `messages` messages."""
    if PLAIN.issuperset(map(type, requests)):
        return messages
    return bisect_right(list(accumulate([request.count for request in requests])), messages)
