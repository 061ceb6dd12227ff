"""The four ways to append a plan, each a tight loop: blocking, pipelined, batch, asyncio.

Every loop makes the message inline (one pack, one copy), takes the time around the call only, checks that the offset
returned is the serial number written, and then calls `acknowledged(queue, end_offset)`, if there is one.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from .contest import HEADER, HEADER_BYTES, IntArray, Plan, Workload

Acknowledged = Callable[[int, int], None]
Append = Callable[[str, int, bytes], int]
AppendAsync = Callable[[str, int, bytes], Awaitable[int]]
WINDOW_BYTES = 8 << 20
WINDOW_MESSAGES = 4096
BATCH_MESSAGES = 256


class TicketLike(Protocol):
    """The ticket that `submit` returns."""

    def result(self, timeout: float | None = None) -> int:
        """The offset, once durable."""


Submit = Callable[[str, int, bytes], TicketLike]
AppendBatch = Callable[[Sequence[tuple[str, int, bytes]]], IntArray]


@dataclass
class Track:
    """The record of one producer in one phase; only its own thread writes it.

    `latencies_ns` has one slot a message (a batch fills one slot), of which the first `timed` are used.
    """

    plan: Plan
    latencies_ns: array[int] = field(init=False)
    timed: int = 0
    done: int = 0
    wrong_offsets: int = 0

    def __post_init__(self) -> None:
        self.latencies_ns = array("q", bytes(8 * len(self.plan)))


def blocking(append: Append, work: Workload, track: Track, acknowledged: Acknowledged | None = None) -> None:
    """Append one message at a time: the next is made when the last is durable."""
    pack, view, tag, addresses = HEADER.pack, work.content.view, work.content.tag, work.addresses
    clock, latencies, done = time.perf_counter_ns, track.latencies_ns, 0
    for queue, serial, size, start in track.plan.rows():
        topic, queue_id = addresses[queue]
        data = pack(queue, serial, size, tag) + view[start : start + size - HEADER_BYTES]
        began = clock()
        offset = append(topic, queue_id, data)
        latencies[done] = clock() - began
        done += 1
        track.done = done
        if offset != serial:
            track.wrong_offsets += 1
        if acknowledged is not None:
            acknowledged(queue, serial + 1)
    track.timed = done


def pipelined(
    submit: Submit,
    work: Workload,
    track: Track,
    acknowledged: Acknowledged | None = None,
) -> None:
    """One producer with a window of outstanding tickets.

    A latency is the time from `submit` until the producer sees the answer of the window's oldest ticket: an upper
    bound.
    """
    pack, view, tag, addresses = HEADER.pack, work.content.view, work.content.tag, work.addresses
    clock, latencies = time.perf_counter_ns, track.latencies_ns
    window: deque[tuple[TicketLike, int, int, int, int]] = deque()
    outstanding = 0

    def settle() -> int:
        ticket, queue, serial, size, began = window.popleft()
        if ticket.result() != serial:
            track.wrong_offsets += 1
        latencies[track.done] = clock() - began
        track.done += 1
        if acknowledged is not None:
            acknowledged(queue, serial + 1)
        return size

    for queue, serial, size, start in track.plan.rows():
        topic, queue_id = addresses[queue]
        data = pack(queue, serial, size, tag) + view[start : start + size - HEADER_BYTES]
        began = clock()
        window.append((submit(topic, queue_id, data), queue, serial, size, began))
        outstanding += size
        while outstanding > WINDOW_BYTES or len(window) > WINDOW_MESSAGES:
            outstanding -= settle()
    while window:
        settle()
    track.timed = track.done


def batch(
    append_batch: AppendBatch,
    work: Workload,
    track: Track,
    acknowledged: Acknowledged | None = None,
    batch_messages: int = BATCH_MESSAGES,
) -> None:
    """One producer, `batch_messages` a call. A latency is a call's."""
    pack, view, tag = HEADER.pack, work.content.view, work.content.tag
    topics = [address.topic for address in work.addresses]
    queue_ids = [address.queue_id for address in work.addresses]
    clock, latencies, rows = time.perf_counter_ns, track.latencies_ns, track.plan.rows()
    while cut := list(islice(rows, batch_messages)):
        items = [
            (topics[queue], queue_ids[queue], pack(queue, at, size, tag) + view[start : start + size - HEADER_BYTES])
            for queue, at, size, start in cut
        ]
        began = clock()
        offsets = append_batch(items)
        latencies[track.timed] = clock() - began
        track.timed += 1
        serials = track.plan.serials[track.done : track.done + len(cut)]
        track.wrong_offsets += int((offsets != serials).sum())
        track.done += len(cut)
        if acknowledged is not None:
            for queue, serial, _, _ in cut:
                acknowledged(queue, serial + 1)


async def _one_task(append: AppendAsync, work: Workload, track: Track, acknowledged: Acknowledged | None) -> None:
    """Run the blocking loop with await."""
    pack, view, tag, addresses = HEADER.pack, work.content.view, work.content.tag, work.addresses
    clock, latencies, done = time.perf_counter_ns, track.latencies_ns, 0
    for queue, serial, size, start in track.plan.rows():
        topic, queue_id = addresses[queue]
        data = pack(queue, serial, size, tag) + view[start : start + size - HEADER_BYTES]
        began = clock()
        offset = await append(topic, queue_id, data)
        latencies[done] = clock() - began
        done += 1
        track.done = done
        if offset != serial:
            track.wrong_offsets += 1
        if acknowledged is not None:
            acknowledged(queue, serial + 1)
    track.timed = done


def asynchronous(
    append: AppendAsync, work: Workload, tracks: list[Track], acknowledged: Acknowledged | None = None
) -> None:
    """One task a track on one event loop, each awaiting its own appends."""

    async def main() -> None:
        tasks = [_one_task(append, work, track, acknowledged) for track in tracks]
        # All tasks run to their own end, so that none is left waiting when one fails; then its error is raised.
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if outcome is not None:
                raise outcome

    asyncio.run(main())
